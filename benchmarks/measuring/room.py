"""Whether there is room for what a benchmark is about to do, told before it is done.

Room is space on the disk, memory, and a place that doesn't belong to somebody's store.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from turnkeeper.storage.store import STORE_FILE

from .machine import IN_MEMORY, file_system

SPARE_BYTES: Final = 512 * 1024 * 1024
"""What has to be left on the disk beside what a benchmark writes."""

MEMORY_FACTS = Path("/proc/meminfo")
MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
MEMORY_USED = Path("/sys/fs/cgroup/memory.current")


class PlaceHoldsStore(Exception):
    """A benchmark was to fill a directory that belongs to a store; nothing was done."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def require_no_store(directory: Path) -> None:
    """Raise PlaceHoldsStore if the directory, which need not be there, is a store or lies in one."""
    place = directory.resolve()
    for each in (place, *place.parents):
        if (each / STORE_FILE).exists():
            raise PlaceHoldsStore(str(each))


def free_bytes(directory: Path) -> int:
    """Give how many bytes of the directory's disk are free to this user.

    On a file system in memory these aren't more than memory has, less `SPARE_BYTES` for whoever measures there.
    """
    found = os.statvfs(directory)
    free = found.f_bavail * found.f_frsize
    memory = free_memory_bytes() if file_system(directory) in IN_MEMORY else None
    return free if memory is None else min(free, max(0, memory - SPARE_BYTES))


def require_space(directory: Path, size: int) -> None:
    """Raise OSError with ENOSPC if so many bytes don't fit on the directory's disk."""
    free = free_bytes(directory)
    if free < size + SPARE_BYTES:
        room = f"this takes {(size + SPARE_BYTES) / 1e9:,.1f} GB of disk and {free / 1e9:,.1f} GB are free"
        raise OSError(errno.ENOSPC, f"{room}; make space, measure less of it, or elsewhere with --out", str(directory))


def free_memory_bytes() -> int | None:
    """Give how much memory is left to processes, of the system's and of this container's; None if nothing tells."""
    found = []
    for line in _lines(MEMORY_FACTS):
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) * 1024)
    limit, used = _lines(MEMORY_LIMIT), _lines(MEMORY_USED)
    if limit and used and limit[0].isdecimal():
        found.append(int(limit[0]) - int(used[0]))
    return min(found, default=None)


def require_memory(size: int) -> None:
    """Raise OSError with ENOMEM if there is less memory than so much, where that can be told."""
    free = free_memory_bytes()
    if free is not None and free < size:
        room = f"this takes {size / 1e9:,.1f} GB of memory and {free / 1e9:,.1f} GB are free"
        raise OSError(errno.ENOMEM, f"{room}; end other programs, or measure less of it with --quick", "memory")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
