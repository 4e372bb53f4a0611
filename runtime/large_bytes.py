"""Large byte strings between a host and its worker: copied once, into memory that the other side maps.

Of a message's arguments, and of a reply, those of `LARGE_BYTES` and more go into one file in memory. It is sealed, so
nobody changes or shortens it from then on, and its descriptor goes with the message, in which None stands in their
places. They arrive as read-only memoryviews of the mapping, which lasts as long as one of them. What lies deeper in an
argument or a reply is a part of its frame like all else.
"""

from __future__ import annotations

import array
import fcntl
import mmap
import os
import socket
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from .frames import FrameError

LARGE_BYTES = 1024 * 1024
"""From this size on it costs less to hand memory over than to copy."""

ANCILLARY_BYTES = socket.CMSG_SPACE(array.array("i", [0]).itemsize)
"""Room for the one descriptor that a message may come with."""

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

Place: TypeAlias = list[Any]
"""Where one belongs, and where it lies: an argument's number or keyword, its start, and its length in bytes."""


class Memory:
    """A file in memory; it is closed with this object, and lives on where it is mapped."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)


class Parcel(NamedTuple):
    """A frame on its way, and the memory that goes with it."""

    frame: bytes
    memory: Memory | None = None


class Slimmed(NamedTuple):
    """Arguments without the large byte strings, the places of these, and they themselves, which are `size` bytes."""

    arguments: list[Any]
    keywords: dict[str, Any]
    places: list[Place]
    large: list[memoryview]
    size: int

    def copied(self) -> Memory | None:
        """Copy the large byte strings into memory of their own; None if there are none.

        Raises OSError: There is no memory, or no descriptor is left.
        """
        if not self.large:
            return None
        memory = new_memory()
        self.copy_into(memory)
        return memory

    def copy_into(self, memory: Memory) -> None:
        """Copy them into memory that nothing is in, and seal it. Raises OSError: It doesn't hold so much."""
        for view in self.large:
            rest = view
            while rest:
                rest = rest[os.write(memory.descriptor, rest) :]
        fcntl.fcntl(memory.descriptor, fcntl.F_ADD_SEALS, _SEALS)


def new_memory() -> Memory:
    """Make memory that can be sealed. Raises OSError: No descriptor is left."""
    return Memory(os.memfd_create("large bytes", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))


def take_out(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Slimmed:
    """Part the large byte strings from the rest; what was given isn't changed, and nothing is copied yet."""
    places: list[Place] = []
    large: list[memoryview] = []
    slim_arguments, slim_keywords = list(arguments), dict(keywords)
    size = _take_out(slim_arguments, enumerate(arguments), places, large, 0)
    size = _take_out(slim_keywords, keywords.items(), places, large, size)
    return Slimmed(slim_arguments, slim_keywords, places, large, size)


def put_back(arguments: list[Any], keywords: dict[str, Any], places: Sequence[Place], memories: deque[Memory]) -> None:
    """Put the large byte strings into their places again, mapped from the first of the memories that have come.

    Raises:
        FrameError: None came, it could still be changed, or the places aren't in it.
    """
    if not memories:
        raise FrameError("a message tells of memory that didn't come with it")
    memory = memories.popleft()
    size = os.fstat(memory.descriptor).st_size
    if fcntl.fcntl(memory.descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
        raise FrameError("memory that came with a message isn't sealed")
    for _, start, length in places:
        if not 0 <= start < start + length <= size:
            raise FrameError(f"{length:,} bytes from {start:,} on aren't in memory of {size:,}")
    mapped = memoryview(mmap.mmap(memory.descriptor, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ))
    for key, start, length in places:
        target: Any = arguments if isinstance(key, int) else keywords
        target[key] = mapped[start : start + length]


def memories_in(ancillary: Iterable[tuple[int, int, bytes]]) -> list[Memory]:
    """Take over the descriptors that came with a piece of a stream."""
    found: list[Memory] = []
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers = array.array("i")
            numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
            found += map(Memory, numbers)
    return found


def with_memory(memory: Memory) -> list[tuple[int, int, bytes]]:
    """Give what is sent beside the first piece of a frame for its memory to go with it."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory.descriptor]).tobytes())]


def _take_out(
    slim: Any, values: Iterable[tuple[Any, Any]], places: list[Place], found: list[memoryview], size: int
) -> int:
    for key, value in values:
        if isinstance(value, bytes | bytearray | memoryview):
            view = memoryview(value)
            if view.nbytes >= LARGE_BYTES and view.c_contiguous:
                slim[key] = None
                places.append([key, size, view.nbytes])
                found.append(view.cast("B"))
                size += view.nbytes
    return size
