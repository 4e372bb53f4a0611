"""Each byte of a three-segment journal flipped, each sector zeroed: every answer is the same as before, or reported.

Reported means that verify finds it, and that reading says of each number below the head that is not given that it is
missing. No head goes back, whatever becomes of the index, once the damage was met with an index that could be trusted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.storage import journal as journal_module
from turnkeeper.storage.requests import Append
from turnkeeper.storage.verify import verify

from ..stores import StoreInTest, create, event, new_store
from .damaged_stores import STREAMS, is_reported, read_all

SEGMENT_BYTES = 64 * 1024
SECTOR_BYTES = 512
EVENTS_A_BATCH = 6
TEXT = "Whoever flips a bit of this is found out. " * 30


@pytest.fixture
def store(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreInTest]:
    """A cleanly closed store of three segments of 64 KiB, whose files are their batches and nothing else."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", SEGMENT_BYTES)
    with new_store(memory_path / "store") as made:
        journal = made.open()
        heads = dict.fromkeys(STREAMS, 0)
        step = 0
        while True:
            step += 1
            some = STREAMS[: 1 + step % 3] if step > 1 else STREAMS
            requests = []
            for stream in some:
                first = heads[stream]
                heads[stream] += EVENTS_A_BATCH // len(some)
                text = b"".join(event(stream, seq, f"{seq} {TEXT}") for seq in range(first, heads[stream]))
                requests.append(create(stream, text) if first == 0 else Append(stream, 1, first, text))
            journal.commit(requests)
            now = journal.statistics()
            if (now["segment"], now["end"] >= SEGMENT_BYTES) == (3, True):
                break
            journal.between_commits()
        made.close()
        for number in (1, 2, 3):
            made.segment(number).write_bytes(made.content(number))
        yield made


class SpoiledStore:
    """Spoils a place of a store, looks at it in every way, and puts everything back.

    It is put back into the same inodes: an index is trusted only for being the very file that was closed.
    """

    def __init__(self, store: StoreInTest, *, sectors: bool) -> None:
        self._store = store
        self._sectors = sectors
        self._path = store.path
        self._whole = read_all(store.path)
        self._heads = {stream: len(events) for stream, events in self._whole.items()}
        self._files = {file: file.read_bytes() for file in store.path.rglob("*") if file.is_file()}

    def look(self, segment: int, place: int) -> None:
        """Spoil a place; look with a trusted index, and with that deleted after the damage was served."""
        self._spoil(segment, place)
        verification = verify(str(self._path))
        assert is_reported(verification), (segment, place)
        self._check_reading()
        assert self._check_writing() == "", "the index is trusted"
        with self._index_aside():
            assert self._check_writing() != ""
        self._put_back()

    def look_without_index(self, segment: int, place: int) -> None:
        """Spoil a place, and look with the index gone before anybody saw the damage.

        Nothing then says whether a bad last batch was finished: it may be taken for a torn tail, and is reported.
        """
        with self._index_aside():
            self._spoil(segment, place)
            verification = verify(str(self._path))
            assert is_reported(verification), (segment, place)
            torn = verification.torn_tail is not None
            self._check_reading(torn)
            assert self._check_writing(torn) != ""
        self._put_back()

    def _spoil(self, segment: int, place: int) -> None:
        with self._store.segment(segment).open("r+b", buffering=0) as file:
            if self._sectors:
                os.pwrite(file.fileno(), bytes(len(os.pread(file.fileno(), SECTOR_BYTES, place))), place)
            else:
                byte = os.pread(file.fileno(), 1, place)[0]
                os.pwrite(file.fileno(), bytes([byte ^ 1 << place % 8]), place)

    def _check_reading(self, torn: bool = False, served_index: str | None = None) -> None:
        """See that every event given is the true one, that others are said to be missing, and that they are few."""
        found = read_all(self._path, served_index)
        for stream, events in found.items():
            assert all(self._whole[stream].get(seq) == line for seq, line in events.items())
        given = sum(map(len, found.values()))
        lost_max = 2 * EVENTS_A_BATCH if self._sectors else EVENTS_A_BATCH
        assert sum(self._heads.values()) - given <= lost_max, "it costs the batches that were hit, and no other"
        if not torn:
            # read_all has seen that each number below the head is given or said to be missing.
            assert found.keys() == self._whole.keys()

    def _check_writing(self, torn: bool = False) -> str:
        """Open for writing as a writer does, which may write down what is damaged; no number may be given twice.

        Gives why the index was built anew; empty if it wasn't.
        """
        journal = self._store.open()
        try:
            self._check_reading(torn, journal.index_directory)
            heads = {stream: journal.row(stream).head for stream in STREAMS}
            if torn:
                assert journal.report.quarantined
                assert all(heads[stream] <= head for stream, head in self._heads.items())
            else:
                assert heads == self._heads
            return journal.report.rebuilt
        finally:
            self._store.kill()

    @contextlib.contextmanager
    def _index_aside(self) -> Iterator[None]:
        """Let the index be gone meanwhile; what was built instead is deleted."""
        aside = self._path.with_name("aside")
        aside.mkdir()
        for name in ("index", "index.json"):
            os.rename(self._path / name, aside / name)
        try:
            yield
        finally:
            self._store.delete_index()
            for name in ("index", "index.json"):
                os.rename(aside / name, self._path / name)
            aside.rmdir()

    def _put_back(self) -> None:
        for directory in ("", "journal", "quarantine", "index"):
            for file in (self._path / directory).glob("*"):
                if file.is_file() and file not in self._files:
                    file.unlink()
        for file, content in self._files.items():
            with file.open("r+b", buffering=0) as opened:
                if opened.read() != content:
                    os.pwrite(opened.fileno(), content, 0)
                    opened.truncate(len(content))


def _spoil_every(store: StoreInTest, segment: int, step: int, *, sectors: bool = False) -> int:
    """Spoil every step-th byte, or sector; give how many."""
    spoiled = SpoiledStore(store, sectors=sectors)
    places = range(0, store.segment(segment).stat().st_size, step * (SECTOR_BYTES if sectors else 1))
    for place in places:
        spoiled.look(segment, place)
        spoiled.look_without_index(segment, place)
    return len(places)


@pytest.mark.parametrize("segment", [1, 2, 3])
def test_a_flipped_byte_is_reported_and_costs_one_batch_at_most(store: StoreInTest, segment: int) -> None:
    """With a trusted index, with it deleted afterwards, and without: a share of all bytes."""
    assert store.segment(segment).stat().st_size >= SEGMENT_BYTES
    assert _spoil_every(store, segment, 997) > 60


@pytest.mark.parametrize("segment", [1, 2, 3])
def test_a_zeroed_sector_is_reported_and_costs_two_batches_at_most(store: StoreInTest, segment: int) -> None:
    """The same for what a disk can't read any more: a share of all sectors."""
    assert _spoil_every(store, segment, 7, sectors=True) > 15


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("segment", [1, 2, 3])
def test_every_flipped_byte_is_reported_and_costs_one_batch_at_most(store: StoreInTest, segment: int) -> None:
    """The long form: every byte of each segment."""
    flips = _spoil_every(store, segment, 1)
    print(f"segment {segment}: {flips} bytes flipped")  # noqa: T201


@pytest.mark.long
@pytest.mark.parametrize("segment", [1, 2, 3])
def test_every_zeroed_sector_is_reported_and_costs_two_batches_at_most(store: StoreInTest, segment: int) -> None:
    """The long form: every sector of each segment."""
    assert _spoil_every(store, segment, 1, sectors=True) > 120
