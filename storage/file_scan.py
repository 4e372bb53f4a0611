"""Scanning one segment file in columns, many runs at a time: for a whole journal, to index or to verify it fast.

A scan covers the good beginning of a file, up to the first thing that isn't as it should be and without the last batch
before that: what is left, mostly one batch and the filling, is for the walk from header to header, which knows how to
judge it (hopping). So a scan reports nothing; it is only ever shorter. What it gives is small and plain, and
`scan_file` can run in another process. Nothing is written.
"""

from __future__ import annotations

import struct
from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import accumulate, repeat
from typing import Any, NamedTuple

import orjson
from zlib_ng.zlib_ng import crc32

from .filesystem import LocalFileSystem
from .format import BATCH_PREFIX, has_good_seal, is_id
from .index_records import EXTENT
from .limits import HEADER_BYTES_MAX, KIB, MARK_BYTES, MIB
from .requests import Summary
from .scanning import Segment, SegmentView, is_foreign, open_segment

_HEADER_WINDOW_BYTES = 32 * KIB
_EVENT_WINDOW_BYTES = 4 * MIB
_ADDS_UP = frozenset(("key", "keys", "blobs", "deleted_to"))
"""Members of a patch that can't simply be replaced by a later patch's."""

_COLUMNS = 5
"""What is noted of a run: its extent as the index keeps it (empty without events), seq, events, epoch, batch's time."""


class StreamScan(NamedTuple):
    """What a scan holds of one stream: its runs' extents, joined, from event `first` on, and its patches in order.

    With each patch goes the seq with which its run begins.

    `position` and `time` are the last event's, 0 without one. `is_fork` if its first run begins a fork.
    """

    stream: str
    first: int
    events: int
    epoch: int
    position: int
    time: int
    extents: bytes
    patches: list[tuple[int, Summary]]
    is_fork: bool


class LastBatch(NamedTuple):
    """The last batch of a scan."""

    number: int
    offset: int
    h: str


class FileScan(NamedTuple):
    """The good beginning of one file: its batches from `first_batch` on, which end at `end`.

    `streams` stand in the order of their first runs, `marks` are (position, offset) of batches, one for each 256 KiB.
    """

    segment: int
    first_batch: int
    first_position: int
    next_position: int
    last: LastBatch
    end: int
    batches: int
    bytes: int
    marks: list[tuple[int, int]]
    streams: list[StreamScan]

    @property
    def events(self) -> int:
        """How many events the batches hold."""
        return self.next_position - self.first_position


class ScanRequest(NamedTuple):
    """Which file to scan, up to `size` bytes of it; with `checks_events` the events' checksums too."""

    root: str
    store: str
    segment: int
    size: int
    checks_events: bool


def scan_file(request: ScanRequest) -> FileScan | None:
    """Scan one file of the store at a path; None where nothing can be scanned at once."""
    fs = LocalFileSystem(request.root)
    try:
        segment = open_segment(fs, request.segment, request.store)
    except OSError:
        return None
    try:
        segment.view.size = min(segment.view.size, request.size)
        return scan_segment(segment, checks_events=request.checks_events)
    except OSError:
        return None
    finally:
        fs.close(segment.handle)


def scan_segment(segment: Segment, *, checks_events: bool) -> FileScan | None:
    """Scan an open file from its beginning. Raises OSError."""
    if segment.header is None or is_foreign(segment):
        return None
    scan = _Scan(segment.view, checks_events)
    held: _Header | None = None
    try:
        for header in scan.headers(segment.header_length, segment.header.h):
            if held is not None:
                scan.take(held)
            held = header
        return scan.finish()
    except _Unusual:
        return None


class _Unusual(Exception):
    """This file needs a closer look."""


class _Header(NamedTuple):
    number: int
    position: int
    time: int
    offset: int
    length: int
    size: int
    h: str
    runs: list[list[Any]]
    columns: tuple[tuple[Any, ...], ...]
    events: int


