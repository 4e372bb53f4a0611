"""What is left of a task whose command has ended, or whose shim was killed: found, watched until it is gone, stopped.

While its shim lives, that names what is left and stops it; here is what the node does when it is dead. Finding reads
all of /proc, so it happens in a thread, and again only when all that was found has ended. Part of the node, on trio.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import trio

from turnkeeper.runtime.tasks import survivors, tree

RETRY_SECONDS: Final = 1.0
"""The pause before a process is looked for again for which no descriptor was left."""


class Leftovers:
    """What a task's dead shim left; `ring` is called when all that was found has ended."""

    def __init__(self, task: str, ring: Callable[[], None]) -> None:
        self.is_watched = False
        self._task = task
        self._ring = ring

    async def find(self, shim: Mapping[str, Any], nursery: trio.Nursery) -> Sequence[Mapping[str, Any]]:
        """Find what the shim of this identity left, and watch that in the nursery: it may start more meanwhile."""
        found = await trio.to_thread.run_sync(survivors.find, self._task, shim, abandon_on_cancel=True)
        if found and not self.is_watched:
            self.is_watched = True
            nursery.start_soon(self._ring_at_end_of, found)
        return found

    async def stop(self, shim: Mapping[str, Any], grace: float) -> Sequence[Mapping[str, Any]]:
        """Stop all that there is, with `grace` seconds until KILL; give what even that didn't end."""
        stop = partial(survivors.stop, self._task, shim, grace=grace)
        return await trio.to_thread.run_sync(stop, abandon_on_cancel=True)

    async def _ring_at_end_of(self, processes: Sequence[Mapping[str, Any]]) -> None:
        for each in processes:
            await _wait_gone(each["pid"], each["start"])
        self.is_watched = False
        self._ring()


async def _wait_gone(pid: int, start: int) -> None:
    pidfd: int | None = None
    while pidfd is None and tree.is_alive(pid, start):
        try:
            pidfd = tree.open_process(pid, start)
        except OSError:  # no descriptor is left
            await trio.sleep(RETRY_SECONDS)
    if pidfd is not None:
        try:
            await trio.lowlevel.wait_readable(pidfd)
        finally:
            os.close(pidfd)
