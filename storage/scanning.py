"""Walking a segment from header to header, and finding the next good one behind damage.

Hopping reads headers only and skips each batch's bytes by the length that its header gives. Where no good header
stands, it looks for the next one, from the end of the last good header on (bytes may be missing as well as too many),
and gives the stretch between as such. What lies behind the last batch is the caller's to judge. Nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from zlib_ng.zlib_ng import crc32

from .filesystem import FileSystem
from .findings import Finding, Reporter, SeqRange, ranges_of
from .format import (
    BATCH_PREFIX,
    FILLING_BYTES,
    BatchHeader,
    NotControlLine,
    Run,
    SegmentHeader,
    parse_batch_header,
    parse_event_prefix,
    parse_segment_header,
)
from .limits import FORMAT, HEADER_BYTES_MAX, KIB, LINE_BYTES_MAX, MIB
from .store import JOURNAL_DIRECTORY

_WINDOW_BYTES = 128 * KIB
_NAME = re.compile(r"(\d{8})\.jsonl\Z")


class Batch(NamedTuple):
    """A good header at `offset` of segment `segment`."""

    segment: int
    offset: int
    header: BatchHeader

    @property
    def end(self) -> int:
        """Where the batch ends in its file."""
        return self.offset + self.header.end


class Stretch(NamedTuple):
    """Bytes that belong to no good batch, with good ones behind them; `streams` as their lines' prefixes say."""

    segment: int
    offset: int
    end: int
    streams: dict[str, list[SeqRange]]


Hop: TypeAlias = Batch | Stretch


def segment_name(number: int) -> str:
    """Give a segment's file name."""
    return f"{number:08d}.jsonl"


def segment_path(number: int) -> str:
    """Give a segment's path in the store."""
    return f"{JOURNAL_DIRECTORY}/{number:08d}.jsonl"


def segment_numbers(fs: FileSystem) -> list[int]:
    """List the numbers of all files in the journal that are named as segments, in order."""
    matches = (_NAME.match(name) for name in fs.names(JOURNAL_DIRECTORY))
    return sorted(int(match[1]) for match in matches if match)


class SegmentView:
    """Reads one open segment through a window; nothing beyond `size` counts as there."""

    def __init__(self, fs: FileSystem, number: int, handle: int, size: int) -> None:
        self.fs = fs
        self.number = number
        self.handle = handle
        self.size = size
        self._window = b""
        self._window_start = 0

    def read(self, offset: int, length: int) -> bytes:
        """Read `length` bytes, fewer only at the end."""
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        begin = offset - self._window_start
        if begin >= 0 and begin + length <= len(self._window):
            return self._window[begin : begin + length]
        if length > _WINDOW_BYTES:
            return self.fs.read(self.handle, offset, length)
        self._window = self.fs.read(self.handle, offset, min(_WINDOW_BYTES, self.size - offset))
        self._window_start = offset
        return self._window[:length]

    def line(self, offset: int, limit: int = HEADER_BYTES_MAX) -> bytes:
        """Read the line at `offset`, its newline included; empty where none ends within `limit`."""
        begin = offset - self._window_start
        if 0 <= begin < len(self._window):
            end = self._window.find(b"\n", begin)
            if end >= 0:
                return self._window[begin : end + 1] if end - begin < limit else b""
        for length in (4 * KIB, _WINDOW_BYTES, limit):
            content = self.read(offset, min(length, limit))
            end = content.find(b"\n")
            if end >= 0:
                return content[: end + 1]
            if len(content) < length:
                break
        return b""

    def batch_at(self, offset: int) -> Batch | None:
        """Read the header at `offset`; None where no good one stands."""
        line = self.line(offset)
        if not line.startswith(BATCH_PREFIX):
            return None
        try:
            return Batch(self.number, offset, parse_batch_header(line))
        except NotControlLine:
            return None

    def first_content(self, offset: int) -> int:
        """Skip filling; give the offset of the first other byte, or the size."""
        while offset < self.size:
            content = self.read(offset, _WINDOW_BYTES)
            rest = content.lstrip(FILLING_BYTES)
            if rest:
                return offset + len(content) - len(rest)
            offset += len(content)
        return self.size

    def next_batch(self, offset: int, end: int | None = None) -> Batch | None:
        """Find the next good header at or behind `offset`, wherever in a line it stands."""
        end = self.size if end is None else end
        step = MIB
        while offset < end:
            content = self.read(offset, min(step + len(BATCH_PREFIX), end - offset))
            place = content.find(BATCH_PREFIX)
            while place >= 0:
                batch = self.batch_at(offset + place)
                if batch is not None:
                    return batch
                place = content.find(BATCH_PREFIX, place + 1)
            offset += step
        return None

    def events_in(self, offset: int, end: int) -> dict[str, list[SeqRange]]:
        """Name the streams and seqs of the lines in a stretch, by their prefixes alone."""
        seqs: dict[str, list[int]] = {}
        while offset < end:
            content = self.read(offset, min(MIB, end - offset))
            whole = content.rfind(b"\n") + 1
            if whole > 0 and offset + len(content) < end:
                content = content[:whole]
            for line in content.split(b"\n"):
                found = parse_event_prefix(line)
                if found is not None:
                    seqs.setdefault(found[0], []).append(found[1])
            offset += len(content)
        return {stream: ranges_of(numbers) for stream, numbers in seqs.items()}

    def bad_runs(self, batch: Batch) -> list[Run]:
        """Check the bytes of each run against its CRC; give those that don't fit or aren't there."""
        bad = []
        offset = batch.offset + batch.header.length
        for run in batch.header.runs:
            content = self.read(offset, run.size)
            if len(content) != run.size or crc32(content) != run.crc:
                bad.append(run)
            offset += run.size
        return bad

    def is_whole(self, batch: Batch) -> bool:
        """Say whether every event of the batch is there and fits its CRC."""
        return batch.end <= self.size and not self.bad_runs(batch)


