"""Reading a journal's headers into an index, from where the index stops to the journal's end.

The writer does this at its opening, a reader of a store that nobody serves does it into an index in memory. The
headers alone are read, but for the batch where the index stopped and the last one: those are checked whole. Damage
goes to the reporter and the walk goes on behind it; what lies behind the last batch is described, not judged, and
nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeAlias

from .file_scan import FileScan, ScanRequest, scan_segment
from .filesystem import FileSystem
from .findings import Finding, Reporter, SeqRange
from .format import FILLING_BYTES
from .index import Index
from .index_records import Indexed, placed_runs
from .scanning import (
    Batch,
    Chain,
    Hopper,
    Segment,
    SegmentView,
    Stretch,
    is_foreign,
    open_segment,
    segment_name,
    segment_numbers,
    stretch_finding,
)
from .trust import Witness

Progress: TypeAlias = Callable[[int, int], None]
"""Called with bytes hopped and bytes in all."""

FileScanner: TypeAlias = Callable[[Sequence[ScanRequest]], Generator[FileScan | None, None, None]]
"""Scans files, elsewhere and several at a time; gives the scans in the order of the requests, and is closed early."""

ScanInspector: TypeAlias = Callable[[FileScan], None]

Inspector: TypeAlias = Callable[[SegmentView, Batch], None]

_RUNS_A_TRANSACTION = 20_000


@dataclass(slots=True)
class JournalEnd:
    """Where the journal ends, and what was seen on the way there.

    `segment` is the last file, open (None if there is none that can be read); `end` is where its last good batch ends,
    `last` that batch if it lies in this file. `unread` means that the last file of all isn't the one in `segment`.
    `before` is the number of the file before it and the end of what isn't filling there, if that file ends well.
    """

    segment: Segment | None = None
    end: int = 0
    last: Batch | None = None
    next_batch: int = 1
    next_position: int = 1
    greatest_number: int = 0
    hopped: int = 0
    unread: bool = False
    indexed_is_bad: bool = False
    missed_by_witness: bool = False
    before: tuple[int, int] | None = None
    damaged: dict[str, str] = field(default_factory=dict)

    def is_damaged(self) -> bool:
        """Judge what lies behind the last good batch: damage to what was acknowledged, or at most a torn tail."""
        if self.indexed_is_bad or self.missed_by_witness or self.unread:
            return True
        if self.segment is None:
            return False
        if self.segment.header is None:
            return True
        view = self.segment.view
        return view.first_content(self.end) < view.size and view.next_batch(self.end + 1) is not None

    def tail(self) -> bytes:
        """Give what isn't filling behind the last good batch."""
        if self.segment is None:
            return b""
        view = self.segment.view
        return view.read(self.end, view.size - self.end).rstrip(FILLING_BYTES)


