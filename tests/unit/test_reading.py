"""Reading streams, lists and the whole journal, served and unserved, changing nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.storage.errors import NotFound
from turnkeeper.storage.index import Index
from turnkeeper.storage.index_records import Extent
from turnkeeper.storage.limits import EXTENTS_MAX
from turnkeeper.storage.reading import Reader, open_reader
from turnkeeper.storage.requests import Append

from ..stores import BOOT, StoreInTest, create, event, lines, new_store

EVENTS = 100


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreInTest]:
    """A store whose stream `a` has a hundred events in as many batches, more than one record's extents."""
    with new_store(tmp_path / "store") as made:
        journal = made.open()
        journal.commit([create("a", event("a", 0)), create("b", event("b", 0))])
        for seq in range(1, EVENTS):
            journal.commit([Append("a", 1, seq, event("a", seq))])
        yield made


@contextlib.contextmanager
def _reader(store: StoreInTest, state: str) -> Iterator[Reader]:
    """Open a reader beside a writer, on a clean store, or on a store whose writer was killed."""
    if state == "clean":
        store.close()
    elif state == "killed":
        store.kill()
    served = None if store.journal is None else store.journal.index_directory
    with contextlib.closing(open_reader(str(store.path), served)) as reader:
        yield reader


@pytest.mark.parametrize("state", ["served", "clean", "killed"])
@pytest.mark.parametrize(
    ("start", "stop", "limit", "expected"),
    [
        (0, None, 1000, range(EVENTS)),
        (50, None, 1000, range(50, EVENTS)),
        (0, 50, 1000, range(50)),
        (EXTENTS_MAX - 1, EXTENTS_MAX + 1, 1000, range(EXTENTS_MAX - 1, EXTENTS_MAX + 1)),
        (7, 8, 1000, range(7, 8)),
        (8, 7, 1000, range(0)),
        (0, None, 0, range(0)),
        (40, None, 3, range(40, 43)),
        (EVENTS, None, 1000, range(0)),
        (EVENTS + 50, None, 1000, range(0)),
        (0, EVENTS + 50, 1000, range(EVENTS)),
    ],
)
def test_bounds_of_a_read(
    store: StoreInTest, state: str, start: int, stop: int | None, limit: int, expected: range
) -> None:
    """Whole, from and to the middle, one, none, beyond the end: never an error, and each answer tells the head."""
    with _reader(store, state) as reader:
        page = reader.read("a", start=start, stop=stop, limit=limit)
    assert [stored.seq for stored in page.events] == list(expected)
    assert [stored.line + b"\n" for stored in page.events] == [event("a", seq) for seq in expected]
    assert (page.head, page.missing) == (EVENTS, [])


def test_negative_bounds_are_an_error(store: StoreInTest) -> None:
    """A bound below 0 is a mistake of the caller's."""
    with _reader(store, "served") as reader:
        for bounds in ({"start": -1}, {"stop": -1}, {"limit": -1}):
            with pytest.raises(ValueError, match="whole numbers from 0 on"):
                reader.read("a", **bounds)


@pytest.mark.parametrize("state", ["served", "clean", "killed"])
def test_positions_number_events_over_the_whole_store(store: StoreInTest, state: str) -> None:
    """A scan from any position gives what comes after it, in order, without hole or repeat; so do reads."""
    with _reader(store, state) as reader:
        positions: list[int] = []
        after = 0
        while True:
            found, reached, _ = reader.scan(after, size_max=700)
            positions += [stored.position for stored in found]
            if reached == after:
                break
            after = reached
        assert positions == list(range(1, EVENTS + 2))
        assert after == reader.next_position() - 1
        again = reader.scan(50).events
        assert [stored.position for stored in again] == list(range(51, EVENTS + 2))
        assert [stored.position for stored in reader.read("a", limit=1000).events] == [1, *range(3, EVENTS + 2)]


@pytest.mark.parametrize("state", ["served", "clean", "killed"])
def test_a_list_is_by_recency_and_paged(store: StoreInTest, state: str) -> None:
    """The stream that was committed to last comes first; pages are cut by position and id."""
    assert store.journal is not None
    store.journal.commit([create(f"s-{number}", event(f"s-{number}", 0)) for number in range(5)])
    store.journal.commit([Append("b", 1, 1, event("b", 1))])
    with _reader(store, state) as reader:
        rows = reader.rows(100)
        assert [row.id for row in rows] == ["b", "s-4", "s-3", "s-2", "s-1", "s-0", "a"]
        paged: list[str] = []
        before = None
        while page := reader.rows(2, before):
            paged += [row.id for row in page]
            before = (page[-1].position, page[-1].id)
        assert paged == [row.id for row in rows]


