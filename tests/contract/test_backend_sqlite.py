"""Contract: what the SQLite backend promises about its own file, beyond the clauses that every backend owes."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.storage.backend import Backend, open_reader, require_journal
from turnkeeper.storage.contract import (
    answer_to,
    appended,
    content,
    creation,
    event,
    events,
    listed,
    page,
    raised,
    refused,
)
from turnkeeper.storage.errors import Corrupt, Failed, NewerFormat, StoreFull, StoreRefused
from turnkeeper.storage.requests import Append
from turnkeeper.storage.sqlite import database
from turnkeeper.storage.sqlite.reading import SqliteReader
from turnkeeper.storage.sqlite.writing import CHECKPOINT_BYTES, SqliteStore

from .backends import DirectoryStore, new_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DirectoryStore]:
    """A new store that SQLite keeps."""
    with new_store(tmp_path / "store", "sqlite") as made:
        yield made


def database_of(backend: Backend) -> sqlite3.Connection:
    """Give a writer's own connection, to disturb it."""
    assert isinstance(backend, SqliteStore)
    return backend._database


class FailingDatabase:
    """A connection that fails at the n-th statement from now on, with one of SQLite's codes."""

    def __init__(self, database: sqlite3.Connection, fail_at: int, code: int) -> None:
        self._database = database
        self._left = fail_at
        self._code = code
        self.has_failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Run a statement, or fail."""
        self._count()
        return self._database.execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        """Run a statement many times, or fail."""
        self._count()
        return self._database.executemany(*arguments)

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.has_failed = True
            error = sqlite3.OperationalError("injected")
            error.sqlite_errorcode = self._code
            raise error


def test_a_failure_at_any_statement_answers_nobody_and_a_resend_settles_it(store: DirectoryStore) -> None:
    """Failed is the one answer, for good; the next opening has all of a commit or nothing, and takes it again."""
    request, head = creation("a", event("a", 0)), 0
    for fail_at in range(1, 50):
        backend = store.open()
        assert isinstance(backend, SqliteStore)
        failing = FailingDatabase(backend._database, fail_at, sqlite3.SQLITE_IOERR_FSYNC)
        backend._database = failing  # type: ignore[assignment]
        requests = [request, Append("a", 1, head + 1, event("a", head + 1))]
        try:
            backend.commit(requests)
        except Failed:
            raised(Failed, lambda backend=backend, request=request: backend.commit([request]))  # type: ignore[misc]
        store.die()
        backend = store.open()
        assert [type(answer).__name__ for answer in backend.commit(requests)] == ["Appended", "Appended"]
        assert content(store, "a") == events("a", 0, head + 2)
        store.close()
        request, head = Append("a", 1, head + 2, event("a", head + 2)), head + 2
        if not failing.has_failed:
            return
    raise AssertionError("no commit came to its end")


def test_a_database_that_can_not_grow_is_a_full_store(store: DirectoryStore) -> None:
    """Nothing of that commit is stored, what is stored is acknowledged, and with room all goes on."""
    backend = store.open()
    appended(backend, creation("a", events("a", 0, 2)))
    database_of(backend).execute("PRAGMA max_page_count = 1")
    large = Append("a", 1, 2, event("a", 2, "x" * 500_000))
    answers = backend.commit([Append("a", 1, 1, event("a", 1)), large])
    assert [type(answer).__name__ for answer in answers] == ["Appended", "StoreFull"]
    refused(StoreFull, answer_to(backend, large))
    assert content(store, "a") == events("a", 0, 2)
    database_of(backend).execute("PRAGMA max_page_count = 1000000")
    assert appended(backend, large).head == 3


def test_its_files_are_private_whatever_the_umask(store: DirectoryStore) -> None:
    """Also those that SQLite makes beside the database."""
    before = os.umask(0)
    try:
        appended(store.open(), creation("a", event("a", 0)))
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in store.path.iterdir()}
    assert {"store.sqlite", "store.sqlite-wal", "store.sqlite-shm"} <= set(modes)
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize("state", ["new", "closed", "unfinished"])
def test_reading_what_nobody_serves_changes_no_file(store: DirectoryStore, state: str) -> None:
    """No name and no byte: a copy on a disk that can't be written will do. What was never finished is empty."""
    if state == "closed":
        appended(store.open(), creation("a", event("a", 0)))
        store.close()
    elif state == "unfinished":
        (store.path / "store.sqlite").touch()
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in store.path.iterdir()}
    assert listed(store) == (["a"] if state == "closed" else [])
    assert {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in store.path.iterdir()} == before


