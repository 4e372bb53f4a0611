"""The database file: its tables, how it is opened to write and to read, and how its failures are named.

    store      one row: whose database it is, commits that stored something, position of the next event
    streams    id -> head, epoch, position and time (ms) of its last event, summary as JSON
    events     position -> stream, seq, epoch of who stored it, line without its newline
    keys       (stream, key) -> seq of the line that was stored under it
    names      a host's key -> id
    blobs      (digest, stream, seq) of what names a blob

A commit is synced in the write-ahead log (FULL), and moved into the database between commits. Opening to write moves
all of it first: what a dead writer wrote and never synced is written again by that, and synced, before anybody builds
on it.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Literal
from urllib.parse import quote

from ..errors import Corrupt, Failed, NewerFormat, StorageError, StoreRefused
from ..filesystem import FileSystem
from ..store import Durability
from . import DATABASE_FILE

VERSION = 1
"""The tables' form, as `PRAGMA user_version`; 0 is a database that was never finished."""

BUSY_SECONDS = 5.0
"""How long a reader that is just reading is waited for, by a writer that opens the store."""

_TABLES = f"""
BEGIN IMMEDIATE;
CREATE TABLE store (uuid TEXT NOT NULL, commits INTEGER NOT NULL, next_position INTEGER NOT NULL);
CREATE TABLE streams (
    id TEXT PRIMARY KEY, head INTEGER NOT NULL, epoch INTEGER NOT NULL,
    position INTEGER NOT NULL, active INTEGER NOT NULL, summary TEXT NOT NULL
);
CREATE INDEX recent ON streams (position, id);
CREATE TABLE events (
    position INTEGER PRIMARY KEY, stream TEXT NOT NULL, seq INTEGER NOT NULL, epoch INTEGER NOT NULL, line BLOB NOT NULL
);
CREATE UNIQUE INDEX numbers ON events (stream, seq);
CREATE TABLE keys (stream TEXT, key BLOB, seq INTEGER NOT NULL, PRIMARY KEY (stream, key)) WITHOUT ROWID;
CREATE TABLE names (key BLOB PRIMARY KEY, id TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE blobs (digest BLOB, stream TEXT, seq INTEGER, PRIMARY KEY (digest, stream, seq)) WITHOUT ROWID;
INSERT INTO store VALUES ('', 0, 1);
PRAGMA user_version = {VERSION};
COMMIT;
"""


def open_to_write(fs: FileSystem, store: str, durability: Durability) -> sqlite3.Connection:
    """Open the database of the store with this UUID for its one writer, made if it is missing; settle how it ended.

    Raises StoreRefused for another store's, NewerFormat, Corrupt, Failed, OSError.
    """
    if not fs.exists(DATABASE_FILE):
        fs.close(fs.open(DATABASE_FILE, create=True))  # by us, and not by SQLite: private whatever the umask
        fs.sync_directory("")
    database = _connect(fs.path(DATABASE_FILE), "mode=rw")
    try:
        for setting in ("journal_mode = WAL", "wal_autocheckpoint = 0", "fullfsync = ON", "checkpoint_fullfsync = ON"):
            database.execute(f"PRAGMA {setting}")
        database.execute(f"PRAGMA synchronous = {'FULL' if durability == 'fsync' else 'NORMAL'}")
        if _version(database, fs.path(DATABASE_FILE)) == 0:
            database.executescript(_TABLES)
        (busy, _, _) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise Failed(f"somebody has been reading {DATABASE_FILE} for more than {BUSY_SECONDS:.0f} s")
        database.execute("UPDATE store SET uuid = ? WHERE uuid = ''", (store,))
        (found,) = database.execute("SELECT uuid FROM store").fetchone()
        if found != store:
            raise StoreRefused(fs.path(DATABASE_FILE), "belongs to another store; put that one's store.json beside it")
    except sqlite3.Error as error:
        database.close()
        raise named(error) from error
    except BaseException:
        database.close()
        raise
    return database


def open_to_read(root: str, *, as_it_lies: bool) -> sqlite3.Connection:
    """Open the database of the store at `root` to read; nothing that is stored is changed.

    `as_it_lies` is without a lock, and on a disk that can't be written, for a database that has a stamp. One that was
    never finished is an empty one. Raises NewerFormat, Corrupt, Failed.
    """
    path = os.path.join(root, DATABASE_FILE)
    if as_it_lies and not os.path.exists(path):
        return _empty()
    try:
        database = _connect(path, "mode=ro&immutable=1" if as_it_lies else "mode=ro")
        try:
            if _version(database, path) > 0:
                return database
        except BaseException:
            database.close()
            raise
        database.close()
    except sqlite3.Error as error:
        raise named(error) from error
    return _empty()


def stamp(root: str) -> tuple[int, int, int] | None:
    """Tell one state of a database that nobody serves from others; None while something is in its write-ahead log."""
    path = os.path.join(root, DATABASE_FILE)
    try:
        if os.stat(f"{path}-wal").st_size:
            return None
    except FileNotFoundError:
        pass  # its last writer has closed it
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


def named(error: sqlite3.Error) -> StorageError:
    """Translate what SQLite says: bytes that were changed, or a failure whose outcome is unknown."""
    code = primary_code(error)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Corrupt("the store", str(error), DATABASE_FILE)
    return Failed(f"{DATABASE_FILE}: {error}")


def primary_code(error: sqlite3.Error) -> int:
    """Give SQLite's code of an error, without what it adds to it."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF


def _connect(path: str, how: Literal["mode=rw", "mode=ro", "mode=ro&immutable=1"]) -> sqlite3.Connection:
    """Connect, with transactions as they are written here; one thread at a time, whichever it is."""
    if os.path.islink(path):
        raise StoreRefused(path, "is a symbolic link")
    return sqlite3.connect(
        f"file:{quote(path)}?{how}", uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def _version(database: sqlite3.Connection, path: str) -> int:
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise NewerFormat(path, version, VERSION)
    return version


def _empty() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    database.executescript(_TABLES)
    return database
