"""The one seam between the journal and the file system: every byte that storage writes or syncs goes through here.

A `FileSystem` is rooted at a store directory and takes names relative to it. The journal's code asks it for nothing
that a simulated disk couldn't answer (whole writes at an offset, sync of a file, sync of a directory, rename without
replacing, cut, list, remove), which is what makes faults injectable. It keeps no state but the root, follows no
policy, and translates nothing: an `OSError` leaves it as it came.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
import sys
from functools import cache
from typing import Protocol

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
_FS_IOC_GETVERSION = 0x80087601  # <linux/fs.h>, for a long of 8 bytes


class FileSystem(Protocol):
    """What the journal needs of a disk. Handles are integers; paths are relative to the store."""

    def path(self, relative: str) -> str: ...
    def identity(self, path: str) -> tuple[int, int, int]: ...
    def open(self, path: str, *, write: bool = False, create: bool = False) -> int: ...
    def close(self, handle: int) -> None: ...
    def size(self, handle: int) -> int: ...
    def read(self, handle: int, offset: int, length: int) -> bytes: ...
    def prefetch(self, handle: int, offset: int, length: int) -> None: ...
    def write(self, handle: int, offset: int, content: bytes) -> None: ...
    def sync(self, handle: int) -> None: ...
    def allocate(self, path: str, offset: int, length: int) -> None: ...
    def truncate(self, handle: int, length: int) -> None: ...
    def sync_directory(self, path: str) -> None: ...
    def make_directory(self, path: str) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def exchange(self, one: str, other: str) -> None: ...
    def replace(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def names(self, path: str) -> list[str]: ...
    def exists(self, path: str) -> bool: ...
    def modified(self, path: str) -> float: ...
    def free_bytes(self) -> int: ...


class LocalFileSystem:
    """The real thing, by system calls.

    `root` may be any spelling of the directory, `.` in a process that has changed into the store, or
    `/proc/self/fd/N` in one that holds it open.
    """

    def __init__(self, root: str) -> None:
        self.root = root

    def path(self, relative: str) -> str:
        """Give the path of a name in the store, for the one part of it that is read by others: the index."""
        return f"{self.root}/{relative}"

    def identity(self, path: str) -> tuple[int, int, int]:
        """Give a file's device, inode, and the inode's generation (0 where the file system has none)."""
        descriptor = os.open(self.path(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            found = os.fstat(descriptor)
            generation = 0
            if sys.platform == "linux":
                with contextlib.suppress(OSError):
                    answer = fcntl.ioctl(descriptor, _FS_IOC_GETVERSION, b"\0" * 8)
                    generation = struct.unpack("<q", answer)[0] & 0xFFFFFFFF
            return found.st_dev, found.st_ino, generation
        finally:
            os.close(descriptor)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        """Open a file to read, or to read and write; `create` makes it and refuses one that is there."""
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_RDWR if write or create else os.O_RDONLY)
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        return os.open(self.path(path), flags, FILE_MODE)

    def close(self, handle: int) -> None:
        """Close a handle."""
        os.close(handle)

    def size(self, handle: int) -> int:
        """Give a file's length in bytes."""
        return os.fstat(handle).st_size

    def read(self, handle: int, offset: int, length: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file."""
        content = os.pread(handle, length, offset)
        if len(content) == length or not content:
            return content
        pieces = [content]
        done = len(content)
        while done < length and (content := os.pread(handle, length - done, offset + done)):
            pieces.append(content)
            done += len(content)
        return b"".join(pieces)

    def prefetch(self, handle: int, offset: int, length: int) -> None:
        """Ask the system to begin reading what will be read soon; without effect where it can't be asked."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle, offset, length, os.POSIX_FADV_WILLNEED)

    def write(self, handle: int, offset: int, content: bytes) -> None:
        """Write all of `content` at `offset`; the system may take it in pieces, which is no error."""
        done = os.pwrite(handle, content, offset)
        while done < len(content):
            more = os.pwrite(handle, memoryview(content)[done:], offset + done)
            if more == 0:
                raise OSError(errno.EIO, "the file takes no more bytes")
            done += more

    def sync(self, handle: int) -> None:
        """Make a file's bytes and length durable against the machine's death."""
        _sync(handle)

    def allocate(self, path: str, offset: int, length: int) -> None:
        """Give a part of a file space on the disk, also behind its end; neither length nor bytes change.

        The file is made if it is missing. Without effect where the file system knows no such thing.
        """
        descriptor = os.open(self.path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            _allocate(descriptor, offset, length)
        finally:
            os.close(descriptor)

    def truncate(self, handle: int, length: int) -> None:
        """Cut or extend a file to `length`."""
        os.ftruncate(handle, length)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        descriptor = os.open(self.path(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def make_directory(self, path: str) -> None:
        """Make a directory, private to its owner whatever the umask; one that is there is no error."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.path(path), DIRECTORY_MODE)

    def rename(self, source: str, target: str) -> None:
        """Rename, and fail with FileExistsError where `target` is taken: a segment is never replaced."""
        _rename_without_replacing(self.path(source), self.path(target))

    def exchange(self, one: str, other: str) -> None:
        """Let two files change names, atomically. Fails with ENOSYS where that can't be done."""
        if not _rename_at(self.path(one), self.path(other), _RENAME_EXCHANGE):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def replace(self, source: str, target: str) -> None:
        """Rename over whatever is there, atomically."""
        os.replace(self.path(source), self.path(target))

    def remove(self, path: str) -> None:
        """Remove a file; one that is gone is no error."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(path))

    def remove_tree(self, path: str) -> None:
        """Remove a directory of plain files (an index is one)."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.path(path)):
                os.unlink(self.path(f"{path}/{name}"))
            os.rmdir(self.path(path))

    def names(self, path: str) -> list[str]:
        """List the names in a directory; none where it is missing."""
        try:
            return os.listdir(self.path(path))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        """Say whether something has this name."""
        return os.path.lexists(self.path(path))

    def modified(self, path: str) -> float:
        """Give when a file was last written or touched, in seconds since 1970."""
        return os.stat(self.path(path), follow_symlinks=False).st_mtime

    def touch(self, path: str) -> None:
        """Let a file count as written now."""
        os.utime(self.path(path), follow_symlinks=False)

    def free_bytes(self) -> int:
        """Give the bytes that this user may still allocate on the store's file system."""
        state = os.statvfs(self.root)
        return state.f_bavail * state.f_frsize


def read_whole_file(fs: FileSystem, path: str) -> bytes:
    """Read a small file. Raises OSError."""
    handle = fs.open(path)
    try:
        return fs.read(handle, 0, fs.size(handle))
    finally:
        fs.close(handle)


def write_whole_file(fs: FileSystem, path: str, content: bytes) -> None:
    """Write a small file so that after any crash either the old or the new content is there, and durable."""
    temporary = f"{path}.tmp"
    fs.remove(temporary)
    handle = fs.open(temporary, create=True)
    try:
        fs.write(handle, 0, content)
        fs.sync(handle)
    except OSError:
        fs.remove(temporary)
        raise
    finally:
        fs.close(handle)
    fs.replace(temporary, path)
    fs.sync_directory(os.path.dirname(path))


def _sync(handle: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(handle)


@cache
def c_library() -> ctypes.CDLL:
    """Load the C library, once: each loading makes classes of its functions anew."""
    return ctypes.CDLL(None, use_errno=True)


_FALLOC_FL_KEEP_SIZE = 1


def _allocate(handle: int, offset: int, length: int) -> None:
    """Allocate by fallocate(KEEP_SIZE); where it isn't supported, do nothing."""
    if sys.platform != "linux":
        return
    if c_library().fallocate(handle, _FALLOC_FL_KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(length)) != 0:
        code = ctypes.get_errno()
        if code not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise OSError(code, os.strerror(code))


_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


def _rename_without_replacing(source: str, target: str) -> None:
    """Rename by renameat2(RENAME_NOREPLACE) where the file system has it, else by link and unlink."""
    if not _rename_at(source, target, _RENAME_NOREPLACE):
        os.link(source, target)
        os.unlink(source)


def _rename_at(source: str, target: str, how: int) -> bool:
    """Rename by renameat2; False where the system or the file system can't do it so. Raises OSError."""
    if sys.platform == "linux":
        libc = c_library()
        if hasattr(libc, "renameat2"):
            if libc.renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), how) == 0:
                return True
            code = ctypes.get_errno()
            if code not in (errno.EINVAL, errno.ENOSYS):
                raise OSError(code, os.strerror(code), target)
    return False
