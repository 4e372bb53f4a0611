"""The files of one task's directory, `tasks/<id>/`: their names, how they are written and read, and the task's lock.

    spec.json     what to run: id, argv, program, cwd, umask, timeout, grace, limit, owner, boot
    env.json      the command's whole environment; gone once the command runs, or could not be started
    lock          an open-file-description lock: who runs the task holds it, from before run.json until its end stands
    run.json      the shim {boot, pid, start, pidns}, before the command starts; "leader" {pid, start, time} after that
    control.json  the last order to the shim
    output.log    the command's stdout and stderr
    leader.json   the end of the command itself, while processes of its are left
    exit.json     the end, once nothing is left; or {"lost": why}
    *.tmp         what becomes one of these by a rename; full of spaces where a full disk must lose nothing

The directory is 0700, its files are 0600. A file that is there is whole, but for one that another program damaged. Text
is JSON in ASCII; bytes that are no UTF-8 stand in it as lone surrogates, so any argument survives.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import struct
from collections.abc import Mapping
from typing import Any

SPEC = "spec.json"
ENVIRONMENT = "env.json"
LOCK = "lock"
RUN = "run.json"
CONTROL = "control.json"
OUTPUT = "output.log"
LEADER = "leader.json"
EXIT = "exit.json"
TEMPORARY = ".tmp"

MARK = "TURNKEEPER_TASK"
SHIM_MARK = "TURNKEEPER_SHIM"
"""The variables that name the task and its shim in the environment of all its processes; a task's id alone may be that
of another store's task too, as it follows from a key."""

KEPT_BYTES = 4096
"""The space that is kept for a file that must not be lost to a full disk."""

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700

# <asm-generic/fcntl.h>, and struct flock: l_type, l_whence, l_start, l_len, l_pid.
_F_OFD_GETLK = 36
_F_OFD_SETLK = 37
_F_OFD_SETLKW = 38
_FLOCK = "hhqqi4x"
_WRITE_LOCK = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_READ_BYTES = 64 * 1024
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)  # missing, or a link or a socket
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def marks(task: str, shim: Mapping[str, Any]) -> dict[str, str]:
    """Give the variables that all processes of the task below this shim have."""
    return {MARK: task, SHIM_MARK: f"{shim['pid']}.{shim['start']}"}


def make(tasks: str, task: str, spec: Mapping[str, Any], environment: Mapping[Any, Any]) -> str:
    """Make the task's directory below `tasks`, with all that its shim needs; return its path.

    Bytes may stand wherever text does. What a maker that died began is finished. Once the task was handed to a spawner
    this must not be called again: it would write the environment anew, which nobody removes then.

    Raises:
        OSError: A file can't be made or the disk is full. What was made stands; `discard` removes it.
    """
    path = f"{tasks}/{task}"
    os.makedirs(path, DIRECTORY_MODE, exist_ok=True)
    os.close(os.open(f"{path}/{LOCK}", _WRITE, FILE_MODE))
    for name in (EXIT, LEADER):
        keep_space(f"{path}/{name}")
    write_whole(f"{path}/{ENVIRONMENT}", {as_text(name): as_text(value) for name, value in environment.items()})
    write_whole(f"{path}/{SPEC}", {**spec, "id": task, "boot": boot_id()})
    return path


def discard(path: str) -> bool:
    """Remove the directory of a task that nobody knows; False if a shim has it.

    Raises:
        OSError: It can't be removed.
    """
    try:
        lock = open_lock(path)
    except FileNotFoundError:
        lock = None
    try:
        if lock is not None and not take_lock(lock):
            return False
        for name in os.listdir(path):
            os.unlink(f"{path}/{name}")
        os.rmdir(path)
    except FileNotFoundError:
        pass
    finally:
        if lock is not None:
            os.close(lock)
    return True


def write_whole(path: str, content: Mapping[str, Any], *, sync: bool = False) -> None:
    """Write one JSON object into a file that afterwards has all of it, or what it had before.

    With `sync` it survives the machine's death, too. Raises OSError.
    """
    _write(path + TEMPORARY, _encode(content), sync=sync)
    os.rename(path + TEMPORARY, path)


