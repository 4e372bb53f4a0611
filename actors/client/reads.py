"""Reads of a store's files in a thread, so that a host's loop never waits for a disk.

The reader belongs to the index that the writer's last hello named, and is opened anew after each hello. One read runs
at a time; each is short, as a page is. Some of those that wait for their turn are done on the same way to the thread: a
hundred followers of one event are a few ways, and not a hundred. Nothing here needs ownership of anything, or changes
anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread

from turnkeeper.storage.backend import BackendReader, open_reader
from turnkeeper.storage.errors import Failed

Answer = TypeVar("Answer")

READS_A_WAY: Final = 8
"""Reads that are done before those who asked for them get their answers: a way costs as much as some short ones."""


class _Read:
    """One read: what is to be called, for the hello that was the last one then; and what came of it."""

    __slots__ = ("answer", "error", "function", "hello", "is_done")

    def __init__(self, function: Callable[[BackendReader], Any], hello: int) -> None:
        self.function = function
        self.hello = hello
        self.answer: Any = None
        self.error: BaseException | None = None
        self.is_done = False


class StoreReads:
    """The reader of the store at `root` for one client."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._index: str | None = None
        self._hellos = 0
        self._reader: BackendReader | None = None
        self._reader_hello = 0
        self._turn = anyio.Lock()
        self._waiting: deque[_Read] = deque()
        self._way_ended = anyio.Event()

    def serve(self, index: str) -> None:
        """Take note of a new writer's hello: it serves this index."""
        self._index = index
        self._hellos += 1

    async def call(self, function: Callable[[BackendReader], Answer]) -> Answer:
        """Call the function with a reader, in a thread. Cancelling waits for its end; what it found is then dropped.

        Raises what reading raises.
        """
        while True:
            read = _Read(function, self._hellos)
            self._waiting.append(read)
            try:
                async with self._turn:
                    while not read.is_done:
                        await self._go()
            finally:
                if not read.is_done:
                    await self._withdraw(read)
            if read.error is None:
                answer: Answer = read.answer
                return answer
            # The index went away under us: its writer has died, and the next one's hello names another.
            if not isinstance(read.error, Failed) or read.hello == self._hellos:
                raise read.error

    async def aclose(self) -> None:
        """Close the reader; a later call would open another."""
        async with self._turn:
            reader, self._reader = self._reader, None
            if reader is not None:
                await anyio.to_thread.run_sync(reader.close)

    async def _go(self) -> None:
        """Go to the thread once, in one's turn, and do what waits there."""
        self._way_ended = ended = anyio.Event()
        try:
            await anyio.to_thread.run_sync(self._read_in_thread, self._hellos)
        finally:
            ended.set()

    async def _withdraw(self, read: _Read) -> None:
        """Take a read back whose caller was cancelled; where the thread has begun it, wait for its end."""
        with anyio.CancelScope(shield=True):
            while not read.is_done:
                try:
                    self._waiting.remove(read)
                except ValueError:
                    await self._way_ended.wait()
                else:
                    return

    def _read_in_thread(self, hello: int) -> None:
        for _ in range(READS_A_WAY):
            try:
                read = self._waiting.popleft()
            except IndexError:  # asking first whether there is one wouldn't help: the loop may take the last one back
                return
            if read.hello > hello:
                # It was asked for behind a hello that came meanwhile, and this reader may not know what that one does.
                self._waiting.appendleft(read)
                return
            self._answer(read, hello)

    def _answer(self, read: _Read, hello: int) -> None:
        try:
            read.answer = read.function(self._reader_of(hello))
        except BaseException as error:
            read.error = error
        read.is_done = True

    def _reader_of(self, hello: int) -> BackendReader:
        if self._reader is None or self._reader_hello != hello:
            reader, self._reader = self._reader, None
            if reader is not None:
                reader.close()
            self._reader = open_reader(self._root, self._index)
            self._reader_hello = hello
        return self._reader
