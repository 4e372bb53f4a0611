"""Reads a journal's files by their format alone: every byte is one of a segment line, a batch, or filling.

    {"$segment":N,"format":1,"store":"UUID","created":MS,"first":N,"h":"XXXXXXXX"}
    {"$batch":N,"position":P,"time":MS,"bytes":B,"streams":[[ID,EPOCH,SEQ,COUNT,BYTES,CRC(,PATCH)],…],"prev":"…","h":"…"}
    {"stream":"ID","seq":N,"time":MS,"type":"…","data":{…}}

A control line's `h` is the CRC-32 of its bytes before `,"h":"`, `prev` the `h` before it in its file, CRC that of a
run's lines. Batches count from 1, positions number the events from 1, over all files. Whatever is otherwise is a fault
and the walk goes on behind it; events in it are not there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

from ...demonstration.oracle import digest, whole_data
from .stored import LINE_CHARACTERS, Fault, Run, Stored, StoredEvent, needed_of

_SEAL_BYTES: Final = len(',"h":"XXXXXXXX"}\n')
_SEGMENT, _BATCH = b'{"$segment":', b'{"$batch":'
_CONTENT: Final = re.compile(rb"[^\n\0]")
_CONTROL: Final = re.compile(rb'\{"\$batch":[^\n]*,"h":"[0-9a-f]{8}"\}\n')
_MEMBERS: Final = ["stream", "seq", "time", "type", "data"]


class BatchPlace(NamedTuple):
    """Where a batch lies, and what its header says; `end` is where the next one begins."""

    file: str
    offset: int
    end: int
    number: int
    position: int
    prev: str
    h: str
    runs: list[RunPlace]


class RunPlace(NamedTuple):
    """Where a run's lines lie, and what the header says of them."""

    stream: str
    epoch: int
    seq: int
    events: int
    offset: int
    size: int
    crc: int
    patch: dict[str, Any]


class SegmentPlace(NamedTuple):
    """A file: what its first line says, None where it is damaged, and its batches; `faults` are of its frame alone."""

    file: str
    content: bytes
    header: dict[str, Any] | None
    batches: list[BatchPlace]
    faults: list[Fault]


def read_journal(store: Path) -> Stored:
    """Read a store's journal whole, events with the data that was spilled, and find every fault."""
    return stored_in(read_segments(store), store)


def stored_in(segments: list[SegmentPlace], store: Path) -> Stored:
    """Give what a journal's files hold; from the directory come the store's UUID and the data that was spilled."""
    faults = [fault for segment in segments for fault in segment.faults]
    faults += chain_faults(segments, json.loads((store / "store.json").read_bytes())["store"])
    events: list[StoredEvent] = []
    runs: list[Run] = []
    for segment in segments:
        for batch in segment.batches:
            position = batch.position
            for run in batch.runs:
                runs.append(Run(batch.number, run.stream, run.epoch, run.seq, run.events, run.patch))
                try:
                    events += read_run(store, segment.content, run, position)
                except ValueError as error:
                    faults.append(Fault(segment.file, run.offset, str(error), run.stream))
                position += run.events
    return Stored.from_runs(events, runs, faults)


def read_segments(store: Path) -> list[SegmentPlace]:
    """Read the frame of a journal's files, in the order of their batches: no event is looked into."""
    return segments_in({path.name: path.read_bytes() for path in (store / "journal").glob("*.jsonl")})


def segments_in(files: Mapping[str, bytes]) -> list[SegmentPlace]:
    """Read the frame of a journal's files, of which the contents are given by their names."""
    segments = [_segment(name, files[name]) for name in sorted(files)]
    return sorted(segments, key=lambda each: (each.header or {}).get("first", int(each.file[:8])))


def read_run(store: Path, content: bytes, run: RunPlace, position: int) -> list[StoredEvent]:
    """Read a run's events, the first at a position. Raises ValueError if they aren't those that the header promises."""
    part = content[run.offset : run.offset + run.size]
    if len(part) != run.size or crc32(part) != run.crc:
        raise ValueError(f"the run of {run.stream} from number {run.seq} doesn't fit its checksum")
    lines = part.split(b"\n")
    if lines.pop() or len(lines) != run.events:
        raise ValueError(f"the run of {run.stream} from number {run.seq} has {len(lines)} lines, not {run.events}")
    return [_event(store, line, run, place, position + place) for place, line in enumerate(lines)]


