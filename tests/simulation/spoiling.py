"""What follows some stories: a byte in the journal's middle is spoiled, and the store is opened and read once more.

What that may cost is worked out from the bytes alone, by the oracle's reading of them: only events of runs that it
can't read any more. All others have to be read, under their numbers, and what is missing has to be named; and nothing
of what lay in the files may be gone from them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from turnkeeper.benchmarks.chaos.checker.journal import SegmentPlace, segments_in, stored_in
from turnkeeper.storage.journal import Journal
from turnkeeper.storage.reading import Reader

if TYPE_CHECKING:
    from .processes import Machine


class _Reading(NamedTuple):
    """What was read of a stream: the numbers of its events, those that are told to be missing, and its head."""

    read: set[int]
    missing: set[int]
    head: int


def spoil_and_read(machine: Machine) -> list[str]:
    """Spoil a byte of a batch that isn't the last one, if there is one; say what is wrong with what is read then."""
    segments = segments_in(journal_files(machine))
    batches = [batch for segment in segments for batch in segment.batches][:-1]
    if not batches:
        return []
    batch = machine.rng.choice(batches)
    offset = machine.rng.randrange(batch.offset, batch.end)
    machine.tell(f"byte {offset} of {batch.file}, in batch {batch.number}, is spoiled")
    machine.disk.spoil(f"journal/{batch.file}", offset)
    if machine.rng.random() < 0.5:
        machine.disk.remove("index.json")
    before = journal_files(machine)
    found = _read(machine)
    after = journal_files(machine)
    gone = [name for name, content in before.items() if not after.get(name, b"").startswith(content.rstrip(b"\n\0"))]
    return [*_differences(machine, segments_in(before), found), *(f"bytes of {name} are gone" for name in gone)]


def journal_files(machine: Machine) -> dict[str, bytes]:
    """Give the contents of the journal's files by their names."""
    files = machine.disk.contents().items()
    return {name.removeprefix("journal/"): content for name, content in files if name.endswith(".jsonl")}


def _read(machine: Machine) -> dict[str, _Reading]:
    """Open the store and read every stream."""
    disk = machine.disk
    journal = Journal.open(str(disk.index_root), boot="afterwards", is_gone=lambda who: True, holder={}, fs=disk)
    try:
        with journal._index.reading() as snapshot:
            streams = journal._index.streams_beginning(snapshot, "", 1_000_000)
        found = {}
        with contextlib.closing(Reader(str(disk.index_root), journal._index, disk, contextlib.ExitStack())) as reader:
            for stream in streams:
                page = reader.read(stream, limit=1_000_000)
                missing = {seq for gap in page.missing for seq in range(gap.first, gap.first + gap.events)}
                found[stream] = _Reading({event.seq for event in page.events}, missing, page.head)
        return found
    finally:
        journal.close()


def _differences(machine: Machine, segments: list[SegmentPlace], found: dict[str, _Reading]) -> list[str]:
    wrong: list[str] = []
    stored = stored_in(segments, machine.disk.index_root)
    for event in stored.events:
        if event.stream not in found or event.seq not in found[event.stream].read:
            wrong.append(f"number {event.seq} of {event.stream} lies there whole, and isn't read")
    for stream, reading in found.items():
        holes = set(range(reading.head)) - reading.read - reading.missing
        wrong += [f"number {seq} of {stream} is missing, and nobody says so" for seq in sorted(holes)]
    return wrong
