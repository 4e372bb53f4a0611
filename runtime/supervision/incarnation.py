"""One life of a supervisor's child, from its start to its end, whatever the child is: an actor, a function, a tree.

A new one is made for each restart, in a task group of its own: when that is left, nothing of it is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus

from ..actor_ref import ActorEnd
from ..errors import ChildNotReady, actor_error, only_one
from ..interrupts import without_interrupts
from ..mailbox_ref import MailboxRef
from ..placement import Spare, place_actor
from ..processes import ProcessEnded
from .child_spec import ChildSpec, Tree


class Incarnation(Protocol):
    """What a supervisor needs of each; an ActorRef and a Supervisor are such."""

    async def stop(self) -> ActorEnd:
        """End it in order, within its time; raises what nobody else was told of."""

    async def kill(self) -> ActorEnd:
        """End it at once; raises as `stop`."""

    async def wait_ended(self) -> ActorEnd:
        """Wait until it has ended and return how."""

    @property
    def end(self) -> ActorEnd | None:
        """How it ended; None while it lives."""


async def start_actor(group: TaskGroup, spec: ChildSpec, spare: Spare | None) -> MailboxRef:
    """Make an actor as its spec says; a worker process is the spare one, if there are such.

    Raises:
        ChildNotReady: It was not ready in its time. WorkerStartError, ActorError, …: As when it is spawned.
    """
    assert not isinstance(spec.start, Tree)
    ref = await place_actor(
        group,
        spec.start,
        spec.arguments,
        process=spec.process,
        ready_seconds=spec.ready_seconds,
        blocked_seconds=spec.blocked_seconds,
        spare=spare,
        name=spec.name,
        messages_max=spec.messages_max,
        bytes_max=spec.bytes_max,
        shutdown_seconds=spec.shutdown_seconds,
    )
    if ref is None:
        raise _late(spec)
    return ref


async def start_function(group: TaskGroup, spec: ChildSpec) -> RunningFunction:
    """Start an async function, and return once it has called its `started`.

    Raises:
        ChildNotReady: It did not in its time, or returned without. Exception: It raised that before.
    """
    assert callable(spec.start)
    running = RunningFunction()
    with anyio.move_on_after(spec.ready_seconds):
        await group.start(without_interrupts(running.live), spec.start, spec.arguments, name=spec.name)
        return running
    raise _late(spec)


class RunningFunction:
    """An async function that is a child. Stopped, it is cancelled, and has as long as it takes to leave."""

    def __init__(self) -> None:
        self._scope = anyio.CancelScope()
        self._stopped = False
        self._end: ActorEnd | None = None
        self._end_known = anyio.Event()

    async def live(
        self, function: Callable[..., Awaitable[object]], arguments: tuple[Any, ...], *, task_status: TaskStatus[None]
    ) -> None:
        """Run it to its end."""
        is_ready = False

        def started() -> None:
            nonlocal is_ready
            if not is_ready:
                is_ready = True
                task_status.started()

        end = ActorEnd("it was cancelled")
        try:
            with self._scope:
                await function(*arguments, started=started)
            end = ActorEnd("it was stopped" if self._stopped else "it returned", normal=True)
        except Exception as error:
            if not is_ready:
                raise
            error = only_one(error)
            has_failed = not isinstance(error, ProcessEnded)
            end = ActorEnd(f"it failed: {actor_error(error)}" if has_failed else str(error), error)
        finally:
            self._end = end
            self._end_known.set()
        if not is_ready:
            raise ChildNotReady("it returned before it called started()")

    async def stop(self) -> ActorEnd:
        """Cancel it and wait until it has left. Shielded."""
        self._stopped = True
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._end_known.wait()
        return await self.wait_ended()

    kill = stop

    async def wait_ended(self) -> ActorEnd:
        """Wait until it has ended and return how."""
        await self._end_known.wait()
        assert self._end is not None
        return self._end

    @property
    def end(self) -> ActorEnd | None:
        """How it ended; None while it runs."""
        return self._end


def _late(spec: ChildSpec) -> ChildNotReady:
    return ChildNotReady(f"it was not ready within {spec.ready_seconds:g} s")
