"""The file that a command writes its output into: its size, its limit, and whether the disk was full.

The command writes without asking, so the limit is kept by looking. How long it may take until the next look follows
from the room that is left: nothing writes it full before, and a task with much room is hardly ever looked at. A file
that is over the limit is cut at every look, and ends with one line that says so. What the command would have written
with more space on the disk is nowhere; that it had none is known only if a look saw the disk full.
"""

from __future__ import annotations

import contextlib
import os

from . import directory

FASTEST_BYTES_PER_SECOND = 2 * 1024**3
"""What a disk is thought to take at most."""

GROWING_SECONDS = (0.05, 0.5)
IDLE_SECONDS = (0.5, 2.0)
"""The least and the most until the next look, if the last one found that the file grew, and if it did not."""

SPACE_BYTES_LOW = 64 * 1024**2
"""With less free space than this a disk may be full; which root, quotas and reserves tell only by a trial."""

PROBE_BYTES = 64 * 1024
"""A disk on which this can't be had is full: what fills it up may leave some blocks, and files of ours come and go."""


class Output:
    """The output of the task whose directory is the present one."""

    def __init__(self, limit: int) -> None:
        """Make the file, or go on in the one that is there. Raises OSError."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self.file = os.open(directory.OUTPUT, flags, directory.FILE_MODE)
        self.size = -1  # until the first look: what begins is taken to grow
        self.is_cut = False
        self._disk_was_full = False
        self._limit = limit
        self._last_line = f"\n[turnkeeper: cut here, at the output limit of {limit} bytes]\n".encode()

    def close(self) -> None:
        """Give the file up."""
        os.close(self.file)

    @property
    def lack(self) -> str | None:
        """Say why the file doesn't have all that the command wrote; None if, for all we know, it does."""
        if self.is_cut:
            return "cut"
        return "disk full" if self._disk_was_full else None

    def look(self) -> float:
        """Look at the size, cut what is over the limit, and say in how many seconds to look again."""
        size = os.fstat(self.file).st_size
        grew = size > self.size
        if size > self._limit + (len(self._last_line) if self.is_cut else 0):
            self._cut()
            size = os.fstat(self.file).st_size
        self.size = size
        self._disk_was_full = self._disk_was_full or _is_disk_full(self.file)
        least, most = GROWING_SECONDS if grew or self.is_cut else IDLE_SECONDS
        return min(max((self._limit - size) / FASTEST_BYTES_PER_SECOND, least), most)

    def _cut(self) -> None:
        self.is_cut = True
        # Between the two another line of the command's may slip in: the next look cuts it off.
        with contextlib.suppress(OSError):
            os.ftruncate(self.file, self._limit)
            os.write(self.file, self._last_line)


def _is_disk_full(file: int) -> bool:
    try:
        space = os.fstatvfs(file)
        if space.f_bavail * space.f_frsize >= SPACE_BYTES_LOW:
            return False
    except OSError:
        return False
    try:
        probe = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, directory.FILE_MODE)
    except OSError:
        return space.f_bavail == 0
    try:
        os.posix_fallocate(probe, 0, PROBE_BYTES)
    except OSError:
        return True
    finally:
        os.close(probe)
    return False
