"""The store directory: what lies in it, how it is made, and which directories are refused.

    store.json              what the store is, fixed at creation; carries the store's lock
    journal/ index/         segments; LMDB
    store.sqlite            in place of these two, where SQLite keeps the store
    index.json              which index may be trusted
    blobs/<ab>/<digest>     contents too large for a line, by their digest
    quarantine/             bytes cut from torn tails, with notes
    writer.json             who holds the lock, for people
    node.sock writer.sock   sockets, bound by relative names
    actors/                 a lock and a socket for each named actor that a process of the store serves
    node.log                what the node and writer say on stderr

Standard library only, as the node's candidate needs it before it has the lock. A store that is there is never
changed by looking at it.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import time
import uuid
from dataclasses import dataclass
from typing import Any, Literal

from .errors import NewerFormat, StorageError, StoreMissing, StoreRefused
from .limits import FORMAT

STORE_FILE = "store.json"
JOURNAL_DIRECTORY = "journal"
INDEX_DIRECTORY = "index"
BLOBS_DIRECTORY = "blobs"
QUARANTINE_DIRECTORY = "quarantine"
WRITER_FILE = "writer.json"

BackendName = Literal["journal", "sqlite"]
"""What keeps a store's events. A name in store.json that isn't one of these belongs to a version to come."""

Durability = Literal["fsync", "os"]
"""What an acknowledgement survives. fsync: the death of every process and of the machine; os: that of processes."""

# Magic numbers of statfs(2): file systems whose locks or syncs are somebody else's promise.
_REFUSED_FILE_SYSTEMS = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB2",
    0x01021997: "9p",
}


@dataclass(frozen=True, slots=True)
class StoreDescription:
    """What store.json says. `created` is in milliseconds since 1970; `store` is a UUID."""

    format: int
    store: str
    created: int
    durability: Durability
    backend: str

    def as_bytes(self) -> bytes:
        """Give the file's one line."""
        fields = {
            "format": self.format,
            "store": self.store,
            "created": self.created,
            "durability": self.durability,
            "backend": self.backend,
        }
        return json.dumps(fields).encode() + b"\n"


def make_directory(path: str, *, parents: bool = False) -> None:
    """Make the store's directory if it is missing, private to its owner; its parents only if asked.

    Raises StoreRefused where the parent is missing or not writable, or the path is no directory.
    """
    try:
        if parents:
            os.makedirs(path, mode=0o700, exist_ok=True)
        else:
            os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise StoreRefused(path, "not a directory; give the path of a directory for the store") from None
    except FileNotFoundError:
        raise StoreRefused(path, f"the directory above it is missing; make {os.path.dirname(path)} first") from None
    except NotADirectoryError:
        raise StoreRefused(path, "something above it is a file, not a directory; give another path") from None
    except OSError as error:
        raise StoreRefused(path, f"can't be made ({os.strerror(error.errno or 0)}); give a writable path") from None


