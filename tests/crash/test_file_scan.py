"""Scanning files in columns gives what hopping their headers one by one gives, and stops where that has to judge."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.storage import journal as journal_module
from turnkeeper.storage.contract import post
from turnkeeper.storage.file_scan import FileScan, ScanRequest, scan_file, scan_segment
from turnkeeper.storage.filesystem import LocalFileSystem
from turnkeeper.storage.findings import Finding
from turnkeeper.storage.hopping import FileScanner, JournalHop
from turnkeeper.storage.index import Index
from turnkeeper.storage.requests import Append, Appended, Grant, Granted, Patch, Request
from turnkeeper.storage.scanning import open_segment
from turnkeeper.storage.verify import verify

from ..stores import StoreInTest, create, event, lines, new_store, owner

SEEDS = range(5)


class Program:
    """Random requests that succeed: streams of every kind, keys, posts, grants, forks, patches, in small segments."""

    def __init__(self, store: StoreInTest, seed: int) -> None:
        self.random = random.Random(seed)
        self.journal = store.open()
        self.heads: dict[str, int] = {}
        self.stored: dict[str, int] = {}
        self.epochs: dict[str, int] = {}

    def run(self, commits: int) -> None:
        """Commit some requests at a time, each of another stream."""
        for _ in range(commits):
            requests = [self.request(f"s{number}") for number in self.random.sample(range(40), 6)]
            for request, result in zip(requests, self.journal.commit(requests), strict=True):
                assert isinstance(result, Appended | Granted), result
                if isinstance(result, Granted):
                    self.epochs[request.stream] = result.epoch
            self.stored = dict(self.heads)
            self.journal.between_commits()

    def request(self, stream: str) -> Request:
        """Make the next request of a stream."""
        if int(stream[1:]) % 7 == 0:
            return post(stream, f"key {self.random.random()}")
        head, events = self.heads.get(stream), self.random.randrange(1, 4)
        if head is None:
            return self.first(stream, events)
        kind = self.random.randrange(10)
        if kind == 0:
            return Grant(stream, owner(f"{stream}-{self.random.random()}"))
        if kind == 1:
            return Patch(stream, {"title": self.random.choice(("a", "b", None)), "labels": {"n": str(head)}})
        self.heads[stream] = head + (1 if kind == 2 else events)
        if kind == 2:
            return Append(stream, self.epochs[stream], head, event(stream, head), key=f"{stream} {head}")
        patches: dict[int, dict[str, Any]] = {
            3: {"open_turn": head},
            4: {"open_turn": None},
            5: {"deleted_to": self.random.randrange(head + 1)},
        }
        return Append(stream, self.epochs[stream], head, lines(stream, head, events), patches.get(kind))

    def first(self, stream: str, events: int) -> Request:
        """Make a new stream, or a fork of one."""
        self.epochs[stream] = 1
        parents = [name for name, head in self.stored.items() if head > 3]
        if not parents or self.random.random() < 0.7:
            self.heads[stream] = events
            return create(stream, lines(stream, 0, events), key=f"key of {stream}")
        parent = self.random.choice(parents)
        begin = self.stored[parent] if self.journal.row(parent).summary.get("open_turn") is None else 0
        self.heads[stream] = begin + events
        header = {"kind": "session", "parent": parent, "parent_seq": begin}
        return Append(stream, 1, begin, lines(stream, begin, events), header, create=True)


@pytest.fixture
def store(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreInTest]:
    """A store with small segments."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 20_000)
    with new_store(memory_path / "store") as made:
        yield made


def hop(
    store: StoreInTest, *, one_by_one: bool = False, scan: FileScanner | None = None
) -> tuple[Index, list[Finding]]:
    """Build an index in memory of the store's headers; give it and what was found wrong."""
    index, findings = Index.in_memory(), list[Finding]()
    inspect = (lambda view, batch: None) if one_by_one else None
    fs = LocalFileSystem(str(store.path))
    end = JournalHop(fs, store.description.store, index, report=findings.append, inspect=inspect, scan=scan).run()
    assert end.segment is not None
    fs.close(end.segment.handle)
    return index, findings


@pytest.mark.parametrize("seed", SEEDS)
def test_an_index_built_from_scans_equals_the_kept_one(store: StoreInTest, seed: int) -> None:
    """Entry for entry, as does the one from single headers: forks, keys, grants, patches, several segments."""
    Program(store, seed).run(120)
    assert store.journal is not None
    assert store.journal.statistics()["segment"] >= 3
    kept = store.journal._index
    for one_by_one in (False, True):
        built, findings = hop(store, one_by_one=one_by_one)
        with contextlib.closing(built):
            assert findings == []
            assert built.first_difference(kept) is None
            assert built.entries() == kept.entries()


