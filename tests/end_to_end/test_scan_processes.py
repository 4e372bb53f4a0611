"""End to end: files scanned by worker processes, as rebuild and verify of a large journal do."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.writer import scanning_files
from turnkeeper.actors.writer.scan_processes import scan_in_processes
from turnkeeper.actors.writer.scanning_files import scan_files
from turnkeeper.storage import journal as journal_module
from turnkeeper.storage.file_scan import ScanRequest, scan_file
from turnkeeper.storage.requests import Append
from turnkeeper.storage.verify import verify

from ..stores import StoreInTest, appended, create, lines, new_store

SEGMENTS = 6


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreInTest]:
    """A closed store of some small segments."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 4000)
    with new_store(tmp_path / "store") as made:
        journal = made.open()
        appended(journal, create("a", lines("a", 0, 3)))
        while journal.statistics()["segment"] < SEGMENTS:
            head = journal.row("a").head
            appended(journal, Append("a", 1, head, lines("a", head, 3)))
            journal.between_commits()
        made.close()
        yield made


def requests_of(store: StoreInTest) -> list[ScanRequest]:
    """Ask for every file."""
    id = store.description.store
    return [ScanRequest(str(store.path), id, number, 1 << 40, True) for number in range(1, SEGMENTS + 1)]


def children() -> set[int]:
    """Give the processes that this one has started and not waited for."""
    found = set()
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                status = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if int(status[1]) == os.getpid():
                    found.add(int(entry))
    return found


def hold_back(store: StoreInTest, segment: int) -> None:
    """Put something in a file's place that whoever opens it waits for, for ever."""
    store.segment(segment).unlink()
    os.mkfifo(store.segment(segment))


class Deadly:
    """A request that kills the process which receives it."""

    def __reduce__(self) -> Any:
        return os._exit, (9,)


def test_processes_give_the_scans_that_this_one_would_make_and_are_gone(store: StoreInTest) -> None:
    """In the order of the requests; when the last is taken, no process is left."""
    before = children()
    requests = requests_of(store)
    assert list(scan_in_processes(requests, 2)) == list(map(scan_file, requests))
    assert children() == before


def test_giving_up_ends_scans_that_run(store: StoreInTest) -> None:
    """Who takes no more results waits for no scan, not even for one that never ends."""
    before = children()
    hold_back(store, 2)
    scans = scan_in_processes(requests_of(store), 2)
    assert next(scans) is not None
    scans.close()
    assert children() == before


def test_a_worker_that_dies_costs_one_scan(store: StoreInTest) -> None:
    """The file that it was at has no scan, all others have theirs, and the caller isn't disturbed."""
    before = children()
    requests: list[Any] = [Deadly(), *requests_of(store)]
    assert list(scan_in_processes(requests, 2)) == [None, *map(scan_file, requests[1:])]
    assert children() == before


def test_verify_by_processes_finds_what_it_finds_alone(store: StoreInTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged event and a lost header in different files: the same figures and findings."""
    for number, what in ((2, b"hello"), (4, b'{"$batch":')):
        content = store.segment(number).read_bytes()
        place = content.index(what, len(content.rstrip(b"\n")) // 2)
        store.segment(number).write_bytes(content[:place] + b"#" + content[place + 1 :])
    alone = verify(str(store.path))
    assert {finding.segment for finding in alone.damaged} == {"00000002.jsonl", "00000004.jsonl"}
    monkeypatch.setattr(scanning_files, "PARALLEL_BYTES_MIN", 1)
    monkeypatch.setattr(scanning_files, "available_cores", lambda: 2)
    before, done = children(), list[int]()
    found = verify(str(store.path), scan=scan_files, progress=lambda now, total: done.append(now))
    assert {**found.as_map(), "seconds": 0} == {**alone.as_map(), "seconds": 0}
    assert done == sorted(done)
    assert len(done) >= SEGMENTS
    assert children() == before


def test_a_writer_that_rebuilds_by_processes_gets_the_index_that_was_kept(
    store: StoreInTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entry for entry, and the processes have ended before it serves."""
    store.open()
    kept, before = store.index_entries(), children()
    store.kill()
    monkeypatch.setattr(scanning_files, "PARALLEL_BYTES_MIN", 1)
    monkeypatch.setattr(scanning_files, "available_cores", lambda: 2)
    store.open(distrust=True, scan=scan_files)
    assert children() == before
    assert store.index_entries() == kept


def test_a_small_journal_is_scanned_without_processes(store: StoreInTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started for what takes no time, nor where there is one core."""
    monkeypatch.setitem(sys.modules, scan_in_processes.__module__, None)
    requests = requests_of(store)
    small = [request._replace(size=4000) for request in requests]
    assert list(scan_files(small)) == list(map(scan_file, small))
    monkeypatch.setattr(scanning_files, "available_cores", lambda: 1)
    assert list(scan_files(requests)) == list(map(scan_file, requests))
