"""Following a task's output as it grows, whatever the task does to its file, until the task has ended.

A task can empty its output's file, rename it and begin another, or remove it, all while somebody follows. So two files
are held open at most: the one that stood there first, into which the command itself goes on writing wherever it is
moved to, and the one that stands there now. What is shorter than what was read of it, or has other bytes in front of
the place that was reached, was emptied, and is read from its beginning. Each of that is said once, in a piece's note.

The file is looked at by time, each GROWING_SECONDS while it grows and for a while after, else each IDLE_SECONDS. A look
is two calls of `stat`, which cost some microseconds. Being told of writes instead would need a watch for each file and
each directory, which comes late or not at all where the file lies on another machine's or a layered file system; the
node could tell, but output goes on growing while no node lives. And what is truncated must be looked at anyway.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import anyio.lowlevel
import anyio.to_thread

from .output import Output, open_output, unreadable

Ended: TypeAlias = Callable[[float], Awaitable[bool]]
"""Waits until the task has ended, but no longer than so many seconds; says whether it has. Called again and again."""

GROWING_SECONDS: Final = 0.05
IDLE_SECONDS: Final = 0.25
GROWING_LOOKS: Final = 10
"""How many looks without anything new it takes until the next one comes later."""

PIECE_BYTES_MAX: Final = 256 * 1024

_FRESH_BYTES: Final = 64 * 1024
"""What was written this lately is in memory, and read in the loop; more may have to come from the disk."""

_MARK_BYTES: Final = 64


class OutputFollowing:
    """An iterator over the pieces of the output at `path`, from `start` on until the task has ended and all is read.

    For one task at a time. Cancelled in the middle it has lost nothing: the next `__anext__` goes on where it was.
    What lies behind `limit` bytes is given only when the task has ended, as it is about to be cut off. A piece without
    bytes has a note. `aclose` lets go of the files.
    """

    def __init__(self, path: str, ended: Ended, *, start: int = 0, limit: int | None = None) -> None:
        self._path = path
        self._ended = ended
        self._start = start
        self._limit = limit
        self._files: list[_File] = []
        self._notes: list[str] = []
        self._said: str | None = None
        self._is_over = False
        self._looks = 0
        self._is_at_end = False

    def __aiter__(self) -> OutputFollowing:
        return self

    async def __anext__(self) -> Output:
        while True:
            if self._is_at_end and not self._is_over:
                seconds = GROWING_SECONDS if self._looks < GROWING_LOOKS else IDLE_SECONDS
                if await self._ended(seconds):
                    self._end()
            else:
                await anyio.lowlevel.checkpoint()
            piece = await self._next_piece()
            self._is_at_end = all(file.place >= file.end for file in self._files)
            if piece is not None:
                self._looks = 0
                return piece
            self._looks += 1
            if self._is_over:
                await self.aclose()
                raise StopAsyncIteration

    async def aclose(self) -> None:
        """Let go of the files."""
        self._close()

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        while self._files:
            self._files.pop().close()

    def _end(self) -> None:
        """Take note that the task has ended: what is there now is all, though survivors may write more."""
        self._is_over = True
        self._find()
        for file in self._files:
            file.stop = file.size()

    async def _next_piece(self) -> Output | None:
        piece = await self._read()
        # Only now, as a file that takes the place of another can be let go of when all of it is read.
        if piece is None and not self._is_over and self._find():
            piece = await self._read()
        if piece is not None or not self._notes:
            return piece
        place = self._files[-1].place if self._files else self._start
        return Output(b"", place, place, False, self._note())

    async def _read(self) -> Output | None:
        """Look at all files, and read the next piece of the first one that has more; None if none has."""
        for file in self._files:
            self._look(file)
        for file in self._files:
            start = file.place
            size = min(file.end - start, PIECE_BYTES_MAX)
            if size <= 0:
                continue
            if file.end - start > _FRESH_BYTES:
                data = await anyio.to_thread.run_sync(file.read, size)
            else:
                data = file.read(size)
            if data:
                return Output(data, start, file.place, file.place < file.end, self._note())
            file.end = start  # it was emptied this very moment
        return None

    def _look(self, file: _File) -> None:
        """See where a file ends by now, as far as that counts."""
        if file.was_emptied():
            self._notes.append("the output was truncated, and is read from its beginning")
        file.end = file.size() if file.stop is None else file.stop
        if self._limit is not None and file is self._files[0] and not self._is_over:
            file.end = min(file.end, self._limit)

    def _note(self) -> str | None:
        note = "; ".join(self._notes) or None
        self._notes.clear()
        return note

    def _find(self) -> bool:
        """Look which file stands at the path, and open it if it is another one. Says whether there is one more."""
        try:
            found = os.stat(self._path, follow_symlinks=False)
            if any(file.is_same(found) for file in self._files):
                self._said = None
                return False
            descriptor = open_output(self._path)
        except OSError as error:
            if self._files or self._is_over:
                self._say(unreadable(error))
            return False
        file = _File(descriptor, 0 if self._files else self._start)
        if self._files:
            self._say("another file stands in the output's place, and is read, too")
            while len(self._files) > 1:
                self._files.pop().close()
        self._said = None
        self._files.append(file)
        return True

    def _say(self, note: str) -> None:
        """Say it with the next piece, but not again and again."""
        if note != self._said:
            self._said = note
            self._notes.append(note)


class _File:
    """An open file: the place up to which it was read, and its end as it was last seen; `stop` is its last one."""

    def __init__(self, descriptor: int, place: int) -> None:
        self.place = place
        self.end = place
        self.stop: int | None = None
        self._descriptor = descriptor
        self._mark = b""
        found = os.fstat(descriptor)
        self._identity = found.st_dev, found.st_ino
        self._seen: tuple[int, int] | None = None

    def is_same(self, found: os.stat_result) -> bool:
        return (found.st_dev, found.st_ino) == self._identity

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def was_emptied(self) -> bool:
        """Say whether the file was emptied since the last look; it is read from its beginning then."""
        found = os.fstat(self._descriptor)
        seen = found.st_size, found.st_mtime_ns
        if seen == self._seen:
            return False
        self._seen = seen
        # Emptied and filled again between two looks it can be as long as before: then other bytes stand there.
        if found.st_size >= self.place and self._bytes_before_place() == self._mark:
            return False
        self.place = 0
        self._mark = b""
        if self.stop is not None:
            self.stop = found.st_size
        return True

    def read(self, size: int) -> bytes:
        data = os.pread(self._descriptor, size, self.place)
        self.place += len(data)
        self._mark = (self._mark + data)[-_MARK_BYTES:]
        return data

    def close(self) -> None:
        os.close(self._descriptor)

    def _bytes_before_place(self) -> bytes:
        return os.pread(self._descriptor, len(self._mark), self.place - len(self._mark))
