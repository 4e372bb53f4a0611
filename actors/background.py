"""Tasks that run behind a host's body, and are ended by us alone.

The host's code runs inside whatever we enter by hand, so two things have to be kept apart. A cancellation from outside
reaches the body at once, but not these tasks, which still have to store what the body leaves behind: they stand in a
shield. And what the body raises is never shown to their task group, so it comes out as it is and not in a group.
"""

from __future__ import annotations

import anyio
from anyio.abc import TaskGroup, TaskStatus

from turnkeeper.runtime.interrupts import without_interrupts


class Background:
    """A task group for such tasks; `open` and `aclose` belong into the same task."""

    def __init__(self) -> None:
        self._outer = anyio.create_task_group()
        self._scope = anyio.CancelScope(shield=True)
        self._tasks: TaskGroup | None = None

    @property
    def tasks(self) -> TaskGroup:
        """The group to start tasks in, while it is open."""
        assert self._tasks is not None
        return self._tasks

    async def open(self) -> None:
        """Be ready for tasks. Isn't cancelled in the middle, which would leave the group entered and never left."""
        await self._outer.__aenter__()
        with anyio.CancelScope(shield=True):
            await self._outer.start(without_interrupts(self._live))

    async def aclose(self) -> None:
        """Cancel the tasks and wait for their end. Raises what they raised, in a group."""
        self._scope.cancel()
        await self._outer.__aexit__(None, None, None)

    async def _live(self, *, task_status: TaskStatus[None]) -> None:
        with self._scope:
            async with anyio.create_task_group() as self._tasks:
                task_status.started()
                await anyio.sleep_forever()
