"""Walking the journal by position over damage: each position is given or told, whatever was hurt."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.storage.errors import ReadFailed
from turnkeeper.storage.filesystem import LocalFileSystem
from turnkeeper.storage.positions import PLACES_KEPT
from turnkeeper.storage.reading import Reader, open_reader
from turnkeeper.storage.requests import Append, LostEvents, StoredEvent
from turnkeeper.storage.scanning import Batch, SegmentView

from ..stores import StoreInTest, create, lines, new_store

WHOLE = [1, *range(2, 17)]
"""The positions: the first event of `a`, then five batches of two events of `a` and one of `b`."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreInTest]:
    """A store of two streams in six batches; event n of `a` says `hello n`, and of `b` `bye n`."""
    with new_store(tmp_path / "store") as made:
        journal = made.open()
        journal.commit([create("a", lines("a", 0, 1))])
        for n in range(5):
            b = Append("b", 1, n, lines("b", n, 1, "bye")) if n else create("b", lines("b", 0, 1, "bye"))
            journal.commit([Append("a", 1, 1 + 2 * n, lines("a", 1 + 2 * n, 2)), b])
        yield made


@contextlib.contextmanager
def reader_of(store: StoreInTest) -> Iterator[Reader]:
    """Open a reader, beside the writer if there is one."""
    served = None if store.journal is None else store.journal.index_directory
    with contextlib.closing(open_reader(str(store.path), served)) as reader:
        yield reader


def walked(reader: Reader, size_max: int) -> tuple[list[StoredEvent], list[LostEvents]]:
    """Walk over everything, page by page; each position has to be given or told once, in order."""
    events: list[StoredEvent] = []
    lost: list[LostEvents] = []
    after = 0
    while (page := reader.scan(after, size_max)).reached > after:
        settled = [event.position for event in page.events]
        for each in page.lost:
            settled += range(each.position, each.position + each.width)
        assert sorted(settled) == list(range(after + 1, page.reached + 1))
        events += page.events
        lost += page.lost
        after = page.reached
    assert after == reader.next_position() - 1 == 16
    return events, lost


def spoil(store: StoreInTest, old: bytes, new: bytes) -> None:
    """Put other bytes in the place of the first such ones in the journal."""
    path = store.segment()
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new.ljust(len(old), b"#"), 1))


@pytest.mark.parametrize("size_max", [1, 400, 1 << 20])
def test_a_damaged_run_is_told_in_its_place(store: StoreInTest, size_max: int) -> None:
    """With its stream, numbers and file; the other runs of its batch are given."""
    spoil(store, b"hello 4", b"jelly")
    with reader_of(store) as reader:
        events, lost = walked(reader, size_max)
    (only,) = lost
    assert (only.position, only.stream, only.gap.first, only.gap.events) == (5, "a", 3, 2)
    assert (only.gap.reason, only.gap.path) == ("its bytes don't fit their checksum", "00000001.jsonl")
    assert [event.position for event in events] == [each for each in WHOLE if each not in (5, 6)]


def test_a_walk_from_the_middle_of_a_damaged_run_tells_the_rest_of_it(store: StoreInTest) -> None:
    """What lies before the position isn't told."""
    spoil(store, b"hello 4", b"jelly")
    with reader_of(store) as reader:
        (lost,) = reader.scan(5).lost
    assert (lost.position, lost.gap.first, lost.gap.events) == (6, 4, 1)


@pytest.mark.parametrize("size_max", [1, 400, 1 << 20])
@pytest.mark.parametrize("batch", [1, 3, 6])
def test_batches_without_a_header_are_read_by_the_index(store: StoreInTest, batch: int, size_max: int) -> None:
    """The first, one in the middle and the last: nothing is lost, though no header leads to them."""
    spoil(store, b'{"$batch":%d,' % batch, b"")
    with reader_of(store) as reader:
        events, lost = walked(reader, size_max)
    assert lost == []
    assert [event.position for event in events] == WHOLE


def test_a_page_is_bounded_where_headers_are_missing_as_well(store: StoreInTest) -> None:
    """Of several batches without a header no more is read at once than of good ones."""
    for batch in (3, 4, 5):
        spoil(store, b'{"$batch":%d,' % batch, b"")
    with reader_of(store) as reader:
        assert [event.position for event in reader.scan(4, 1).events] == [5, 6]
        assert reader.scan(4, 1).reached == 6