class JournalHop:
    """One walk over the headers, from where the index stops.

    `witness` is a batch known to have been acknowledged. `stop` is the last batch to look at, in a journal that is
    being written. With `write` files are opened so that the last one can be gone on with. `inspect` is shown each batch
    that is walked over, `inspect_scan` each scan that was taken instead. `scan` scans several files at a time. `settle`
    is told the end before the last batch is indexed: whoever reads beside sees it as soon as it is.
    """

    def __init__(
        self,
        fs: FileSystem,
        store: str,
        index: Index,
        *,
        report: Reporter,
        witness: Witness | None = None,
        stop: Indexed | None = None,
        write: bool = False,
        inspect: Inspector | None = None,
        inspect_scan: ScanInspector | None = None,
        scan: FileScanner | None = None,
        progress: Progress | None = None,
        settle: Callable[[JournalEnd], None] | None = None,
    ) -> None:
        self._fs = fs
        self._store = store
        self._index = index
        self._report = report
        self._settle = settle
        self._witness = witness
        self._stop = stop
        self._write = write
        self._inspect = inspect
        self._inspect_scan = inspect_scan
        self._scan = scan
        self._progress = progress or (lambda done, total: None)
        self._found = JournalEnd()
        self._waiting: list[Batch] = []
        self._waiting_runs = 0
        self._lost: dict[str, list[SeqRange]] = {}
        self._chain = Chain(report)
        self._total = self._done = 0

    def run(self) -> JournalEnd:
        """Walk to the end, index what was found, and say where that is. Raises Failed, OSError."""
        found = self._found
        indexed = self._index.indexed
        numbers = segment_numbers(self._fs)
        if self._stop is not None:
            numbers = [number for number in numbers if number <= self._stop.segment]
        found.greatest_number = numbers[-1] if numbers else 0
        if indexed is not None:
            numbers = [number for number in numbers if number >= indexed.segment]
            self._chain = Chain(self._report, indexed.batch + 1, indexed.next_position)
            found.indexed_is_bad = not numbers or numbers[0] != indexed.segment
            if found.indexed_is_bad:
                why = f"the file that holds batch {indexed.batch} is missing"
                self._report(Finding("missing batches", segment_name(indexed.segment), indexed.offset, 0, why))
        segments = self._open(numbers)
        self._total = sum(segment.view.size for segment in segments)
        with closing(self._scans(segments, indexed)) as scans:
            for place, (segment, scan) in enumerate(zip(segments, scans, strict=True)):
                self._walk(segment, indexed, scan)
                if place < len(segments) - 1:
                    self._end_of_earlier_file(segment)
                    self._fs.close(segment.handle)
                else:
                    found.segment = segment
        self._finish()
        return found

    def _open(self, numbers: list[int]) -> list[Segment]:
        """Open the files; those that can't be read or aren't ours are reported and left alone."""
        segments: list[Segment] = []
        for number in numbers:
            self._found.unread = True
            try:
                segment = open_segment(self._fs, number, self._store, write=self._write)
            except OSError as error:
                why = f"the file can't be opened: {error.strerror}"
                self._report(Finding("unreadable segment", segment_name(number), 0, 0, why))
                continue
            for finding in segment.findings:
                self._report(finding)
            if is_foreign(segment):
                self._fs.close(segment.handle)
                continue
            self._found.unread = False
            if self._stop is not None and number == self._stop.segment:
                last = segment.view.batch_at(self._stop.offset)
                segment.view.size = segment.view.size if last is None else last.end
            segments.append(segment)
        return segments

    def _scans(self, segments: list[Segment], indexed: Indexed | None) -> Generator[FileScan | None, None, None]:
        """Scan the files, those that the index doesn't know; None for a file that has to be hopped whole."""
        checks_events = self._inspect_scan is not None
        wanted = segments if indexed is None else [each for each in segments if each.number != indexed.segment]
        if (self._inspect is not None and not checks_events) or (self._settle is not None and indexed is not None):
            wanted = []  # a scan would index the last batch with all others
        numbers = {segment.number for segment in wanted}
        if self._scan is None:
            for segment in segments:
                yield scan_segment(segment, checks_events=checks_events) if segment.number in numbers else None
            return
        root = os.path.realpath(self._fs.path(""))
        requests = [ScanRequest(root, self._store, each.number, each.view.size, checks_events) for each in wanted]
        with closing(self._scan(requests)) as scans:
            for segment in segments:
                yield next(scans) if segment.number in numbers else None

    def _walk(self, segment: Segment, indexed: Indexed | None, scan: FileScan | None) -> None:
        """Hop one file, from where the index or a scan of it stops, or from its beginning."""
        self._chain.enter(segment)
        hopper = Hopper(segment.view, segment.begin())
        if indexed is not None and indexed.segment == segment.number:
            hopper = self._go_on_behind(segment, indexed)
        elif scan is not None and self._take_scan(scan):
            hopper = Hopper(segment.view, scan.end)
        for hop in hopper:
            if isinstance(hop, Stretch):
                self._report(stretch_finding(hop))
                self._note_lost(hop.streams)
                self._chain.break_off()
                continue
            if self._inspect is not None:
                self._inspect(segment.view, hop)
            if self._chain.accept(hop):
                self._take(hop)
                self._progress(self._done + hop.end, self._total)
        self._done += segment.view.size
        self._found.end, self._found.last = hopper.end, hopper.last

    def _go_on_behind(self, segment: Segment, indexed: Indexed) -> Hopper:
        """Check the last indexed batch whole, and go on behind it."""
        view = segment.view
        batch = view.batch_at(indexed.offset)
        if batch is None or batch.header.h != indexed.h or batch.header.number != indexed.batch:
            self._found.indexed_is_bad = True
            why = f"the header of batch {indexed.batch}, which was acknowledged, is gone"
            self._report(Finding("damaged batch", segment_name(segment.number), indexed.offset, 0, why))
            return Hopper(view, indexed.offset)
        self._chain.prev = indexed.h
        bad = view.bad_runs(batch)
        if bad or batch.end > view.size:
            self._found.indexed_is_bad = True
            streams = {run.stream: [(run.seq, run.events)] for run in bad}
            place = (segment_name(segment.number), batch.offset, batch.header.end)
            self._report(Finding("damaged events", *place, f"batch {indexed.batch} was acknowledged", streams))
        return Hopper(view, min(batch.end, view.size), batch)

    def _end_of_earlier_file(self, segment: Segment) -> None:
        """What isn't filling at the end of a file that has a successor was acknowledged and is damaged."""
        view, end = segment.view, self._found.end
        self._found.before = None
        if end <= view.size and view.first_content(end) >= view.size:
            self._found.before = (segment.number, end)
            return
        begin = min(end, view.size)
        streams = view.events_in(begin, view.size)
        if end > view.size and self._found.last is not None:
            begin = self._found.last.offset
            streams = {run.stream: [(run.seq, run.events)] for run in view.bad_runs(self._found.last)}
        why = "the file ends in something that is no batch, and it isn't the last file"
        self._report(Finding("lost end", segment_name(segment.number), begin, view.size - begin, why, streams))
        self._note_lost(streams)

    def _note_lost(self, streams: dict[str, list[SeqRange]]) -> None:
        for stream, ranges in streams.items():
            self._lost.setdefault(stream, []).extend(ranges)

    def _take(self, batch: Batch) -> None:
        """Keep a batch until the next one shows that it wasn't the last; index them many at a time."""
        if self._waiting_runs >= _RUNS_A_TRANSACTION:
            self._apply()
        self._waiting.append(batch)
        self._waiting_runs += max(1, len(batch.header.runs))

    def _take_scan(self, scan: FileScan) -> bool:
        """Index what a scan holds; False where that doesn't follow what came before, so that the file is hopped."""
        chain = self._chain
        if (scan.first_batch, scan.first_position) != (chain.number, chain.position):
            return False
        self._apply()
        with self._index.writing() as transaction:
            if not self._index.apply_scan(transaction, scan):
                return False
        chain.go_on_behind(scan.last.number, scan.next_position, scan.last.h)
        self._found.hopped += scan.batches
        if self._inspect_scan is not None:
            self._inspect_scan(scan)
        self._progress(self._done + scan.end, self._total)
        return True

    def _apply(self) -> None:
        if not self._waiting:
            return
        with self._index.writing() as transaction:
            for batch in self._waiting:
                runs = placed_runs(batch.header, batch.offset)
                next_position = batch.header.position + batch.header.events
                faults = self._index.apply(transaction, batch, runs, next_position)
                for stream, why in faults.items():
                    place = (segment_name(batch.segment), batch.offset, batch.header.length)
                    self._report(Finding("missing events", *place, why, {stream: []}))
                    self._found.damaged[stream] = why
        self._found.hopped += len(self._waiting)
        self._waiting.clear()
        self._waiting_runs = 0

    def _finish(self) -> None:
        """Check the last batch whole before it counts, and raise the heads of what is missing."""
        found, witness = self._found, self._witness
        last = self._waiting[-1] if self._waiting else None
        if last is not None and found.segment is not None and last.segment == found.segment.number:
            acknowledged = witness is not None and witness.batch >= last.header.number
            if not found.segment.view.is_whole(last):
                if acknowledged:
                    bad = {run.stream: [(run.seq, run.events)] for run in found.segment.view.bad_runs(last)}
                    place = (segment_name(last.segment), last.offset, last.header.end)
                    self._report(Finding("damaged events", *place, f"batch {last.header.number} was acknowledged", bad))
                    found.indexed_is_bad = True
                else:
                    self._drop_last(last)
        indexed = self._index.indexed
        found.next_batch = self._chain.number if indexed is None else max(indexed.batch + 1, self._chain.number)
        found.next_position = self._chain.position
        if witness is not None and witness.batch >= found.next_batch:
            self._miss(witness)
        if self._settle is not None:
            self._settle(found)
        self._apply()
        if self._lost and found.segment is not None:
            self._raise_heads()

    def _drop_last(self, last: Batch) -> None:
        """Take the last batch for an unfinished one: it doesn't count, and the one before it is the last."""
        found = self._found
        self._waiting.pop()
        found.end = last.offset
        before = self._waiting[-1] if self._waiting else None
        indexed = self._index.indexed
        if (
            before is None
            and indexed is not None
            and found.segment is not None
            and found.segment.number == indexed.segment
        ):
            before = found.segment.view.batch_at(indexed.offset)
        found.last = before if before is not None and before.segment == last.segment else None
        self._chain.number = last.header.number
        self._chain.position = last.header.position

    def _miss(self, witness: Witness) -> None:
        """Say how much is missing that was acknowledged, and let numbers go on behind it."""
        found = self._found
        batches = witness.batch + 1 - found.next_batch
        events = max(0, witness.position - found.next_position)
        why = f"{batches} batches with {events} events that were acknowledged are missing from the end"
        name = segment_name(found.segment.number) if found.segment else segment_name(found.greatest_number)
        self._report(Finding("missing batches", name, found.end, 0, why))
        found.missed_by_witness = True
        found.next_batch = witness.batch + 1
        found.next_position = max(found.next_position, witness.position)

    def lost_behind_end(self) -> None:
        """Count the lines behind the end as missing: the caller judged that they were acknowledged."""
        found = self._found
        if found.segment is None:
            return
        tail = found.tail()
        streams = found.segment.view.events_in(found.end, found.end + len(tail))
        if tail:
            place = (segment_name(found.segment.number), found.end, len(tail))
            self._report(
                Finding("damaged batch", *place, "bytes behind the last good batch were acknowledged", streams)
            )
        self._note_lost(streams)
        self._raise_heads()

    def _raise_heads(self) -> None:
        """A number that was once given is never given again, though its event is gone."""
        with self._index.writing() as transaction:
            for stream, ranges in self._lost.items():
                head = max(first + events for first, events in ranges)
                if self._index.raise_head(transaction, stream, head):
                    self._found.damaged.setdefault(stream, f"events up to {head - 1} are missing")
        self._lost.clear()
