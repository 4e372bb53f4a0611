"""Forks by reference, deletion as a record, and lists that leave out what is deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.storage.errors import Ambiguous, Exists, InvalidFork, InvalidLine, NotFound
from turnkeeper.storage.format import Run, encode_run
from turnkeeper.storage.journal import Journal
from turnkeeper.storage.reading import Reader, open_reader
from turnkeeper.storage.requests import Append, Patch

from ..stores import StoreInTest, appended, commit_one, create, event, lines, new_store, owner


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreInTest]:
    """A store whose stream `p` has ten events in five batches."""
    with new_store(tmp_path / "store") as made:
        journal = made.open()
        appended(journal, create("p", lines("p", 0, 2), key="parent", cwd="/a", labels={"team": "red"}))
        for seq in range(2, 10, 2):
            appended(journal, Append("p", 1, seq, lines("p", seq, 2)))
        yield made


@pytest.fixture
def journal(store: StoreInTest) -> Journal:
    """The open journal of the store."""
    assert store.journal is not None
    return store.journal


@contextlib.contextmanager
def _reader(store: StoreInTest) -> Iterator[Reader]:
    served = None if store.journal is None else store.journal.index_directory
    with contextlib.closing(open_reader(str(store.path), served)) as reader:
        yield reader


def _fork(child: str, parent: str, seq: int, text: bytes = b"", **header: Any) -> Append:
    patch = {"kind": "session", "owner": owner(child), "parent": parent, "parent_seq": seq, **header}
    return Append(child, 1, seq, text, patch, create=True)


def _seqs(store: StoreInTest, id: str, **bounds: int) -> list[tuple[str, int]]:
    with _reader(store) as reader:
        page = reader.read(id, **bounds)
        assert page.missing == []
        return [(stored.stream, stored.seq) for stored in page.events]


def test_a_fork_reads_its_parents_beginning_and_then_its_own(store: StoreInTest, journal: Journal) -> None:
    """One numbering and no copies: a fork's events go on from where it left its parent."""
    size = journal.statistics()["end"]
    appended(journal, _fork("c", "p", 3, event("c", 3)))
    assert journal.statistics()["end"] - size < 600, "nothing of the parent is copied"
    appended(journal, Append("c", 1, 4, event("c", 4)))
    appended(journal, Append("p", 1, 10, event("p", 10)))
    expected = [("p", 0), ("p", 1), ("p", 2), ("c", 3), ("c", 4)]
    for state in ("served", "rebuilt"):
        if state == "rebuilt":
            store.kill()
            store.delete_index()
            store.open()
            assert store.journal is not None
            assert store.journal.report.findings == []
        assert _seqs(store, "c") == expected
        assert _seqs(store, "c", start=2, stop=4) == expected[2:4]
        assert _seqs(store, "c", limit=4) == expected[:4]
        assert len(_seqs(store, "p")) == 11


def test_a_fork_of_a_fork_reads_through_both(store: StoreInTest, journal: Journal) -> None:
    """Each level gives its part."""
    appended(journal, _fork("c", "p", 3, event("c", 3)))
    appended(journal, _fork("d", "c", 4, event("d", 4)))
    appended(journal, _fork("e", "c", 2))
    assert _seqs(store, "d") == [("p", 0), ("p", 1), ("p", 2), ("c", 3), ("d", 4)]
    assert _seqs(store, "e") == [("p", 0), ("p", 1)]
    assert journal.row("e").head == 2


@pytest.mark.parametrize(
    ("parent", "seq", "why"),
    [("missing", 0, "no such stream"), ("p", 11, "10 events"), ("p", -1, "number of events"), ("p", 9, "turn")],
)
def test_a_fork_that_cannot_be_is_refused(journal: Journal, parent: str, seq: int, why: str) -> None:
    """An unknown parent, a place beyond its head or inside its open turn: nothing is stored."""
    appended(journal, Append("p", 1, 10, b"", {"open_turn": 8}))
    answer = commit_one(journal, _fork("c", parent, seq))
    assert isinstance(answer, InvalidFork)
    assert why in str(answer)
    with pytest.raises(NotFound):
        journal.row("c")
    appended(journal, _fork("c", "p", 8))


def test_a_fork_outlives_the_deletion_of_what_it_needs(store: StoreInTest, journal: Journal) -> None:
    """Deleting the parent, or its beginning, takes nothing from a living fork."""
    appended(journal, _fork("c", "p", 3, event("c", 3)))
    appended(journal, Append("p", 1, 10, b"", {"deleted_to": 4}))
    assert [seq for _, seq in _seqs(store, "p")] == list(range(4, 10))
    assert [seq for _, seq in _seqs(store, "c")] == [0, 1, 2, 3]
    assert isinstance(commit_one(journal, _fork("d", "p", 4)), InvalidFork)
    assert not isinstance(commit_one(journal, Patch("p", {"deleted": 1})), Exception)
    assert isinstance(commit_one(journal, _fork("e", "p", 6)), InvalidFork)
    assert [seq for _, seq in _seqs(store, "c")] == [0, 1, 2, 3]


