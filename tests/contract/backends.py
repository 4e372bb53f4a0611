"""The backends that come with turnkeeper, as the contract's tests need them: a store directory and its lock."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from turnkeeper.storage import lock, store
from turnkeeper.storage.backend import Backend, BackendReader, open_backend, open_reader
from turnkeeper.storage.contract import bytes_read, is_gone_by
from turnkeeper.storage.errors import StoreRefused
from turnkeeper.storage.filesystem import LocalFileSystem
from turnkeeper.storage.sqlite.writing import SqliteStore
from turnkeeper.storage.store import BackendName

BACKENDS: tuple[BackendName, ...] = ("journal", "sqlite")
BOOT = "11111111-2222-3333-4444-555555555555"


class _Disk(LocalFileSystem):
    """A file system that has no space, or fails, when its store says so."""

    def __init__(self, of: DirectoryStore) -> None:
        super().__init__(str(of.path))
        self._of = of

    def free_bytes(self) -> int:
        return 0 if self._of.is_full else super().free_bytes()

    def write(self, handle: int, offset: int, content: bytes) -> None:
        self._fail_if(stored=False)
        super().write(handle, offset, content)

    def sync(self, handle: int) -> None:
        self._fail_if(stored=True)
        super().sync(handle)

    def _fail_if(self, *, stored: bool) -> None:
        if self._of.failure == stored:
            self._of.failure = None
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class _FailingConnection:
    """A connection that fails at the end of the next transaction that changes anything, before or behind it."""

    def __init__(self, database: sqlite3.Connection, *, stored: bool) -> None:
        self._database = database
        self._stored = stored
        self._changes: float = database.total_changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        fails = statement == "COMMIT" and self._database.total_changes > self._changes
        if fails:
            self._changes = float("inf")
        if fails and not self._stored:
            raise sqlite3.OperationalError("injected before the commit")
        cursor = self._database.execute(statement, *arguments)
        if fails:
            raise sqlite3.OperationalError("injected behind the commit")
        return cursor


class DirectoryStore:
    """A store in a directory; see `StoreInContract`. Whoever has it open to write holds its lock."""

    def __init__(self, path: Path, backend: BackendName) -> None:
        self.path = path
        self.alive: set[str] = set()
        self.now = 1_700_000_000_000
        self.is_full = False
        self.failure: bool | None = None
        self._kept_by = backend
        self._deaths = 0
        self._backend: Backend | None = None
        self._lock = -1
        store.make_directory(str(path))
        self._take(create=True)
        store.finish(self._lock, str(path), backend=backend)
        self._let_go()

    def open(self) -> Backend:
        """Open the store to write."""
        assert self._backend is None
        self._take()
        try:
            self._backend = open_backend(
                str(self.path),
                boot=BOOT,
                is_gone=is_gone_by(self.alive),
                holder={"pid": os.getpid()},
                fs=_Disk(self),
                clock=lambda: self.now,
            )
        except BaseException:
            self._let_go()
            raise
        return self._backend

    def _take(self, *, create: bool = False) -> None:
        descriptor = store.open_store_file(str(self.path), create=create)
        if not lock.take(descriptor):
            os.close(descriptor)
            holder = json.loads((self.path / store.WRITER_FILE).read_text())
            raise StoreRefused(str(self.path), f"process {holder['pid']} has it open")
        self._lock = descriptor

    def _let_go(self) -> None:
        os.close(self._lock)
        self._lock = -1

    def reader(self) -> BackendReader:
        """Open the store to read."""
        return open_reader(str(self.path), None if self._backend is None else self._backend.index_directory)

    def close(self) -> None:
        """Close the writer in order."""
        backend, self._backend = self._backend, None
        if backend is not None:
            try:
                backend.close()
            finally:
                self._let_go()

    def die(self) -> None:
        """Go on with the files as they lie there in this moment, which is what the death of a process leaves."""
        self._deaths += 1
        left = self.path.with_name(f"{self.path.name}-{self._deaths}")
        shutil.copytree(self.path, left)
        self.close()
        self.path = left

    def fail_next_commit(self, *, stored: bool) -> None:
        """Fail at the write or at the sync of a batch, or before or behind the end of a transaction."""
        if isinstance(self._backend, SqliteStore):
            failing: Any = _FailingConnection(self._backend._database, stored=stored)
            self._backend._database = failing
        else:
            self.failure = stored

    def damage(self, stream: str) -> None:
        """Spoil the header of its last batch, for a journal whose index is lost; or what SQLite has as its summary."""
        if self._kept_by == "sqlite":
            with closing(sqlite3.connect(self.path / "store.sqlite")) as database, database:
                database.execute("UPDATE streams SET summary = '{' WHERE id = ?", (stream,))
            return
        segment = self.path / "journal" / "00000001.jsonl"
        content = segment.read_bytes()
        header = content.rindex(b'{"$batch"', 0, content.rindex(b'{"stream":"%b"' % stream.encode()))
        segment.write_bytes(content[:header] + b"#" + content[header + 1 :])
        shutil.rmtree(self.path / "index")

    def cost(self) -> int:
        """Count the bytes that were read."""
        return bytes_read()

    def end(self) -> None:
        """Let go of everything."""
        self.close()


@contextmanager
def new_store(path: Path, backend: BackendName) -> Iterator[DirectoryStore]:
    """Make a store, and let go of it afterwards."""
    made = DirectoryStore(path, backend)
    try:
        yield made
    finally:
        made.end()
