"""One life of a supervisor's child, from its start to its end, whatever the child is: an actor, a function, a tree.

A new one is made for each restart, in a task group of its own: when that is left, nothing of it is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus

from ..actor_ref import ActorEnd, ActorRef
from ..actors import spawn_in_loop
from ..errors import ChildNotReady, actor_error, only_one
from ..interrupts import without_interrupts
from ..processes import ProcessEnded
from .child_spec import ChildSpec, Tree

if TYPE_CHECKING:
    from ..worker_process import SpareWorker

Spare: TypeAlias = Callable[[], "SpareWorker"]
"""Gives what keeps a process for the next worker; called only when there is a worker to be started."""

LAST_WORDS_SECONDS = 0.5
"""How much later than a worker process's own time is over its start is given up: its own error says more."""


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


async def start_actor(group: TaskGroup, spec: ChildSpec, spare: Spare | None) -> ActorRef:
    """Make an actor as its spec says; a worker process is the spare one, if there are such.

    Raises:
        ChildNotReady: It was not ready in its time. WorkerStartError, ActorError, …: As when it is spawned.
    """
    options: dict[str, Any] = {
        "name": spec.name,
        "messages_max": spec.messages_max,
        "bytes_max": spec.bytes_max,
        "shutdown_seconds": spec.shutdown_seconds or 0.0,
    }
    if not spec.process:
        assert not isinstance(spec.start, str | Tree)
        with anyio.move_on_after(spec.ready_seconds):
            return await spawn_in_loop(group, spec.start, *spec.arguments, **options)
    else:
        # A supervisor without worker processes needn't import what they need.
        from ..worker import spawn_in_process

        assert isinstance(spec.start, str | type)
        options |= {"ready_seconds": spec.ready_seconds, "blocked_seconds": spec.blocked_seconds}
        options |= {"spare": None if spare is None else spare()}
        with anyio.move_on_after(spec.ready_seconds + LAST_WORDS_SECONDS):
            return await spawn_in_process(group, spec.start, *spec.arguments, **options)
    raise _late(spec)


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
