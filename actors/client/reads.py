"""Reads of a store's files in a thread, so that a host's loop never waits for a disk.

The reader belongs to the index that the writer's last hello named, and is opened anew after each hello. One call runs
at a time; each is short, as a page is. Nothing here needs ownership of anything, or changes anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from turnkeeper.storage.backend import BackendReader, open_reader
from turnkeeper.storage.errors import Failed

Answer = TypeVar("Answer")


class StoreReads:
    """The reader of the store at `root` for one client."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._index: str | None = None
        self._hellos = 0
        self._reader: BackendReader | None = None
        self._reader_hello = 0
        self._turn = anyio.Lock()

    def serve(self, index: str) -> None:
        """Take note of a new writer's hello: it serves this index."""
        self._index = index
        self._hellos += 1

    async def call(self, function: Callable[[BackendReader], Answer]) -> Answer:
        """Call the function with a reader, in a thread. Cancelling waits for its end; what it found is then dropped.

        Raises what reading raises.
        """
        async with self._turn:
            while True:
                hello = self._hellos
                try:
                    return await anyio.to_thread.run_sync(self._call_in_thread, function, hello)
                except Failed:
                    # The index went away under us: its writer has died, and the next one's hello names another.
                    if hello == self._hellos:
                        raise

    async def aclose(self) -> None:
        """Close the reader; a later call would open another."""
        async with self._turn:
            reader, self._reader = self._reader, None
            if reader is not None:
                await anyio.to_thread.run_sync(reader.close)

    def _call_in_thread(self, function: Callable[[BackendReader], Answer], hello: int) -> Answer:
        if self._reader is None or self._reader_hello != hello:
            reader, self._reader = self._reader, None
            if reader is not None:
                reader.close()
            self._reader = open_reader(self._root, self._index)
            self._reader_hello = hello
        return function(self._reader)
