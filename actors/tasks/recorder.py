"""The node's way to the writer: records of tasks go there, and are durable when they have come back.

A recorder outlives any number of writers: what isn't answered is sent again to the next one, and as each record is
stored once for its key, twice is once. Runs in the node, where the store is the working directory.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio
from anyio.abc import TaskStatus

from turnkeeper.storage.errors import StorageError
from turnkeeper.storage.requests import Appended, Post

from ..reads import StoreReads
from .records import Notice


class Recorder:
    """Records what becomes of tasks. `reads` reads the store that the writer serves; `path` is its directory."""

    def __init__(self, path: str = ".") -> None:
        self.reads = StoreReads(path)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Talk to whichever process is the writer, until cancelled. Started when the first one has greeted."""
        raise NotImplementedError

    async def record(self, posts: Sequence[Post], notices: Sequence[Notice] = ()) -> list[Appended | StorageError]:
        """Store posts of tasks, and notices, all in one commit; give one result for each, the posts' first.

        What is refused, as a notice for a deleted session, leaves the rest alone. Waits as long as there is no writer.
        Cancelled, it may be stored or not; to record the same again is no harm.
        """
        raise NotImplementedError
