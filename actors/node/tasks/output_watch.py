"""What the node sees of one task's output: how long it is, how far the task is, and for how long it has been silent.

A look is one stat; what has grown is read, up to a limit, and forgotten once its progress is known. Nothing is kept
open, and nothing here depends on what the output says but the progress, which is advice. Part of the node.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final

from ...tasks.progress import ProgressReader
from .stall import StallWatch

READ_BYTES_MAX: Final = 1024 * 1024
"""What one look reads at most. Of output that grew by more only the end is read, ..."""

END_BYTES: Final = 64 * 1024
"""... and that much of it; so is output that is seen for the first time."""


class OutputWatch:
    """The output in the file at `path`, which may not be there.

    `stall` is after how many seconds of silence that is told, None if never. `now` is the time on a clock that only
    goes on; for how long it has been silent before is read off the file.
    """

    def __init__(self, path: str, stall: float | None, now: float) -> None:
        self.size = 0
        self._path = path
        self._written: int | None = None
        self._read_to = 0
        self._progress = ProgressReader()
        self._stall: StallWatch | None = None
        if stall is not None:
            try:
                found = os.stat(path)
            except OSError:
                self._stall = StallWatch(stall, now)
            else:
                self._stall = StallWatch(stall, now - max(0.0, time.time() - found.st_mtime), found.st_size)

    def look(self, now: float) -> float | None:
        """Look at it; give for how many seconds it has been silent if that is to be told now."""
        try:
            found = os.stat(self._path)
        except OSError:
            pass  # not begun, or deleted: there is nothing new to see
        else:
            if (found.st_size, found.st_mtime_ns) != (self.size, self._written):
                is_other = found.st_size <= self.size and self._written is not None
                self.size, self._written = found.st_size, found.st_mtime_ns
                self._read(is_other=is_other)
        return None if self._stall is None else self._stall.look(now, self.size)

    def progress(self, *, ended: bool = False) -> dict[str, Any] | None:
        """Give how far the task is, as far as it says."""
        return self._progress.value(ended=ended)

    def _read(self, *, is_other: bool) -> None:
        """Read what has grown since the last look, or the end where that is too much, or where all is other content."""
        begin = self._read_to
        if is_other or self.size - begin > READ_BYTES_MAX:
            begin = max(0, self.size - END_BYTES)
            self._progress.skip()
            if begin == 0:
                self._progress.feed(b"\n")  # a line begins here
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                content = os.pread(file, self.size - begin, begin)
            finally:
                os.close(file)
        except OSError:
            content = b""
        self._read_to = begin + len(content)
        self._progress.feed(content)
