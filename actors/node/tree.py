"""The node's supervision tree: its writer from the start, its process supervisor from the first task on.

They are children of one supervisor (turnkeeper.runtime.supervision), one_for_one, in this order, so that the process
supervisor ends before the writer. A writer that was killed comes back at once; whatever ends by itself comes back after
growing delays, a limited number of times. One that can't go on, and says why, doesn't come back: the node ends for it.

Part of the node, on trio.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import trio

from turnkeeper.runtime.errors import ChildStartError, TooManyRestarts
from turnkeeper.storage.errors import StorageError, StoreRefused

from ..protocol import NODE_LOG
from .restarts import FAILED_POLICY, KILLED_POLICY
from .tasks.supervisor_keeper import SupervisorKeeper
from .writer_keeper import WriterKeeper

if TYPE_CHECKING:
    from turnkeeper.runtime.supervision.child_spec import ChildSpec
    from turnkeeper.runtime.supervision.supervisor import Supervisor

GREETING_SECONDS = 0.1
"""How long the tree waits at most until somebody was greeted."""

_WRITER = "writer"
_TASKS = "tasks"


class NodeTree:
    """The children of the node of the store at `path`.

    `refused` is told why there can be no writer, and `end` why this node can't go on.
    """

    def __init__(
        self,
        path: str,
        writer: WriterKeeper,
        tasks: SupervisorKeeper,
        refused: Callable[[StorageError], None],
        end: Callable[[str], None],
    ) -> None:
        self.greeted = trio.Event()
        """Set once a client has attached."""
        self._path = path
        self._writer = writer
        self._tasks = tasks
        self._refused = refused
        self._end = end
        self._supervisor: Supervisor | None = None
        self._begun = trio.Event()

    async def run(self) -> None:
        """Keep the children alive until `end`, or until that can't be done."""
        # What follows is loaded while the writer loads what it needs, and whoever started the node waits for that one.
        with trio.move_on_after(GREETING_SECONDS):
            await self.greeted.wait()
        from turnkeeper.runtime.supervision.child_spec import ChildSpec
        from turnkeeper.runtime.supervision.supervisor import Supervisor

        async with anyio.create_task_group() as group:
            self._supervisor = await Supervisor.start(
                group,
                ChildSpec(_WRITER, self._writer.live, restart="transient"),
                policy=FAILED_POLICY,
                killed_policy=KILLED_POLICY,
                name="node",
            )
            self._begun.set()
            group.start_soon(self._add_tasks, ChildSpec(_TASKS, self._tasks.live, restart="transient"))
            end = await self._supervisor.wait_ended()
            group.cancel_scope.cancel()
        if isinstance(end.error, TooManyRestarts):
            if end.error.child == _WRITER:
                self._refused(StoreRefused(self._path, f"{end.error.reason}; {NODE_LOG} there says more"))
            else:
                self._end(f"its process supervisor can't be kept alive: {end.error.reason}")

    async def rebuild(self) -> dict[str, Any]:
        """End the writer in order, start one that builds the index anew, and return its report when it serves."""
        supervisor = await self._up()
        return await self._writer.rebuild(partial(supervisor.restart_child, _WRITER))

    async def end(self) -> None:
        """End the children in order, the last one first, and start none again."""
        supervisor = await self._up()
        with suppress(TooManyRestarts):  # `run` tells of it
            await supervisor.stop()

    async def _add_tasks(self, spec: ChildSpec) -> None:
        await self._tasks.wanted.wait()
        with suppress(ChildStartError):  # the node ends
            await (await self._up()).start_child(spec)

    async def _up(self) -> Supervisor:
        await self._begun.wait()
        assert self._supervisor is not None
        return self._supervisor