@pytest.mark.parametrize("size_max", [1, 1 << 20])
def test_what_of_a_batch_without_a_header_is_damaged_too_is_told_of_its_stream(
    store: StoreInTest, size_max: int
) -> None:
    """The index says whose it was."""
    spoil(store, b'{"$batch":3,', b"")
    spoil(store, b"bye 1", b"by")
    with reader_of(store) as reader:
        events, lost = walked(reader, size_max)
    assert [(each.position, each.stream, each.gap.first, each.gap.events) for each in lost] == [(7, "b", 1, 1)]
    assert [event.position for event in events] == [each for each in WHOLE if each != 7]


@pytest.mark.parametrize("size_max", [1, 1 << 20])
def test_what_neither_header_nor_index_knows_is_told_as_nobodys(store: StoreInTest, size_max: int) -> None:
    """With the positions, and the place in the file from which on no header stands."""
    store.kill()
    store.delete_index()
    offset = store.content().index(b'{"$batch":3,')
    spoil(store, b'{"$batch":3,', b"")
    with reader_of(store) as reader:
        events, lost = walked(reader, size_max)
    (only,) = lost
    assert (only.position, only.stream, only.gap.events) == (5, "", 3)
    assert (only.gap.path, only.gap.offset) == ("00000001.jsonl", offset)
    assert [event.position for event in events] == [each for each in WHOLE if each not in (5, 6, 7)]


def test_a_file_that_is_gone_is_told_run_by_run(store: StoreInTest) -> None:
    """The index still knows whose events it held."""
    store.segment().unlink()
    with reader_of(store) as reader:
        events, lost = walked(reader, 1 << 20)
    assert events == []
    assert [(each.position, each.stream) for each in lost][:3] == [(1, "a"), (2, "a"), (4, "b")]
    assert {each.gap.reason for each in lost} == {"its file can't be read (No such file or directory)"}


@pytest.mark.parametrize("bad_read", range(1, 8))
def test_a_read_that_fails_passes_nothing_over(
    store: StoreInTest, monkeypatch: pytest.MonkeyPatch, bad_read: int
) -> None:
    """Whichever it is, of headers or of a run: the page ends before it, and is refused if it begins with it."""
    read, count = LocalFileSystem.read, 0

    def read_badly_twice(self: LocalFileSystem, handle: int, offset: int, length: int) -> bytes:
        nonlocal count
        count += 1
        if count in (bad_read, bad_read + 1):
            raise OSError(errno.EIO, "Input/output error")
        return read(self, handle, offset, length)

    positions: list[int] = []
    refusals: list[str] = []
    after = 0
    with reader_of(store) as reader:
        monkeypatch.setattr(LocalFileSystem, "read", read_badly_twice)
        while True:
            try:
                page = reader.scan(after)
            except ReadFailed as error:
                refusals.append(error.what)
                continue
            assert page.lost == []
            positions += [event.position for event in page.events]
            if page.reached == after:
                break
            after = page.reached
    assert count > bad_read
    assert positions == WHOLE
    assert len(refusals) in (1, 2)
    assert all("can't be read now (Input/output error)" in each for each in refusals)


def test_several_followers_each_go_on_where_they_were(store: StoreInTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """None makes another one hop to its place again: a page of one batch is one header, whoever had the page before."""
    headers, batch_at = 0, SegmentView.batch_at

    def count(self: SegmentView, offset: int) -> Batch | None:
        nonlocal headers
        headers += 1
        return batch_at(self, offset)

    monkeypatch.setattr(SegmentView, "batch_at", count)
    places = [0, 0, 0]
    with reader_of(store) as reader:
        for turn in [0, 0, 0, *(each for _ in range(3) for each in (1, 2, 0)), 2, 1, 2, 1, 2, 1]:
            headers = 0
            page = reader.scan(places[turn], 1)
            assert headers == 1
            assert page.events[0].position == places[turn] + 1
            places[turn] = page.reached
    assert places == [16, 16, 16]


def test_only_so_many_places_are_remembered(store: StoreInTest) -> None:
    """Whoever follows by great strides, for ever, leaves no more behind."""
    with reader_of(store) as reader:
        for _ in range(3):
            walked(reader, 1)
        assert len(reader._walk._places) == 6
        for place in range(1_000, 1_000 + 2 * PLACES_KEPT):
            reader._walk._keep((place, 1, 0))
        assert len(reader._walk._places) == PLACES_KEPT