class _Scan:
    def __init__(self, view: SegmentView, checks_events: bool) -> None:
        self._view = view
        self._checks_events = checks_events
        self._window = b""
        self._start = 0
        self._noted: defaultdict[str, list[Any]] = defaultdict(list)
        self._patches: dict[str, list[tuple[int, Summary]]] = {}
        self._forks: set[str] = set()
        self._marks: list[tuple[int, int]] = []
        self._first: _Header | None = None
        self._last: _Header | None = None
        self._batches = 0
        self._bytes = 0

    # -- Reading headers

    def headers(self, place: int, prev: str) -> Iterator[_Header]:
        """Walk the headers from `place` on as long as each is good and follows the one before it."""
        number = position = None
        while True:
            header = self._header_at(place, prev)
            if header is None or (number is not None and (header.number, header.position) != (number, position)):
                return
            if self._checks_events and not self._is_whole(header):
                return
            yield header
            number, position, prev = header.number + 1, header.position + header.events, header.h
            place = header.offset + header.length + header.size

    def _header_at(self, place: int, prev: str) -> _Header | None:
        line = self._line(place)
        if not line.startswith(BATCH_PREFIX) or not has_good_seal(line):
            return None
        try:
            fields = orjson.loads(line)
            runs, size = fields["streams"], fields["bytes"]
            number, position, time = fields["$batch"], fields["position"], fields["time"]
            columns = tuple(zip(*runs, strict=False)) if runs else ((),) * 6
            if min(number, position, time, size) < 0 or fields["prev"] != prev:
                return None
            if len(columns) < 6 or sum(columns[4]) != size:
                return None
            events = sum(columns[3])
            return _Header(number, position, time, place, len(line), size, fields["h"], runs, columns, events)
        except (ValueError, KeyError, TypeError, IndexError):
            return None

    def _line(self, place: int) -> bytes:
        begin = place - self._start
        end = self._window.find(b"\n", begin) if 0 <= begin < len(self._window) else -1
        if end < 0:
            for length in (_EVENT_WINDOW_BYTES if self._checks_events else _HEADER_WINDOW_BYTES, HEADER_BYTES_MAX):
                self._fetch(place, length)
                begin, end = 0, self._window.find(b"\n")
                if end >= 0:
                    break
            else:
                return b""
        return self._window[begin : end + 1]

    def _fetch(self, place: int, length: int) -> None:
        view = self._view
        self._window = view.fs.read(view.handle, place, max(0, min(length, view.size - place)))
        self._start = place

    def _is_whole(self, header: _Header) -> bool:
        """Check the checksums of a batch's runs."""
        begin = header.offset + header.length
        if begin + header.size > self._start + len(self._window):
            self._fetch(begin, max(header.size, _EVENT_WINDOW_BYTES))
        ends = list(accumulate(header.columns[4], initial=begin - self._start))
        if ends[-1] > len(self._window):
            return False
        return tuple(map(crc32, map(self._window.__getitem__, map(slice, ends, ends[1:])))) == header.columns[5]

    # -- Gathering runs

    def take(self, header: _Header) -> None:
        """Add a batch's runs to their streams. Raises _Unusual."""
        last = self._last
        if last is None or last.offset // MARK_BYTES != header.offset // MARK_BYTES:
            self._marks.append((header.position, header.offset))
        self._first = self._first or header
        self._last = header
        self._batches += 1
        self._bytes += header.length + header.size
        ids, epochs, seqs, counts, sizes, crcs, *_ = header.columns
        if 7 in map(len, header.runs):
            self._take_patches(header.runs)
        offsets = accumulate(sizes, initial=header.offset + header.length)
        positions = accumulate(counts, initial=header.position)
        try:
            places = (sizes, counts, epochs, crcs, positions)
            extents: Iterator[bytes] = map(EXTENT.pack, repeat(self._view.number), offsets, *places)
            if 0 in counts:
                extents = iter([extent if count else b"" for extent, count in zip(extents, counts, strict=False)])
            rows = zip(extents, seqs, counts, epochs, repeat(header.time), strict=False)
            # Everything since the header is consumed here, by the interpreter's own loops: one flat list a stream.
            deque(map(list.extend, map(self._noted.__getitem__, ids), rows), maxlen=0)
        except (struct.error, TypeError):
            raise _Unusual from None

    def _take_patches(self, runs: list[list[Any]]) -> None:
        for run in runs:
            if len(run) < 7:
                continue
            stream, seq, patch = run[0], run[2], run[6]
            if not isinstance(patch, dict) or len(run) > 7:
                raise _Unusual
            if stream not in self._noted and patch.get("parent_seq") == seq:
                self._forks.add(stream)
            patches = self._patches.setdefault(stream, [])
            if patches and _ADDS_UP.isdisjoint(patch) and _ADDS_UP.isdisjoint(patches[-1][1]):
                patches[-1][1].update(patch)
            else:
                patches.append((seq, patch))

    def finish(self) -> FileScan | None:
        """Give what was gathered. Raises _Unusual where a stream's runs don't follow each other."""
        first, last = self._first, self._last
        if first is None or last is None:
            return None
        return FileScan(
            segment=self._view.number,
            first_batch=first.number,
            first_position=first.position,
            next_position=last.position + last.events,
            last=LastBatch(last.number, last.offset, last.h),
            end=last.offset + last.length + last.size,
            batches=self._batches,
            bytes=self._bytes,
            marks=self._marks,
            streams=[self._stream(stream, noted) for stream, noted in self._noted.items()],
        )

    def _stream(self, stream: str, noted: list[Any]) -> StreamScan:
        extents, seqs, counts, epochs, times = (noted[column::_COLUMNS] for column in range(_COLUMNS))
        due = list(accumulate(counts, initial=seqs[0]))
        head = due.pop()
        if due != seqs or not is_id(stream):
            raise _Unusual
        position = time = 0
        for extent, events, when in zip(reversed(extents), reversed(counts), reversed(times), strict=True):
            if events:
                position, time = EXTENT.unpack(extent)[6] + events - 1, when
                break
        patches = self._patches.get(stream, [])
        content = b"".join(extents)
        return StreamScan(
            stream, seqs[0], head - seqs[0], max(epochs), position, time, content, patches, stream in self._forks
        )