def check_directory(path: str) -> None:
    """Refuse a path that can't be a store: missing, no directory, somebody else's, open to others, a network's."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise StoreMissing(path, "there is no store here; check the path, or write something to make one") from None
    except OSError as error:
        raise StoreRefused(path, f"can't be opened ({os.strerror(error.errno or 0)})") from None
    if not stat.S_ISDIR(found.st_mode):
        raise StoreRefused(path, "not a directory; give the path of a directory for the store")
    if found.st_uid != os.geteuid():
        raise StoreRefused(path, f"belongs to user {found.st_uid}, not to you; use a directory of your own")
    if found.st_mode & 0o022:
        raise StoreRefused(path, f"others may write to it; run: chmod go-w {path}")
    name = refused_file_system(path)
    if name is not None:
        raise StoreRefused(path, f"{name} keeps no promise about locks and syncs; use a directory on a local disk")


def describe(path: str) -> StoreDescription:
    """Read what the store at `path` is, without changing anything.

    Raises StoreMissing where there is none (an empty store.json is one that was never finished), NewerFormat,
    or StoreRefused for a store.json that isn't ours.
    """
    check_directory(path)
    name = os.path.join(path, STORE_FILE)
    try:
        with open(name, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        raise StoreMissing(path, "there is no store here; check the path, or write something to make one") from None
    except OSError as error:
        raise StoreRefused(name, f"can't be read ({os.strerror(error.errno or 0)})") from None
    if not content:
        raise StoreMissing(path, "a store was begun here and never finished; writing to it finishes it")
    return parse_description(content, name)


def parse_description(content: bytes, path: str) -> StoreDescription:
    """Check store.json's content. Raises NewerFormat or StoreRefused, naming `path`."""
    try:
        fields: Any = json.loads(content)
        found = int(fields["format"])
        if found > FORMAT:
            raise NewerFormat(path, found, FORMAT)
        store = str(uuid.UUID(fields["store"]))
        durability: Durability = fields["durability"]
        if found < 1 or durability not in ("fsync", "os"):
            raise ValueError(durability)
        return StoreDescription(found, store, int(fields["created"]), durability, str(fields["backend"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StoreRefused(path, "isn't a turnkeeper store's description; give another path") from None


def open_store_file(path: str, *, create: bool) -> int:
    """Open store.json for the lock; with `create`, make an empty one where there is none.

    The candidate fills an empty one only once it has the lock: the lock lives on this inode, so the file is never
    replaced. Raises StoreMissing or StoreRefused.
    """
    check_directory(path)
    name = os.path.join(path, STORE_FILE)
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    try:
        descriptor = os.open(name, flags, 0o600)
    except FileNotFoundError:
        raise StoreMissing(path, "there is no store here; check the path, or write something to make one") from None
    except OSError as error:
        why = "is a symbolic link" if error.errno == errno.ELOOP else os.strerror(error.errno or 0)
        raise StoreRefused(name, f"can't be opened for writing ({why})") from None
    return descriptor


def require_backend(path: str, backend: BackendName | None) -> None:
    """Refuse the store at `path` if there is one, and something else keeps it; None takes any. Raises StoreRefused."""
    if backend is None:
        return
    try:
        found = describe(path).backend
    except StorageError:
        return  # there is none, or whoever opens it says what is wrong with it
    if found != backend:
        raise StoreRefused(path, f"the store is kept by {found}, not by {backend}; give its path alone")


def finish(
    descriptor: int, path: str, durability: Durability | None = None, backend: BackendName | None = None
) -> StoreDescription:
    """Fill an empty store.json in place, synced, or check the one that is there. The caller holds the lock.

    `durability` and `backend` are what a new store gets, and what one that is there must have; None takes either, and
    makes a journal that is synced. Raises StoreRefused where the description isn't ours, says something else, or can't
    be written; NewerFormat for a later version's.
    """
    name = os.path.join(path, STORE_FILE)
    content = os.pread(descriptor, 65536, 0)
    if content.strip():
        description = parse_description(content, name)
        if durability is not None and durability != description.durability:
            raise StoreRefused(name, f"the store was made with durability {description.durability!r}; open it so")
        require_backend(path, backend)
        return description
    created = time.time_ns() // 1_000_000
    description = StoreDescription(FORMAT, str(uuid.uuid4()), created, durability or "fsync", backend or "journal")
    filled = description.as_bytes()
    try:
        if os.pwrite(descriptor, filled, 0) != len(filled):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _sync_file_and_directory(descriptor, path)
    except OSError as error:
        os.ftruncate(descriptor, 0)
        raise StoreRefused(name, f"can't be written ({os.strerror(error.errno or 0)})") from None
    return description


def refused_file_system(path: str) -> str | None:
    """Name the file system of `path` if a store can't live on it."""
    if sys.platform != "linux":
        return None
    import ctypes

    from .filesystem import c_library

    buffer = ctypes.create_string_buffer(256)  # struct statfs is 120 bytes; its first member is the type
    if c_library().statfs(os.fsencode(path), buffer) != 0:
        return None
    kind = int.from_bytes(buffer.raw[:8], sys.byteorder) & 0xFFFFFFFF
    return _REFUSED_FILE_SYSTEMS.get(kind)


def _sync_file_and_directory(descriptor: int, path: str) -> None:
    from .filesystem import LocalFileSystem

    fs = LocalFileSystem(path)
    fs.sync(descriptor)
    fs.sync_directory("")
