"""What a copy of a store may have lost whose bytes were changed or cut, computed from the bytes; and what must be said.

The store and its copy are compared where the store's own headers say that each run lies. What is the same there must be
read as before, whatever became of the bytes beside it. What isn't may be missing, and then somebody must say so: the
reading itself, or a verification, of that place or those events. A copy is the same, or it is reported; it is never
silently shorter, and never has anything that wasn't stored.

One loss nobody can report: whole batches off the end, of which nothing is left and that no witness has seen. The copy
is then a store in which they were never written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...demonstration.oracle import digest
from .journal import BatchPlace, RunPlace, SegmentPlace, read_segments
from .stored import Stored, StoredEvent
from .violations import Violation

_FILLING: Final = b"\n\0"


class Harm(NamedTuple):
    """Where the batch lay of which some bytes are no longer there; `is_gone`: all of it is cut off, or filling."""

    file: str
    offset: int
    end: int
    is_gone: bool


@dataclass(frozen=True, slots=True)
class Loss:
    """What a copy may have lost: its harmed events by stream and number.

    Of the `unnamed` streams the first run's header is harmed, which alone says what they are. Of those `brought_back`
    it is one that says that they are no longer deleted: without it they are. `may_be_silent`: nobody can tell that
    something is missing.
    """

    harmed: Mapping[str, Mapping[int, Harm]] = field(default_factory=dict)
    unnamed: frozenset[str] = frozenset()
    brought_back: frozenset[str] = frozenset()
    may_be_silent: bool = False

    @property
    def events(self) -> int:
        """How many events are harmed."""
        return sum(map(len, self.harmed.values()))


@dataclass(frozen=True, slots=True)
class CopyReading:
    """What the product says of a copy.

    `events` are those that it gives of each session, as [number, type, digest]; `missing` the ranges that it says
    can't be read, as [first, events]; `refused` why a session can't be read at all. `verification` is what `journal
    verify` gives as JSON.
    """

    verification: Mapping[str, Any]
    events: Mapping[str, Sequence[Sequence[Any]]]
    missing: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_reported(self) -> bool:
        """Say whether anything was found to be wrong at all."""
        return bool(self.verification["damaged"]) or self.verification["torn_tail"] is not None

    @property
    def findings(self) -> list[Mapping[str, Any]]:
        """Give all that was found."""
        torn = self.verification["torn_tail"]
        return [*self.verification["damaged"], *([] if torn is None else [torn])]


def expected_loss(store: Path, copy: Path) -> Loss:
    """Compare a copy's bytes with the store's, which must be whole."""
    segments = read_segments(store)
    batches = [each for segment in segments for each in _harmed_batches(segment, copy)]
    seen = _witnessed(copy)
    harmed: dict[str, dict[int, Harm]] = {}
    unnamed: set[str] = set()
    named: set[str] = set()
    brought_back: set[str] = set()
    may_end = _may_end(segments, copy)
    is_end = may_end
    for batch, of_header, of_runs in reversed(batches):
        # At the end, and seen by no witness, a batch counts whole or not at all: it may never have been finished.
        harms = [of_header or harm for harm in of_runs]
        is_end = is_end and batch.number > seen and any(harms)
        whole = next(filter(None, harms), None) if is_end else None
        for run, harm in zip(batch.runs, harms, strict=True):
            if (found := harm or whole) is not None:
                harmed.setdefault(run.stream, {}).update(dict.fromkeys(_seqs(run), found))
    for batch, of_header, _ in batches:
        unnamed |= {run.stream for run in batch.runs if of_header} - named
        named |= {run.stream for run in batch.runs}
        brought_back |= {run.stream for run in batch.runs if of_header and run.patch.get("deleted", "") is None}
    for stream, seqs in _harmed_blobs(store, copy).items():
        harmed.setdefault(stream, {}).update(seqs)
    return Loss(harmed, frozenset(unnamed), frozenset(brought_back), may_end and _may_be_silent(batches, seen))


class _HarmedBatch(NamedTuple):
    """A batch, and what became of its header and of each of its runs."""

    batch: BatchPlace
    of_header: Harm | None
    of_runs: list[Harm | None]


def _harmed_batches(segment: SegmentPlace, copy: Path) -> Iterator[_HarmedBatch]:
    copied = _content(copy / "journal" / segment.file)
    for batch in segment.batches:
        header_end = batch.runs[0].offset if batch.runs else batch.end
        of_header = _harm(segment, copied, batch, batch.offset, header_end)
        of_runs = [_harm(segment, copied, batch, run.offset, run.offset + run.size) for run in batch.runs]
        yield _HarmedBatch(batch, of_header, of_runs)


def _may_end(segments: Sequence[SegmentPlace], copy: Path) -> bool:
    """Say whether the last batch may be the one that the journal ends with: a file behind it would tell of it."""
    if not segments or segments[-1].batches:
        return True
    header = segments[-1].content.partition(b"\n")[0]
    return not _content(copy / "journal" / segments[-1].file).startswith(header)


def _seqs(run: RunPlace) -> range:
    return range(run.seq, run.seq + run.events)


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _harm(segment: SegmentPlace, copied: bytes, batch: BatchPlace, begin: int, end: int) -> Harm | None:
    """Say what became of some bytes of a batch; None if they are the same."""
    if copied[begin:end] == segment.content[begin:end]:
        return None
    is_gone = not copied[batch.offset : batch.end].strip(_FILLING)
    return Harm(segment.file, batch.offset, batch.end, is_gone)


def _harmed_blobs(store: Path, copy: Path) -> dict[str, dict[int, Harm]]:
    """Give the events whose data was spilled into a blob that is another one in the copy, or isn't there."""
    changed = {
        path.name
        for path in (store / "blobs").glob("*/*")
        if _content(copy / path.relative_to(store)) != path.read_bytes()
    }
    harmed: dict[str, dict[int, Harm]] = {}
    if changed:
        for stream, seq, name in _spilled(store):
            if name in changed:
                place = Harm(f"blobs/{name[:2]}/{name}", 0, 0, is_gone=False)
                harmed.setdefault(stream, {})[seq] = place
    return harmed