@pytest.mark.parametrize("seed", SEEDS)
def test_damage_is_found_as_without_scans(store: StoreInTest, seed: int) -> None:
    """One changed byte anywhere in a segment: the same findings, and the same index as header by header."""
    Program(store, seed).run(60)
    store.close()
    chance = random.Random(seed)
    segment = store.segment(2)
    whole = store.content(2)
    for _ in range(20):
        place = chance.randrange(len(whole))
        segment.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :])
        (scanned, found), (hopped, expected) = hop(store), hop(store, one_by_one=True)
        with contextlib.closing(scanned), contextlib.closing(hopped):
            assert found == expected
            assert scanned.entries() == hopped.entries()


def test_a_scan_covers_all_but_the_last_batch(store: StoreInTest) -> None:
    """The last batch of a file is left for the walk that can judge it; up to there the figures are the file's."""
    Program(store, 1).run(10)
    scan = scan_of(store)
    assert scan is not None
    assert (scan.first_batch, scan.batches) == (1, store.content().count(b'{"$batch":') - 1)
    last = store.content().rindex(b'{"$batch":')
    assert (scan.end, scan.bytes) == (last, last - store.content().index(b'{"$batch":'))


def test_a_scan_that_checks_events_ends_before_a_damaged_one(store: StoreInTest) -> None:
    """A flipped byte of an event doesn't end a scan of headers, but one that checks their bytes."""
    Program(store, 1).run(10)
    content = store.segment().read_bytes()
    place = content.index(b"hello", len(content.rstrip(b"\n")) // 2)
    store.segment().write_bytes(content[:place] + b"J" + content[place + 1 :])
    scan, checked = scan_of(store), scan_of(store, checks_events=True)
    assert scan is not None
    assert checked is not None
    assert checked.end < place < scan.end


@pytest.mark.parametrize(
    "header", [b"", b"\n", b'{"$segment":1}\n', b'{"$batch":1}\n', b"#" * 3000], ids=lambda each: each[:12].decode()
)
def test_a_file_that_begins_with_something_else_has_no_scan(store: StoreInTest, header: bytes) -> None:
    """Such a file needs a closer look from its first byte on."""
    Program(store, 1).run(3)
    store.segment().write_bytes(header)
    assert scan_of(store) is None


def test_a_scan_of_a_missing_file_is_none(store: StoreInTest) -> None:
    """The walk says why it can't be opened; a scan only doesn't help."""
    assert scan_file(ScanRequest(str(store.path), store.description.store, 9, 1 << 40, False)) is None


def test_a_scan_of_another_store_s_file_is_none(store: StoreInTest) -> None:
    """Its batches aren't this store's."""
    Program(store, 1).run(3)
    assert scan_file(ScanRequest(str(store.path), "0" * 36, 1, 1 << 40, False)) is None


def test_a_scan_goes_no_further_than_it_is_told(store: StoreInTest) -> None:
    """In a file that is being written, what lies behind the given size isn't looked at."""
    Program(store, 1).run(10)
    batches = [match.start() for match in re.finditer(rb'\{"\$batch":', store.content())]
    request = ScanRequest(str(store.path), store.description.store, 1, batches[4], True)
    scan = scan_file(request)
    assert scan is not None
    assert scan.batches == 3


def test_scans_made_elsewhere_are_used(store: StoreInTest) -> None:
    """Verify asks for all files at once, with their checksums, and counts what the scans hold."""
    Program(store, 2).run(120)
    store.close()
    expected = verify(str(store.path), deep=True)
    asked: list[ScanRequest] = []

    def scan_all(requests: Sequence[ScanRequest]) -> Generator[FileScan | None, None, None]:
        asked.extend(requests)
        yield from map(scan_file, requests)

    found = verify(str(store.path), scan=scan_all)
    assert [request.segment for request in asked] == list(range(1, expected.segments + 1))
    assert all(request.checks_events for request in asked)
    assert {**found.as_map(), "seconds": 0} == {**expected.as_map(), "seconds": 0}
    assert found.index_ok


def scan_of(store: StoreInTest, *, checks_events: bool = False) -> FileScan | None:
    """Scan the first file."""
    fs = LocalFileSystem(str(store.path))
    segment = open_segment(fs, 1, store.description.store)
    try:
        return scan_segment(segment, checks_events=checks_events)
    finally:
        fs.close(segment.handle)
