"""The store's lock: an open-file-description lock on store.json.

It belongs to the open file, not to a process: a child that inherits the descriptor holds it too, and the kernel
frees it only when the last copy is closed and the last system call on it has returned. So "free" means that nobody
can still write. Everyone but the holder only *asks*; asking takes nothing. Standard library only: a node's candidate
takes this lock before it imports anything else.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys

_LINUX = sys.platform == "linux"
# <asm-generic/fcntl.h>; macOS has the same commands under other numbers (<sys/fcntl.h>).
_F_OFD_GETLK = 36 if _LINUX else 92
_F_OFD_SETLK = 37 if _LINUX else 90
# struct flock: Linux l_type, l_whence, l_start, l_len, l_pid; macOS l_start, l_len, l_pid, l_type, l_whence.
_FLOCK = "hhqqi4x" if _LINUX else "qqihh"


def take(descriptor: int) -> bool:
    """Take the lock if nobody has it, without waiting; `descriptor` must be open for writing."""
    try:
        fcntl.fcntl(descriptor, _F_OFD_SETLK, _request(fcntl.F_WRLCK))
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES: POSIX allows both
        return False
    return True


def release(descriptor: int) -> None:
    """Give the lock back, for every holder of this open file."""
    fcntl.fcntl(descriptor, _F_OFD_SETLK, _request(fcntl.F_UNLCK))


def is_held(descriptor: int) -> bool:
    """Say whether another open file holds the lock. Takes nothing; a read-only descriptor will do."""
    answer = fcntl.fcntl(descriptor, _F_OFD_GETLK, _request(fcntl.F_WRLCK))
    return _kind(answer) != fcntl.F_UNLCK


def store_is_held(root: str) -> bool:
    """Say whether the store at `root` is being served; False where there is no store."""
    try:
        descriptor = os.open(f"{root}/store.json", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return is_held(descriptor)
    finally:
        os.close(descriptor)


def _request(kind: int) -> bytes:
    """Make a struct flock for the whole file."""
    if _LINUX:
        return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)
    return struct.pack(_FLOCK, 0, 0, 0, kind, os.SEEK_SET)


def _kind(answer: bytes) -> int:
    fields = struct.unpack(_FLOCK, answer)
    return int(fields[0] if _LINUX else fields[3])
