"""A child as its supervisor has it: one incarnation after another, never two at once, and what is told of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import anyio
from anyio.abc import TaskGroup

from ..actor_ref import ActorEnd, ActorRef
from ..errors import ChildNotReady, ChildStartError, WorkerStartError, actor_error, only_one
from ..interrupts import without_interrupts
from ..mailbox import MailboxStatistics
from .child_spec import ChildSpec
from .deciding import ChildState
from .incarnation import Incarnation
from .registry import Registration

ChildPhase: TypeAlias = Literal["starting", "up", "stopping", "waiting", "finished", "stopped"]
"""`waiting` for its start, `finished` as it ended in order, or `stopped` by name."""


NEVER_STARTED = ActorEnd("it was stopped before it was started", normal=True)


@dataclass(frozen=True, slots=True)
class ChildStatistics:
    """A snapshot of a child: how often it was started again, how it last ended; its mailbox, its children if it has."""

    name: str
    phase: ChildPhase
    restarts: int
    last_end: ActorEnd | None
    mailbox: MailboxStatistics | None
    children: tuple[ChildStatistics, ...]


class Child:
    """One child, for the supervisor alone."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.incarnation: Incarnation | None = None
        """Its present life, from when it is ready until nothing of it is left."""
        self.times_ready = 0
        self.last_end: ActorEnd | None = None
        self.start_error: Exception | None = None
        """Why the last start failed, if it did."""
        self.shutdown_seconds = spec.shutdown_seconds
        self.registration: Registration | None = None
        """Its name for other processes, while it has that."""
        self._starts = 0
        self._tasks: TaskGroup | None = None
        self._stopping = False
        self._untold: Exception | None = None

    def prepare(self) -> None:
        """Take note that `live` is about to be called."""
        self._starts += 1
        self._stopping, self.start_error, self.shutdown_seconds = False, None, self.spec.shutdown_seconds

    async def live(self, start: Callable[[TaskGroup], Awaitable[Incarnation]], ready: Callable[[], None]) -> ActorEnd:
        """Live one life, and return how it ended, or could not begin, when nothing of it is left.

        `start` makes the incarnation in its task group, and `ready` is called once it is there.
        """
        end = ActorEnd("it was stopped before it was ready", normal=True)
        incarnation: Incarnation | None = None
        try:
            async with anyio.create_task_group() as self._tasks:
                try:
                    if not self._stopping:
                        incarnation = self.incarnation = await start(self._tasks)
                except Exception as error:
                    self.start_error, end = error, ActorEnd(reason_of(error), error)
                    # A start that was given up in its last moment may have left something.
                    self._tasks.cancel_scope.cancel()
                if incarnation is not None:
                    self.times_ready += 1
                    ready()
                    await incarnation.wait_ended()
        except Exception as error:
            # It was raised while this was cancelled, or by an actor that left with nobody to tell: then it is its end.
            if self._stopping:
                self._untold = only_one(error)
        finally:
            self._tasks = self.incarnation = None
        self.last_end = end if incarnation is None else incarnation.end or ActorEnd("it was cancelled")
        return self.last_end

    def stop(self) -> None:
        """Begin to stop it: in order, within its time; or, if it isn't ready yet, at once."""
        self._stopping = True
        if self.incarnation is None:
            self.cancel()
        elif self.incarnation.end is None and self._tasks is not None:
            self._tasks.start_soon(without_interrupts(self._stop), self.incarnation)

    async def _stop(self, incarnation: Incarnation) -> None:
        try:
            if self.shutdown_seconds is None:
                await incarnation.kill()
            elif isinstance(incarnation, ActorRef):
                await incarnation.stop(self.shutdown_seconds)
            else:
                await incarnation.stop()
        except Exception as error:
            self._untold = error

    def kill(self) -> None:
        """Begin to end it at once."""
        self.shutdown_seconds = None
        self.stop()

    def cancel(self) -> None:
        """Cancel what there is of it; it has its time to leave."""
        self._stopping = True
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    @property
    def is_stopping(self) -> bool:
        """Whether its end was ordered."""
        return self._stopping

    def unregister(self) -> None:
        """Give back its name for other processes: it is down for good."""
        registration, self.registration = self.registration, None
        if registration is not None:
            registration.end(self.last_end or NEVER_STARTED)

    def take_untold(self) -> list[Exception]:
        """Give, once, what it raised while it was stopped."""
        untold, self._untold = self._untold, None
        return [] if untold is None else [untold]

    def statistics(self, state: ChildState, children: tuple[ChildStatistics, ...]) -> ChildStatistics:
        """Return what it is now, `state` being what is decided about it, and `children` those of a tree."""
        mailbox = self.incarnation.statistics() if isinstance(self.incarnation, ActorRef) else None
        restarts = max(0, self._starts - 1)
        return ChildStatistics(self.spec.name, _phase_of(state), restarts, self.last_end, mailbox, children)


def reason_of(error: Exception) -> str:
    """Say in one line why a child could not be started."""
    says_all = isinstance(error, ChildNotReady | ChildStartError | WorkerStartError)
    return str(error) if says_all else str(actor_error(error))


def _phase_of(state: ChildState) -> ChildPhase:
    if state.status != "down":
        return state.status
    return "waiting" if state.goal in ("up", "again") else "finished" if state.goal == "done" else "stopped"