def test_a_dead_writers_commits_are_read_before_anybody_serves(store: DirectoryStore) -> None:
    """They lie in the write-ahead log; the next opening moves them into the database at once."""
    appended(store.open(), creation("a", events("a", 0, 3)))
    store.die()
    assert (store.path / "store.sqlite-wal").stat().st_size > 0
    assert content(store, "a") == events("a", 0, 3)
    store.open()
    assert content(store, "a") == events("a", 0, 3)
    with closing(sqlite3.connect(f"file:{store.path}/store.sqlite?immutable=1", uri=True)) as database:
        assert database.execute("SELECT count(*) FROM events").fetchone() == (3,)


def test_a_log_that_was_cut_anywhere_has_whole_commits(store: DirectoryStore, tmp_path: Path) -> None:
    """However far a dying machine came with it: each commit is there whole or not at all, and none before another."""
    backend = store.open()
    for first in range(0, 40, 4):
        append = Append("a", 1, first, events("a", first, 4), create=not first)
        backend.commit([append, creation(f"s-{first}", event(f"s-{first}", 0))])
    log = (store.path / "store.sqlite-wal").read_bytes()
    found = []
    for length in (*range(0, len(log), len(log) // 40), len(log)):
        with new_store(tmp_path / f"cut-{length}", "sqlite") as cut:
            for name in ("store.json", "store.sqlite"):
                shutil.copy(store.path / name, cut.path / name)
            (cut.path / "store.sqlite-wal").write_bytes(log[:length])
            commits = cut.open().statistics()["batches"]
            found.append(commits)
            assert {id for id in listed(cut) if id != "a"} == {f"s-{4 * commit}" for commit in range(commits)}
            if commits:
                assert content(cut, "a") == events("a", 0, 4 * commits)
    assert found == sorted(found)
    assert set(found) == set(range(11))


def test_a_reader_that_stands_still_is_waited_for_but_not_for_ever(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An opening must move the whole log, which a reader inside a look can hold up; then it fails and says why."""
    appended(store.open(), creation("a", event("a", 0)))
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(store.path / "store.sqlite", isolation_level=None)) as standing:
        standing.execute("BEGIN").execute("SELECT count(*) FROM events").fetchone()
        store.close()
        assert "reading" in str(raised(Failed, store.open))
        standing.execute("COMMIT")
        assert appended(store.open(), Append("a", 1, 1, event("a", 1))).head == 2


def test_a_view_of_what_nobody_serves_follows_when_somebody_did(store: DirectoryStore) -> None:
    """It is opened anew where the files have changed, and answers from what is there now."""
    appended(store.open(), creation("a", event("a", 0)))
    store.close()
    with closing(store.reader()) as reader:
        assert reader.row("a").head == 1
        backend = store.open()
        appended(backend, Append("a", 1, 1, events("a", 1, 200)))
        assert reader.row("a").head == 201
        store.close()
        assert len(reader.read("a").events) == 201


def test_the_log_is_moved_into_the_database_between_commits(store: DirectoryStore) -> None:
    """So that it is begun anew and stays small."""
    backend = store.open()
    appended(backend, creation("a", event("a", 0)))
    for seq in range(1, 21):
        appended(backend, Append("a", 1, seq, event("a", seq, "x" * 900_000)))
        backend.between_commits()
    assert (store.path / "store.sqlite-wal").stat().st_size < 3 * CHECKPOINT_BYTES
    assert len(page(store, "a").events) == 21


def test_another_stores_database_is_refused(store: DirectoryStore, tmp_path: Path) -> None:
    """A file that was copied into this store is somebody else's."""
    store.open()
    store.close()
    with new_store(tmp_path / "other", "sqlite") as other:
        shutil.copy(store.path / "store.sqlite", other.path / "store.sqlite")
        assert "another store" in str(raised(StoreRefused, other.open))


def test_a_symbolic_link_is_refused(store: DirectoryStore, tmp_path: Path) -> None:
    """The database is a file in the store, for the writer and for readers."""
    (store.path / "store.sqlite").symlink_to(tmp_path / "elsewhere")
    assert "symbolic link" in str(raised(StoreRefused, store.open))
    (tmp_path / "elsewhere").touch()
    assert "symbolic link" in str(raised(StoreRefused, store.reader))


def test_a_newer_form_is_named_as_such(store: DirectoryStore) -> None:
    """It isn't called corrupt, and isn't touched."""
    store.open()
    store.close()
    with closing(sqlite3.connect(store.path / "store.sqlite")) as database:
        database.execute("PRAGMA user_version = 2")
    for call in (store.open, store.reader):
        assert raised(NewerFormat, call).found == 2


def test_a_damaged_database_is_named_as_such(store: DirectoryStore) -> None:
    """Whatever opens it says which file, and that its bytes are wrong."""
    appended(store.open(), creation("a", event("a", 0)))
    store.close()
    (store.path / "store.sqlite").write_bytes(b"\0" * 5000)
    for call in (store.open, store.reader):
        assert raised(Corrupt, call).path == "store.sqlite"


def test_a_disk_that_fails_in_a_look_is_named_as_such(store: DirectoryStore) -> None:
    """Whatever the writer looks up, what SQLite says of it comes as our own error."""
    backend = store.open()
    appended(backend, creation("a", event("a", 0)))
    assert isinstance(backend, SqliteStore)
    looks = (lambda: backend.row("a"), lambda: backend.resolve("a"), lambda: backend.missing("a"), backend.statistics)
    whole = backend._database
    for look in looks:
        backend._database = FailingDatabase(whole, 1, sqlite3.SQLITE_IOERR_READ)  # type: ignore[assignment]
        raised(Failed, look)
    backend._database = whole


def test_a_disk_that_fails_in_an_opening_is_named_as_such(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whichever statement."""
    connect = database._connect
    for fail_at in range(1, 50):
        failing: list[FailingDatabase] = []

        def connect_to_fail(path: str, how: Any, fail_at: int = fail_at, failing: Any = failing) -> Any:
            failing.append(FailingDatabase(connect(path, how), fail_at, sqlite3.SQLITE_IOERR_READ))
            return failing[-1]

        monkeypatch.setattr(database, "_connect", connect_to_fail)
        try:
            store.open()
        except Failed:
            continue
        assert not failing[0].has_failed
        assert fail_at > 8
        return
    raise AssertionError("no opening came to its end")


def test_rows_that_are_gone_are_a_gap(store: DirectoryStore) -> None:
    """A hole is told, and never closed up silently."""
    backend = store.open()
    appended(backend, creation("a", events("a", 0, 6)))
    database_of(backend).execute("DELETE FROM events WHERE seq IN (1, 2, 5)")
    assert backend.missing("a") == [(1, 2), (5, 1)]
    with closing(store.reader()) as reader:
        found = reader.read("a")
    assert [stored.seq for stored in found.events] == [0, 3, 4]
    assert [(gap.first, gap.events, gap.path) for gap in found.missing] == [
        (1, 2, "store.sqlite"),
        (5, 1, "store.sqlite"),
    ]


def test_the_newest_events_cost_the_same_in_a_long_stream(store: DirectoryStore) -> None:
    """Reading a suffix costs the suffix, counted in SQLite's steps."""
    backend = store.open()
    appended(backend, creation("a", events("a", 0, 10)))
    appended(backend, creation("b", events("b", 0, 3000)))
    steps = {}
    with closing(store.reader()) as reader:
        assert isinstance(reader, SqliteReader)
        for id in ("a", "b"):
            counted: list[int] = []
            reader._database.set_progress_handler(lambda counted=counted: counted.append(1), 1)  # type: ignore[misc]
            assert len(reader.read_last(id, 5).events) == 5
            steps[id] = len(counted)
    assert steps["b"] <= steps["a"] + 20


def test_what_is_about_a_journals_files_is_refused(store: DirectoryStore, tmp_path: Path) -> None:
    """One clear line; a backend of a version to come is refused as such."""
    assert "no journal" in str(raised(StoreRefused, lambda: require_journal(str(store.path))))
    description = (store.path / "store.json").read_text()
    (store.path / "store.json").write_text(description.replace("sqlite", "future"))
    for call in (store.open, lambda: open_reader(str(store.path))):
        assert "upgrade" in str(raised(StoreRefused, call))
    with new_store(tmp_path / "other", "journal") as other:
        require_journal(str(other.path))