def test_a_deleted_beginning_never_comes_back_and_the_head_stays(store: StoreInTest, journal: Journal) -> None:
    """Bounds inside the deleted part give what survives; a smaller mark changes nothing; numbers go on."""
    appended(journal, Append("p", 1, 10, b"", {"deleted_to": 6}))
    appended(journal, Append("p", 1, 10, b"", {"deleted_to": 2}))
    assert [seq for _, seq in _seqs(store, "p", start=1, stop=8)] == [6, 7]
    assert _seqs(store, "p", stop=5) == []
    assert appended(journal, Append("p", 1, 10, event("p", 10))).head == 11
    store.kill()
    store.delete_index()
    store.open()
    assert [seq for _, seq in _seqs(store, "p")] == list(range(6, 11))


def test_deletion_is_a_record_that_anyone_may_make_and_unmake(store: StoreInTest, journal: Journal) -> None:
    """A deleted stream is not listed and answers to its whole id alone; undeleted it is as before."""
    appended(journal, create("plum", event("plum", 0)))
    assert not isinstance(commit_one(journal, Patch("p", {"deleted": 1_700_000_000_000})), Exception)
    with _reader(store) as reader:
        assert [row.id for row in reader.rows(10)] == ["plum"]
        assert {row.id for row in reader.rows(10, include_deleted=True)} == {"plum", "p"}
        assert reader.resolve("p") == "p"
        assert reader.resolve("pl") == "plum"
        with pytest.raises(NotFound):
            reader.resolve("parent")
        assert len(reader.read("p").events) == 10
    assert isinstance(commit_one(journal, create("q", event("q", 0), key="parent")), Exists), "its key stays taken"
    assert not isinstance(commit_one(journal, Patch("p", {"deleted": None})), Exception)
    with _reader(store) as reader:
        assert reader.resolve("parent") == "p"
        assert {row.id for row in reader.rows(10)} == {"plum", "p"}
    assert appended(journal, Append("p", 1, 10, event("p", 10))).head == 11


def test_only_its_owner_changes_the_rest_of_a_summary(journal: Journal) -> None:
    """Title, labels and deletion are anyone's; an owner or a turn is not."""
    assert not isinstance(commit_one(journal, Patch("p", {"title": "new", "labels": {"team": "blue"}})), Exception)
    assert journal.row("p").summary["title"] == "new"
    assert isinstance(commit_one(journal, Patch("p", {"owner": None})), InvalidLine)
    assert isinstance(commit_one(journal, Patch("missing", {"title": "x"})), NotFound)


def test_lists_are_filtered_by_what_the_summary_says(store: StoreInTest, journal: Journal) -> None:
    """By kind, working directory, parent and label."""
    appended(journal, create("q", event("q", 0), cwd="/b", labels={"team": "red"}))
    appended(journal, _fork("c", "p", 3, event("c", 3), cwd="/b"))
    with _reader(store) as reader:
        assert [row.id for row in reader.rows(10, label=("team", "red"))] == ["q", "p"]
        assert [row.id for row in reader.rows(10, cwd="/b")] == ["c", "q"]
        assert [row.id for row in reader.rows(10, parent="p")] == ["c"]
        assert reader.rows(10, kind="task") == []


def test_an_ambiguous_prefix_counts_living_streams_only(store: StoreInTest, journal: Journal) -> None:
    """Deleting all but one of the candidates makes their prefix unique."""
    for id in ("owl-1", "owl-2"):
        appended(journal, create(id, event(id, 0)))
    with pytest.raises(Ambiguous):
        journal.resolve("owl")
    commit_one(journal, Patch("owl-1", {"deleted": 5}))
    assert journal.resolve("owl") == "owl-2"


def test_a_deleted_beginning_is_not_taken_back_by_a_header_that_says_null(store: StoreInTest, journal: Journal) -> None:
    """Null removes what a patch names, but never this mark, whoever wrote the header."""
    appended(journal, Append("p", 1, 10, b"", {"deleted_to": 4}))
    run = Run("p", 1, 10, 0, 0, 0, {"deleted_to": None})
    assert journal._write_batch([encode_run(run)], [run], b"") is None
    store.close()
    store.delete_index()
    assert store.open().row("p").summary["deleted_to"] == 4