class Hopper:
    """Hops one segment's headers from `offset` on; afterwards `end` is where the last good batch ends.

    Iterating gives batches and stretches in order. `last` is the last batch given, or the one passed in.
    """

    def __init__(self, view: SegmentView, offset: int, last: Batch | None = None) -> None:
        self.view = view
        self.end = offset
        self.last = last

    def __iter__(self) -> Iterator[Hop]:
        view = self.view
        while True:
            batch = view.batch_at(self.end)
            if batch is None:
                if view.first_content(self.end) == view.size and self.end <= view.size:
                    return
                searched = self.end if self.last is None else self.last.offset + self.last.header.length
                batch = view.next_batch(searched)
                if batch is None:
                    return
                begin = min(self.end, batch.offset) if batch.offset >= self.end else searched
                yield Stretch(view.number, begin, batch.offset, view.events_in(begin, batch.offset))
            self.last = batch
            self.end = batch.end
            yield batch


@dataclass(slots=True)
class Segment:
    """An open segment file. `header` is None where its first line, of `header_length`, is no good segment line."""

    number: int
    handle: int
    view: SegmentView
    header: SegmentHeader | None
    header_length: int
    findings: list[Finding] = field(default_factory=list)

    @property
    def first(self) -> int | None:
        """The number of the first batch that the file may hold, as its first line says."""
        return None if self.header is None else self.header.first

    def begin(self) -> int:
        """Where the first batch may stand: behind the first line, or in it, if a batch was glued to that."""
        found = None if self.header is not None else self.view.next_batch(0)
        return self.header_length if found is None else min(self.header_length, found.offset)


def open_segment(fs: FileSystem, number: int, store: str, *, write: bool = False) -> Segment:
    """Open a segment and read its first line; what is wrong with that stands in `findings`.

    A file of another store has the finding `foreign segment`, and its batches are not this store's. Raises OSError
    where the file can't be opened.
    """
    handle = fs.open(segment_path(number), write=write)
    size = fs.size(handle)
    view = SegmentView(fs, number, handle, size)
    line = view.line(0, LINE_BYTES_MAX)
    segment = Segment(number, handle, view, None, 0)
    try:
        header = parse_segment_header(line)
    except NotControlLine as error:
        why = "the file is empty" if size == 0 else f"its first line is bad: {error}"
        segment.findings.append(Finding("segment line", segment_name(number), 0, len(line), why))
        segment.header_length = len(line)
        return segment
    segment.header, segment.header_length = header, len(line)
    if header.store != store:
        why = f"it belongs to store {header.store}"
        segment.findings.append(Finding("foreign segment", segment_name(number), 0, len(line), why))
    elif header.format > FORMAT:
        why = f"written by a newer version (format {header.format})"
        segment.findings.append(Finding("foreign segment", segment_name(number), 0, len(line), why))
    elif header.number != number:
        why = f"it calls itself number {header.number}"
        segment.findings.append(Finding("segment line", segment_name(number), 0, len(line), why))
    return segment


def is_foreign(segment: Segment) -> bool:
    """Say whether this file's batches aren't this store's."""
    return any(finding.kind == "foreign segment" for finding in segment.findings)


def stretch_finding(stretch: Stretch) -> Finding:
    """Give the finding for bytes between good batches."""
    return Finding(
        "damaged batch",
        segment_name(stretch.segment),
        stretch.offset,
        stretch.end - stretch.offset,
        "bytes that belong to no good batch",
        stretch.streams,
    )


class Chain:
    """Checks that batches follow each other: numbers, positions, `prev` within a file, `first` across files."""

    def __init__(self, report: Reporter, number: int = 1, position: int = 1) -> None:
        self._report = report
        self.number = number
        self.position = position
        self.prev: str | None = None

    def enter(self, segment: Segment) -> None:
        """Go on in a file."""
        self.prev = None if segment.header is None else segment.header.h
        first = segment.first
        if first is not None and first > self.number:
            missing = f"batches {self.number} to {first - 1} are missing before this file"
            self._report(Finding("missing batches", segment_name(segment.number), 0, 0, missing))
            self.number = first

    def go_on_behind(self, number: int, position: int, h: str) -> None:
        """Go on behind batch `number`, the last of some that were checked together; `position` comes after it."""
        self.number = number + 1
        self.position = position
        self.prev = h

    def break_off(self) -> None:
        """Lose the chain within a file: the next batch's `prev` can't be checked."""
        self.prev = None

    def accept(self, batch: Batch) -> bool:
        """Check one batch and go on behind it; False for one that was there before."""
        header = batch.header
        place = (segment_name(batch.segment), batch.offset, header.length)
        if header.number < self.number:
            self._report(Finding("repeated batch", *place, f"batch {header.number} again, after {self.number - 1}"))
            self.prev = header.h
            return False
        if header.number > self.number:
            why = f"batches {self.number} to {header.number - 1} are missing before this one"
            self._report(Finding("missing batches", *place, why))
        elif self.prev is not None and header.prev != self.prev:
            self._report(Finding("wrong chain", *place, f"its prev is {header.prev}, the line before it {self.prev}"))
        if header.position < self.position:
            why = f"its first event is number {header.position}, expected {self.position}"
            self._report(Finding("wrong position", *place, why))
        elif header.position > self.position and header.number == self.number:
            why = f"positions {self.position} to {header.position - 1} are missing"
            self._report(Finding("wrong position", *place, why))
        self.number = header.number + 1
        self.position = max(self.position, header.position + header.events)
        self.prev = header.h
        return True