def test_an_unknown_stream_is_not_found_and_stays_unknown(store: StoreInTest) -> None:
    """Reading creates nothing."""
    with _reader(store, "served") as reader:
        for read in (lambda: reader.read("zz"), lambda: reader.row("zz"), lambda: reader.read_last("zz", 1)):
            with pytest.raises(NotFound):
                read()
        assert {row.id for row in reader.rows(10)} == {"a", "b"}


def test_the_newest_events_are_read_without_the_others(store: StoreInTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a suffix costs the suffix: it opens no extents before it."""
    with _reader(store, "clean") as reader:
        seen: list[int] = []
        original = reader._runs.contents

        def noting(extents: list[Extent]) -> list[bytes]:
            seen.extend(extent.first for extent in extents)
            return original(extents)

        monkeypatch.setattr(reader._runs, "contents", noting)
        assert [stored.seq for stored in reader.read_last("a", 3).events] == [97, 98, 99]
        assert seen == [97, 98, 99]


@pytest.mark.parametrize("state", ["clean", "killed"])
def test_reading_an_unserved_store_changes_nothing_on_disk(store: StoreInTest, state: str) -> None:
    """No byte and no name in the store changes, so a read-only copy will do."""
    (store.close if state == "clean" else store.kill)()
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in store.path.rglob("*")}
    with _reader(store, "as it is") as reader:
        assert reader.read("a", limit=10).head == EVENTS
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in store.path.rglob("*")} == before


def test_neighbours_are_read_in_one_go(store: StoreInTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred runs of a few hundred bytes with headers between them cost some reads, not a hundred."""
    with _reader(store, "clean") as reader:
        reads: list[int] = []
        original = reader._fs.read

        def noting(handle: int, offset: int, length: int) -> bytes:
            reads.append(length)
            return original(handle, offset, length)

        monkeypatch.setattr(reader._fs, "read", noting)
        assert len(reader.read("a").events) == EVENTS
        assert len(reads) < 5


def test_an_index_cannot_be_used_in_a_forked_child(store: StoreInTest) -> None:
    """It says so, instead of corrupting the parent's."""
    with _reader(store, "served") as reader:
        pid = os.fork()
        if pid == 0:
            try:
                reader.row("a")
            except RuntimeError:
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_an_index_in_memory_leaves_no_file() -> None:
    """What a reader builds for itself is gone with it."""
    index = Index.in_memory()
    with index.writing() as transaction:
        index.raise_head(transaction, "a", 3)
    with index.reading() as snapshot:
        state = index.snapshot_state(snapshot, "a")
    assert state is not None
    assert state.head == 3
    index.close()


@pytest.mark.parametrize("how", ["kept", "deleted", "of another boot", "a copy", "distrusted", "damaged record"])
def test_whatever_becomes_of_the_index_the_journal_wins(store: StoreInTest, how: str) -> None:
    """An index that may not be trusted is built anew, equal to the kept one entry for entry; answers stay the same."""
    assert store.journal is not None
    before, entries = store.events(), store.index_entries()
    store.kill()
    boot = BOOT
    if how == "deleted":
        store.delete_index()
    elif how == "of another boot":
        boot = "99999999-2222-3333-4444-555555555555"
    elif how == "a copy":
        name = next((store.path / "index").iterdir())
        data = name / "data.mdb"
        content = data.read_bytes()
        data.unlink()
        data.write_bytes(content)
    elif how == "damaged record":
        (store.path / "index.json").write_bytes(b"\0" * 100)
    journal = store.open(distrust=how == "distrusted", boot=boot)
    assert bool(journal.report.rebuilt) == (how != "kept")
    assert store.index_entries() == entries
    assert store.events() == before
    assert len(list((store.path / "index").iterdir())) == 1


def test_lines_of_a_run_are_read_with_their_neighbours(store: StoreInTest) -> None:
    """A run of many lines is cut to what was asked for."""
    assert store.journal is not None
    store.journal.commit([Append("b", 1, 1, lines("b", 1, 50))])
    with _reader(store, "clean") as reader:
        assert [stored.seq for stored in reader.read("b", start=20, stop=25).events] == list(range(20, 25))
