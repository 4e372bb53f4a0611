"""A task's output as it lies in its file: pieces of files of any size, read without the rest.

The output is a plain file that the task itself writes, so the task can do to it what it likes: remove it, put another
file or a directory in its place, take the rights to read it. None of that is an error of whoever looks: a piece says in
its `note` what became of the file. Only synchronous reading; following it as it grows is `output_following`'s.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import Final

from turnkeeper.runtime.tasks.directory import SPEC, read_map

from .rendering import GOES_UP, render

OUTPUT_BYTES_MAX: Final = 1024 * 1024
"""How much one look gives at most; the rest is asked for from its `end` on."""

_BLOCK_BYTES: Final = 64 * 1024
"""Read at once when looking back; and before the last lines, to see what was redrawn there."""


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of a task's output: the bytes `data`, which stand in its file from `offset` up to `end`.

    `truncated` says that more was asked for, or stands behind it, than one piece holds. `note` is a line for people
    about what became of the file, None if it is as it should be.
    """

    data: bytes
    offset: int
    end: int
    truncated: bool
    note: str | None = None
    _redrawn: str | None = field(default=None, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The piece as a terminal would leave it: without escapes, and of redrawn lines the last state only."""
        return render(self.data) if self._redrawn is None else self._redrawn


def read_output(path: str, *, start: int = 0, head: int | None = None, last: int | None = None) -> Output:
    """Give a piece of the output at `path`: its first `head` lines from `start` on, its `last` lines, or what fits.

    The text of the last lines is that of the last lines on a terminal, also where a program goes up to redraw them.
    Never raises for what became of the file. Without `head` and `last` the piece ends where OUTPUT_BYTES_MAX ends.
    Raises ValueError where `head` and `last` are both given, or a number is negative.
    """
    if head is not None and last is not None:
        raise ValueError("ask for the first lines or for the last ones, not for both")
    if min(start, head or 0, last or 0) < 0:
        raise ValueError("a place in the output, or a number of its lines, can't be negative")
    try:
        return _read(path, start, head, last)
    except OSError as error:
        return Output(b"", start, start, False, unreadable(error))


def read_end(path: str, size: int) -> Output:
    """Give the last bytes of the output, at most so many. Never raises, as `read_output`."""
    try:
        descriptor = open_output(path)
    except OSError as error:
        return Output(b"", 0, 0, False, unreadable(error))
    try:
        end = os.fstat(descriptor).st_size
        start = max(0, end - size)
        data = _read_range(descriptor, start, end)
        return Output(data, start, start + len(data), start > 0)
    finally:
        os.close(descriptor)


def unreadable(error: OSError) -> str:
    """Say for people why the file of the output can't be read."""
    if isinstance(error, FileNotFoundError):
        return "the output's file is not there"
    return f"the output's file can't be read ({error.strerror or type(error).__name__})"


def output_limit(path: str) -> int | None:
    """Give the size at which the output at `path` is cut, as its task was told; None if that can't be read any more."""
    try:
        limit = (read_map(f"{os.path.dirname(path)}/{SPEC}") or {}).get("limit")
    except OSError:
        return None
    return limit if isinstance(limit, int) else None


def open_output(path: str) -> int:
    """Open the file for reading and give its descriptor. Raises OSError, also for what is no plain file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(0, "it is no plain file any more", path)


def _read(path: str, start: int, head: int | None, last: int | None) -> Output:
    descriptor = open_output(path)
    try:
        size = os.fstat(descriptor).st_size
        if last is not None:
            begin = _start_of_last(descriptor, start, size, last)
            before = max(start, begin - _BLOCK_BYTES)
            data = _read_range(descriptor, before, size)
            redrawn = _last_lines(render(data), last) if GOES_UP.search(data) else None
            data = data[begin - before :]
            return Output(data, begin, begin + len(data), begin > start, None, redrawn)
        if start > size:
            return Output(b"", size, size, False, f"the output was truncated: it has {size:,} bytes")
        data = _read_range(descriptor, start, min(size, start + OUTPUT_BYTES_MAX))
        if head is not None:
            data = _first_lines(data, head)
        end = start + len(data)
        return Output(data, start, end, end < size)
    finally:
        os.close(descriptor)


def _read_range(descriptor: int, start: int, end: int) -> bytes:
    """Read what stands between two places, as much of it as is still there."""
    found = bytearray()
    while start + len(found) < end:
        block = os.pread(descriptor, end - start - len(found), start + len(found))
        if not block:
            break
        found += block
    return bytes(found)


def _first_lines(data: bytes, lines: int) -> bytes:
    end = 0
    for _ in range(lines):
        end = data.find(b"\n", end) + 1
        if end == 0:
            return data
    return data[:end]


def _last_lines(text: str, lines: int) -> str:
    split = text.split("\n")
    return "\n".join(split[-lines - (split[-1] == "") :]) if lines else ""


def _start_of_last(descriptor: int, start: int, end: int, lines: int) -> int:
    """Find where the last lines begin, looking back block by block; a newline at the very end begins no line."""
    lowest = max(start, end - OUTPUT_BYTES_MAX)
    if lines == 0:
        return end
    place = end
    is_last_byte = True
    while place > lowest:
        begin = max(lowest, place - _BLOCK_BYTES)
        block = _read_range(descriptor, begin, place)
        stop = len(block)
        if is_last_byte and block.endswith(b"\n"):
            stop -= 1
        is_last_byte = False
        while (found := block.rfind(b"\n", 0, stop)) >= 0:
            lines -= 1
            if lines == 0:
                return begin + found + 1
            stop = found
        place = begin
    return lowest