def keep_space(path: str) -> None:
    """Take the space that a later `write_kept` needs. Raises OSError."""
    _write(path + TEMPORARY, b" " * KEPT_BYTES)


def write_kept(path: str, content: Mapping[str, Any], *, sync: bool = False) -> None:
    """Write one JSON object into the space that was kept for the file, which afterwards has all of it.

    With `sync` it survives the machine's death, too, as far as the disk does what it is told.

    Raises:
        OSError: It can't be written, being longer than `KEPT_BYTES` on a full disk say; or it could, but only under
            its temporary name, where `looking` finds an end.
    """
    temporary = os.open(path + TEMPORARY, _WRITE, FILE_MODE)
    try:
        # Overwritten, then cut: cut first, the space would be anybody's.
        line = _encode(content)
        _write_all(temporary, line)
        os.ftruncate(temporary, len(line))
        if sync:
            with contextlib.suppress(OSError):
                os.fdatasync(temporary)
    finally:
        os.close(temporary)
    os.rename(path + TEMPORARY, path)


def write_exit(path: str, end: Mapping[str, Any]) -> None:
    """Write the last end of the task whose directory is `path`, and remove what was only kept until then.

    Raises:
        OSError: See `write_kept`.
    """
    try:
        write_kept(f"{path}/{EXIT}", end, sync=True)
    finally:
        for name in (ENVIRONMENT, RUN + TEMPORARY, LEADER + TEMPORARY):
            with contextlib.suppress(OSError):
                os.unlink(f"{path}/{name}")


def read_map(path: str) -> dict[str, Any] | None:
    """Read a file's JSON object; None if the file is missing or holds no such thing.

    Raises:
        OSError: It is there and can't be read.
    """
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return None
    try:
        content = _read_all(descriptor).decode("ascii")
        found, end = _DECODER.raw_decode(content)
    except (ValueError, RecursionError, IsADirectoryError):
        return None
    finally:
        os.close(descriptor)
    return found if isinstance(found, dict) and not content[end:].strip() else None


def as_text(text: str | bytes) -> str:
    """Give bytes as text that `as_bytes` turns back into the same bytes, whatever they are and whatever the locale."""
    return text if isinstance(text, str) else text.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """Undo `as_text`. Raises ValueError for text that can't have come from it."""
    return text.encode("utf-8", "surrogateescape")


def boot_id() -> str:
    """Return what tells this boot of this machine from every other."""
    global _boot
    if _boot is None:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            _boot = file.read().strip()
    return _boot


_boot: str | None = None


def open_lock(path: str) -> int:
    """Open the lock of the task whose directory is `path`; the descriptor's last close gives the lock back.

    Raises:
        FileNotFoundError: The lock or the directory is gone.
        OSError: It can't be opened.
    """
    return os.open(f"{path}/{LOCK}", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)


def take_lock(lock: int, *, wait: bool = False) -> bool:
    """Take the lock: at once if it is free, or by waiting as long as another has it. False if it isn't had."""
    try:
        fcntl.fcntl(lock, _F_OFD_SETLKW if wait else _F_OFD_SETLK, _WRITE_LOCK)
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES: POSIX allows both
        return False
    return True


def is_lock_held(path: str) -> bool | None:
    """Say whether somebody holds the task's lock, taking nothing; None if the lock or the directory is gone."""
    try:
        lock = os.open(f"{path}/{LOCK}", _READ)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        answer = fcntl.fcntl(lock, _F_OFD_GETLK, _WRITE_LOCK)
        return int(struct.unpack(_FLOCK, answer)[0]) != fcntl.F_UNLCK
    finally:
        os.close(lock)


# Made once: what is made before the fork is shared by all shims.
_ENCODER = json.JSONEncoder(default=as_text, allow_nan=False)
_DECODER = json.JSONDecoder()


def _encode(content: Mapping[str, Any]) -> bytes:
    return _ENCODER.encode(content).encode("ascii") + b"\n"


def _read_all(descriptor: int) -> bytes:
    content = b""
    while piece := os.read(descriptor, _READ_BYTES):
        content += piece
    return content


def _write(path: str, content: bytes, *, sync: bool = False) -> None:
    descriptor = os.open(path, _WRITE | os.O_TRUNC, FILE_MODE)
    try:
        _write_all(descriptor, content)
        if sync:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