def _spilled(store: Path) -> Iterator[tuple[str, int, str]]:
    """Give the events whose data lies in a blob, and its name."""
    for segment in read_segments(store):
        for run in (run for batch in segment.batches for run in batch.runs):
            lines = segment.content[run.offset : run.offset + run.size]
            for seq, line in enumerate(lines.split(b"\n")[:-1] if b'"$blob"' in lines else [], run.seq):
                yield run.stream, seq, json.loads(line)["data"].get("$blob", "")


def _may_be_silent(batches: Sequence[_HarmedBatch], seen: int) -> bool:
    """Say whether what is harmed are whole batches off the end, gone, and later than the copy's witness has seen."""
    harms = [[harm for harm in (of_header, *of_runs) if harm is not None] for _, of_header, of_runs in batches]
    places = [place for place, each in enumerate(harms) if each]
    if not places or places != list(range(places[0], len(batches))):
        return False
    are_gone = all(harm.is_gone for each in harms[places[0] :] for harm in each)
    return are_gone and seen < batches[places[0]].batch.number


def _witnessed(copy: Path) -> int:
    """Give the last batch that the copy's index record says was acknowledged; 0 if there is none."""
    try:
        witness = json.loads((copy / "index.json").read_bytes())["witness"]
        return int(witness["batch"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


# -- The judgement


def copy_is_same_or_reported(stored: Stored, loss: Loss, reading: CopyReading) -> Iterator[Violation]:
    """What is unharmed is read as it was stored, what is harmed is read or reported, and nothing else is there."""
    if loss.events and not loss.may_be_silent and not reading.is_reported:
        yield Violation("same or reported", "copy", f"{loss.events} events are harmed, and verify finds nothing wrong")
    is_told = reading.is_reported or loss.may_be_silent
    deleted_there = loss.brought_back - reading.events.keys() if is_told else frozenset()
    for session in stored.sessions():
        if not stored.is_deleted(session) and session not in deleted_there:
            yield from _judge_session(session, stored, loss, reading)
    for session in sorted(reading.events.keys() - stored.streams.keys()):
        yield Violation("same or reported", session, "it is in the copy, and was never stored")


def _judge_session(session: str, stored: Stored, loss: Loss, reading: CopyReading) -> Iterator[Violation]:
    read = {int(seq): (type, digest) for seq, type, digest in reading.events.get(session, ())}
    is_nameless = not loss.unnamed.isdisjoint(_line_of(session, stored))
    due = {event.seq: event for event in stored.whole(session)}
    for seq in _closing_seqs(read, due, loss):
        if seq not in due or read[seq] != (due[seq].type, due[seq].digest):
            del read[seq]
    for seq in sorted(read.keys() - due.keys()):
        yield Violation("same or reported", session, f"event {seq} is read, and was never stored", seq)
    for seq, event in due.items():
        found = read.get(seq)
        harm = loss.harmed.get(event.stream, {}).get(seq)
        if found == (event.type, event.digest):
            continue
        if found is not None:
            says = f"event {seq} was {event.type} {event.digest}, and is read as {found[0]} {found[1]}"
            yield Violation("same or reported", session, says, seq)
        elif harm is None and not is_nameless:
            yield Violation("same or reported", session, f"event {seq} is unharmed, and isn't read", seq)
        elif not loss.may_be_silent and not _is_reported(event, harm, session, reading):
            yield Violation("same or reported", session, f"event {seq} isn't read, and nobody says so", seq)


def _closing_seqs(read: Mapping[int, tuple[str, str]], due: Mapping[int, StoredEvent], loss: Loss) -> list[int]:
    """Give the numbers under which a turn is closed whose rest is lost, with all that comes behind it.

    Whoever reads a session that nobody owns any more is shown it as its next opening will leave it.
    """
    end = 1 + max((seq for seq, event in due.items() if seq not in loss.harmed.get(event.stream, ())), default=-1)
    seqs = sorted(seq for seq in read if seq >= end)
    turns = [event for seq, event in due.items() if seq < end and event.type in ("turn/start", "turn/end")]
    if (
        not seqs
        or end not in due
        or not turns
        or turns[-1].type == "turn/end"
        or seqs != list(range(end, end + len(seqs)))
    ):
        return []
    interrupted = digest({"turn": turns[-1].data.get("turn"), "reason": "interrupted"})
    *answers, last = [read[seq] for seq in seqs]
    is_closing = last == ("turn/end", interrupted) and all(type == "tool/finished" for type, _ in answers)
    return seqs if is_closing else []


def _line_of(session: str, stored: Stored) -> Iterator[str]:
    """Give a session and those that it has its beginning of."""
    while session in stored.streams:
        yield session
        if not stored.begin(session):
            break
        session = str(stored.summary(session)["parent"])


def _is_reported(event: StoredEvent, harm: Harm | None, session: str, reading: CopyReading) -> bool:
    """Say whether somebody tells that this event can't be read: by its number or its place; if that is gone, at all."""
    if session in reading.refused or _is_in(event.seq, reading.missing.get(session, ())):
        return True
    if harm is None or harm.is_gone or session not in reading.events:
        return reading.is_reported
    for finding in reading.findings:
        ranges = {each["stream"]: each["seqs"] for each in finding["streams"]}
        if any(first <= event.seq <= last for first, last in ranges.get(event.stream, ())):
            return True
        begin, length = finding["offset"], finding["length"]
        reaches = harm.offset <= begin + length if length else True  # without a length: what is missing from there on
        if Path(finding["segment"]).name == Path(harm.file).name and begin <= harm.end and reaches:
            return True
    return False


def _is_in(seq: int, ranges: Sequence[Sequence[int]]) -> bool:
    return any(first <= seq < first + events for first, events in ranges)
