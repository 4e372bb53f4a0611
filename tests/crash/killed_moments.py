"""Copies of a store, taken at each step on its disk: what the death of its writer in that moment would leave."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from turnkeeper.storage import lock, store
from turnkeeper.storage.backend import Backend, open_backend
from turnkeeper.storage.sqlite.writing import SqliteStore

from .writer_program import WatchedFileSystem


class WatchedDisk(WatchedFileSystem):
    """A file system that calls `on_operation` before, in the middle of and after each change of the disk."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.on_operation: Callable[[], object] = lambda: None

    @contextlib.contextmanager
    def _operation(self) -> Iterator[None]:
        self.on_operation()
        yield
        self.on_operation()

    def write(self, handle: int, offset: int, content: bytes) -> None:
        """Write in two halves."""
        half = len(content) // 2
        with self._operation():
            super().write(handle, offset, content[:half])
            self.on_operation()
            super().write(handle, offset + half, content[half:])


class Snapshots:
    """Copies of a store's files, each as the death of the writer in that moment would leave them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = ""
        self.taken: list[Path] = []

    def take(self, *_: object) -> None:
        """Copy the files as they lie there now, if they aren't as they were."""
        seen = "".join(f"{each}: {_digest(each)}" for each in sorted(self._path.rglob("*")) if each.is_file())
        if seen == self._last:
            return
        self._last = seen
        copy = self._path.with_name(f"copy-{len(self.taken)}")
        shutil.copytree(self._path, copy)
        self.taken.append(copy)


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes()).hexdigest()


@contextlib.contextmanager
def opened(path: Path, snapshots: Snapshots | None = None) -> Iterator[Backend]:
    """Open a store to write, where every owner of before is gone; with snapshots, one at each step from now on.

    Steps are operations on the disk and, as SQLite makes its own, the statements that it is given.
    """
    descriptor = store.open_store_file(str(path), create=False)
    disk = WatchedDisk(str(path))
    if snapshots is not None:
        disk.on_operation = snapshots.take
    try:
        assert lock.take(descriptor)
        backend = open_backend(str(path), boot="boot", is_gone=lambda who: True, holder={}, fs=disk)
        if snapshots is not None and isinstance(backend, SqliteStore):
            backend._database.set_trace_callback(snapshots.take)
        yield backend
        disk.on_operation = lambda: None
        backend.close()
    finally:
        os.close(descriptor)
