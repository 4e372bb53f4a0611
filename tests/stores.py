"""Stores and journals for tests: made, opened, killed, cut and compared, without a process."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from turnkeeper.storage import lock, store
from turnkeeper.storage.exact_json import encode_event
from turnkeeper.storage.filesystem import FileSystem
from turnkeeper.storage.hopping import FileScanner
from turnkeeper.storage.journal import Journal
from turnkeeper.storage.reading import open_reader
from turnkeeper.storage.requests import Append, Appended, Grant, Granted, Request, Result

BOOT = "11111111-2222-3333-4444-555555555555"


def owner(token: str, pid: int = 1) -> dict[str, Any]:
    """Make an owner whose liveness the test's own `is_gone` decides."""
    return {"boot": BOOT, "pid": pid, "start": 1, "host": "here", "token": token}


def event(stream: str, seq: int, text: str = "hello", time: int = 1_700_000_000_000) -> bytes:
    """Make one event's line."""
    return encode_event(stream, seq, time, "user/message", {"text": text})


def lines(stream: str, first: int, events: int, text: str = "hello") -> bytes:
    """Make several events' lines."""
    return b"".join(event(stream, seq, f"{text} {seq}") for seq in range(first, first + events))


def make_store(path: Path, kept_by: store.BackendName) -> None:
    """Make a store that nobody serves, and whose files its first writer makes."""
    store.make_directory(str(path))
    descriptor = store.open_store_file(str(path), create=True)
    store.finish(descriptor, str(path), backend=kept_by)
    os.close(descriptor)


class StoreInTest:
    """One store directory, its lock, and the journal that is open on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.alive: set[str] = set()
        store.make_directory(str(path))
        self.lock = store.open_store_file(str(path), create=True)
        assert lock.take(self.lock)
        self.description = store.finish(self.lock, str(path))
        self.journal: Journal | None = None

    def open(
        self,
        *,
        boot: str = BOOT,
        fs: FileSystem | None = None,
        distrust: bool = False,
        clock: Callable[[], int] | None = None,
        scan: FileScanner | None = None,
    ) -> Journal:
        """Open the journal."""
        self.journal = Journal.open(
            str(self.path),
            boot=boot,
            is_gone=self._is_gone,
            holder={},
            distrust_index=distrust,
            fs=fs,
            clock=clock,
            scan=scan,
        )
        return self.journal

    def _is_gone(self, who: Mapping[str, Any]) -> bool:
        return who["token"] not in self.alive

    def kill(self) -> None:
        """Let go of the journal as the death of its process would: nothing is written, nothing marked clean."""
        journal, self.journal = self.journal, None
        if journal is not None:
            journal._failed = True
            journal.close()

    def close(self) -> None:
        """Close the journal cleanly."""
        journal, self.journal = self.journal, None
        if journal is not None:
            journal.close()

    def end(self) -> None:
        """Let go of everything."""
        self.kill()
        os.close(self.lock)

    # -- what lies on disk

    def segment(self, number: int = 1) -> Path:
        """Give a segment's path."""
        return self.path / "journal" / f"{number:08d}.jsonl"

    def content(self, number: int = 1) -> bytes:
        """Give a segment's bytes without its filling."""
        return self.segment(number).read_bytes().rstrip(b"\n\0") + b"\n"

    def delete_index(self) -> None:
        """Delete the index and what says which one may be trusted."""
        shutil.rmtree(self.path / "index", ignore_errors=True)
        (self.path / "index.json").unlink(missing_ok=True)

    def copy_to(self, path: Path) -> StoreInTest:
        """Copy the store as it lies there."""
        shutil.copytree(self.path, path, symlinks=True)
        other = StoreInTest.__new__(StoreInTest)
        other.path, other.alive, other.description, other.journal = path, set(), self.description, None
        other.lock = store.open_store_file(str(path), create=False)
        assert lock.take(other.lock)
        return other

    # -- what readers see

    def events(self) -> dict[str, list[bytes]]:
        """Give every stream's lines as a reader sees them."""
        served = None if self.journal is None else self.journal.index_directory
        with contextlib.closing(open_reader(str(self.path), served)) as reader:
            return {
                row.id: [stored.line for stored in reader.read(row.id, limit=1_000_000).events]
                for row in reader.rows(1_000_000)
            }

    def index_entries(self) -> dict[str, list[tuple[bytes, bytes]]]:
        """Give the open journal's whole index."""
        assert self.journal is not None
        return self.journal._index.entries()


@contextlib.contextmanager
def new_store(path: Path) -> Iterator[StoreInTest]:
    """Make a store, and let go of it afterwards."""
    made = StoreInTest(path)
    try:
        yield made
    finally:
        made.end()


def create(stream: str, text: bytes, **header: Any) -> Append:
    """Make a stream's first append."""
    patch = {"kind": "session", "owner": owner(f"{stream}-1"), **header}
    return Append(stream, 1, 0, text, patch, create=True)


def commit_one(journal: Journal, request: Request) -> Result:
    """Commit one request."""
    (result,) = journal.commit([request])
    return result


def appended(journal: Journal, request: Append) -> Appended:
    """Commit an append that must succeed."""
    result = commit_one(journal, request)
    assert isinstance(result, Appended), result
    return result


def granted(journal: Journal, request: Grant) -> Granted:
    """Commit a grant that must succeed."""
    result = commit_one(journal, request)
    assert isinstance(result, Granted), result
    return result