def _event(store: Path, line: bytes, run: RunPlace, place: int, position: int) -> StoredEvent:
    seq = run.seq + place
    try:
        record = json.loads(line)
        if list(record) != _MEMBERS or (record["stream"], record["seq"]) != (run.stream, seq):
            raise ValueError("it is another line")
        whole = whole_data(store, record["data"])
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"event {seq} of {run.stream} can't be read: {error}") from None
    needed = needed_of(record["type"], record["data"], whole)
    shown = line[:LINE_CHARACTERS].decode(errors="replace")
    return StoredEvent(position, run.stream, seq, record["type"], digest(whole), run.epoch, needed, shown)


# -- The frame


def _segment(file: str, content: bytes) -> SegmentPlace:
    first = content[: content.find(b"\n") + 1]
    header = sealed(first) if first.startswith(_SEGMENT) else None
    segment = SegmentPlace(file, content, header, [], [])
    if header is None:
        segment.faults.append(Fault(file, 0, "it doesn't begin with a segment line"))
    offset = len(first) if header is not None else 0
    while (begin := _CONTENT.search(content, offset)) is not None:
        batch = _batch(file, content, begin.start())
        if batch is None or begin.start() != offset:
            segment.faults.append(Fault(file, begin.start(), "what stands here is no batch behind the one before"))
        if batch is None:
            offset = _next_batch(content, begin.start() + 1)
        else:
            segment.batches.append(batch)
            offset = batch.end
    return segment


def _next_batch(content: bytes, offset: int) -> int:
    """Find where the next good header begins; the end of the file if there is none."""
    for found in _CONTROL.finditer(content, offset):
        if sealed(found.group()) is not None:
            return found.start()
    return len(content)


def _batch(file: str, content: bytes, offset: int) -> BatchPlace | None:
    """Read a batch's header; None if here is no good one."""
    line = content[offset : content.find(b"\n", offset) + 1]
    header = sealed(line) if line.startswith(_BATCH) else None
    if header is None:
        return None
    runs: list[RunPlace] = []
    end = offset + len(line)
    try:
        for stream, epoch, seq, events, size, crc, *patch in header["streams"]:
            runs.append(RunPlace(stream, epoch, seq, events, end, size, crc, patch[0] if patch else {}))
            end += size
        return BatchPlace(file, offset, end, header["$batch"], header["position"], header["prev"], header["h"], runs)
    except (KeyError, TypeError, ValueError):
        return None


def sealed(line: bytes) -> dict[str, Any] | None:
    """Read a control line; None if its `h` doesn't fit."""
    body = line[:-_SEAL_BYTES]
    if line[-_SEAL_BYTES:] != b',"h":"%08x"}\n' % crc32(body):
        return None
    fields: dict[str, Any] = json.loads(line)
    return fields


# -- The chain


def chain_faults(segments: list[SegmentPlace], store: str) -> list[Fault]:
    """Find what doesn't follow: numbers of files and batches, positions, each line's `prev`; and filling left over."""
    faults: list[Fault] = []
    for segment in segments:
        faults += [Fault(segment.file, 0, says) for says in _header_faults(segment, store)]
        links = [segment.header["h"] if segment.header else None, *(batch.h for batch in segment.batches)]
        for batch, h in zip(segment.batches, links, strict=False):
            if batch.prev != h:
                says = f"batch {batch.number} isn't chained to what it follows"
                faults.append(Fault(segment.file, batch.offset, says))
    for sealed in segments[:-1]:
        if sealed.batches and sealed.batches[-1].end < len(sealed.content):
            says = "it is sealed, and the filling behind its last batch was never cut off"
            faults.append(Fault(sealed.file, sealed.batches[-1].end, says))
    batches = [batch for segment in segments for batch in segment.batches]
    if batches and (batches[0].number, batches[0].position) != (1, 1):
        faults.append(Fault(batches[0].file, batches[0].offset, f"the first batch is number {batches[0].number}"))
    for one, other in pairwise(batches):
        due = one.position + sum(run.events for run in one.runs)
        if (other.number, other.position) != (one.number + 1, due):
            says = f"batch {other.number} at position {other.position} follows batch {one.number}, {due} being next"
            faults.append(Fault(other.file, other.offset, says))
    return faults


def _header_faults(segment: SegmentPlace, store: str) -> Iterator[str]:
    header = segment.header
    if header is None:
        return
    if header["$segment"] != int(segment.file[:8]) or header["format"] != 1:
        yield f"it says that it is file {header['$segment']} of format {header['format']}"
    if header["store"] != store:
        yield "it belongs to another store"
    if segment.batches and segment.batches[0].number != header["first"]:
        yield f"its first batch is number {segment.batches[0].number}, not {header['first']}"
