"""Contract of the oracle's own reading of a database: all that was written, and a fault for rows that don't fit."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from turnkeeper.benchmarks.chaos.checker.database import DATABASE, read_database
from turnkeeper.benchmarks.chaos.checker.evidence import make_evidence, read_stored
from turnkeeper.benchmarks.chaos.checker.judging import judge
from turnkeeper.benchmarks.demonstration.oracle import digest
from turnkeeper.storage import blobs
from turnkeeper.storage.errors import StorageError
from turnkeeper.storage.requests import Append, Grant, Post
from turnkeeper.storage.sqlite.writing import SqliteStore

from ..stores import create, event, make_store, owner


@pytest.fixture
def store(memory_path: Path) -> Iterator[Path]:
    """A store that is open still: sessions `a`, which has a second owner, and `b`; a key, a name, a blob, an inbox."""
    make_store(path := memory_path / "store", "sqlite")
    blob = blobs.put(str(path), b'{"text":"large"}')
    stub = json.dumps({"$blob": blob, "bytes": 16}, separators=(",", ":")).encode()
    spilled = event("b", 1).replace(b'"data":{"text":"hello"}', b'"data":%b' % stub)
    tail = event("inbox-a", 0).partition(b'"seq":0,')[2]
    with closing(SqliteStore.open(str(path), is_gone=lambda owner: True, holder={})) as made:
        results = [
            *made.commit([create("a", event("a", 0) + event("a", 1)), create("b", event("b", 0), key="a name")]),
            *made.commit([Grant("a", owner("a-2")), Post("inbox-a", tail, "once", {"kind": "inbox"})]),
            *made.commit([Append("a", 2, 2, event("a", 2)), Append("b", 1, 1, spilled, {"blobs": [blob]})]),
        ]
        assert not any(isinstance(result, StorageError) for result in results), results
        yield path


def test_all_that_was_written_is_read_by_the_tables_alone(store: Path) -> None:
    """Also what is in the log still: events with position, epoch and digest, heads and summaries, but no runs."""
    stored = read_stored(store)
    assert (stored.faults, stored.runs) == ([], None)
    assert [(each.position, each.stream, each.seq, each.epoch) for each in stored.events] == [
        (1, "a", 0, 1),
        (2, "a", 1, 1),
        (3, "b", 0, 1),
        (4, "inbox-a", 0, 0),
        (5, "a", 2, 2),
        (6, "b", 1, 1),
    ]
    assert [stored.streams["b"][seq].digest for seq in (0, 1)] == [digest({"text": "hello"}), digest({"text": "large"})]
    assert stored.heads == {"a": 3, "b": 2, "inbox-a": 1}
    assert stored.summary("a")["owner"]["token"] == "a-2"
    assert stored.sessions() == ["a", "b"]
    assert not {"frame", "numbers", "epochs"} & judge(make_evidence(stored, [], is_settled=False)).counts.keys()


@pytest.mark.parametrize(
    ("change", "promises"),
    [
        ("UPDATE events SET epoch = 9 WHERE position = 2", {"frame", "epochs"}),
        ("UPDATE events SET epoch = 2 WHERE position = 2; UPDATE events SET epoch = 1 WHERE position = 5", {"epochs"}),
        ("UPDATE events SET seq = 7 WHERE position = 2", {"frame", "numbers"}),
        ("UPDATE events SET position = 77 WHERE position = 6", {"frame"}),
        ("UPDATE events SET line = (SELECT line FROM events WHERE position = 1) WHERE position = 2", {"frame"}),
        ("UPDATE events SET line = substr(line, 1, 9) WHERE position = 2", {"frame", "numbers"}),
        ("DELETE FROM events WHERE position = 6", {"frame", "numbers"}),
        ("UPDATE streams SET epoch = 1 WHERE id = 'a'", {"frame"}),
        ("UPDATE streams SET head = 2 WHERE id = 'a'", {"numbers"}),
        ("UPDATE streams SET position = 1 WHERE id = 'a'", {"frame"}),
        ("DELETE FROM streams WHERE id = 'b'", {"frame"}),
        ("UPDATE store SET next_position = 9", {"frame"}),
        ("UPDATE store SET uuid = 'another'", {"frame"}),
        ("UPDATE keys SET seq = 3", {"frame"}),
        ("UPDATE blobs SET seq = 3", {"frame"}),
        ("UPDATE names SET id = 'c'", {"frame"}),
    ],
)
def test_a_row_that_does_not_fit_the_others_is_found(store: Path, change: str, promises: set[str]) -> None:
    """An older row, a missing one, another one's: whatever a database can become that isn't written as it should."""
    with closing(sqlite3.connect(store / DATABASE)) as database:
        database.executescript(change)
    counts = judge(make_evidence(read_database(store), [], is_settled=False)).counts
    assert promises <= counts.keys()


def test_a_damaged_database_is_found(store: Path) -> None:
    """Whether SQLite can read it at all or not; and so is a blob that is another one."""
    next((store / "blobs").glob("*/*")).write_bytes(b'{"text":"other"}')
    assert [fault.stream for fault in read_database(store).faults] == ["b"]
    with closing(sqlite3.connect(store / DATABASE)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = (store / DATABASE).read_bytes()
    page = int.from_bytes(content[16:18], "big")
    spoiled = [content[: 3 * page] + bytes(page) + content[4 * page :], content[: 5 * page], b"not a database" * 1000]
    for each in spoiled:
        copy = store.with_name("copy")
        copy.mkdir(exist_ok=True)
        (copy / "store.json").write_bytes((store / "store.json").read_bytes())
        (copy / DATABASE).write_bytes(each)
        assert any(fault.stream is None for fault in read_database(copy).faults)
