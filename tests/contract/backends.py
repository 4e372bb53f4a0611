"""The backends that come with turnkeeper, as the contract's tests need them: a store directory and its lock."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnkeeper.storage import lock, store
from turnkeeper.storage.backend import Backend, BackendReader, open_backend, open_reader
from turnkeeper.storage.contract import is_gone_by
from turnkeeper.storage.filesystem import LocalFileSystem
from turnkeeper.storage.store import BackendName

BACKENDS: tuple[BackendName, ...] = ("journal", "sqlite")
BOOT = "11111111-2222-3333-4444-555555555555"


class _Disk(LocalFileSystem):
    """A file system that has no space when its store says so."""

    def __init__(self, of: DirectoryStore) -> None:
        super().__init__(str(of.path))
        self._of = of

    def free_bytes(self) -> int:
        return 0 if self._of.is_full else super().free_bytes()


class DirectoryStore:
    """A store in a directory; see `StoreInContract`."""

    def __init__(self, path: Path, backend: BackendName) -> None:
        self.path = path
        self.alive: set[str] = set()
        self.now = 1_700_000_000_000
        self.is_full = False
        self._deaths = 0
        self._backend: Backend | None = None
        store.make_directory(str(path))
        self._lock = store.open_store_file(str(path), create=True)
        assert lock.take(self._lock)
        store.finish(self._lock, str(path), backend=backend)

    def open(self) -> Backend:
        """Open the store to write."""
        assert self._backend is None
        self._backend = open_backend(
            str(self.path),
            boot=BOOT,
            is_gone=is_gone_by(self.alive),
            holder={},
            fs=_Disk(self),
            clock=lambda: self.now,
        )
        return self._backend

    def reader(self) -> BackendReader:
        """Open the store to read."""
        return open_reader(str(self.path), None if self._backend is None else self._backend.index_directory)

    def close(self) -> None:
        """Close the writer in order."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()

    def die(self) -> None:
        """Go on with the files as they lie there in this moment, which is what the death of a process leaves."""
        self._deaths += 1
        left = self.path.with_name(f"{self.path.name}-{self._deaths}")
        shutil.copytree(self.path, left)
        self.close()
        os.close(self._lock)
        self.path = left
        self._lock = store.open_store_file(str(left), create=False)
        assert lock.take(self._lock)

    def end(self) -> None:
        """Let go of everything."""
        self.close()
        os.close(self._lock)


@contextmanager
def new_store(path: Path, backend: BackendName) -> Iterator[DirectoryStore]:
    """Make a store, and let go of it afterwards."""
    made = DirectoryStore(path, backend)
    try:
        yield made
    finally:
        made.end()
