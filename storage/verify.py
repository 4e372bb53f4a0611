"""Checking a whole journal: every header, every run's checksum, the chain of batches, the index against the headers.

Works while a writer serves the store (then no further than its index goes), while nobody does, and on a read-only copy;
changes nothing. `deep` parses every event too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from .checking_blobs import check_blobs
from .errors import Failed
from .exact_json import decode_event
from .file_scan import FileScan
from .filesystem import FileSystem
from .findings import Finding
from .format import Run
from .hopping import FileScanner, JournalEnd, JournalHop, Progress
from .index import Index, shared_index
from .index_records import Indexed
from .reading import store_files
from .scanning import Batch, SegmentView, segment_name, segment_numbers
from .trust import Witness, judge_index


@dataclass(slots=True)
class Verification:
    """What verify found. `torn_tail` is a finding too, but no damage; `index_why` is empty if the index fits."""

    segments: int = 0
    batches: int = 0
    events: int = 0
    bytes: int = 0
    blobs: int = 0
    torn_tail: Finding | None = None
    damaged: list[Finding] = field(default_factory=list)
    index_ok: bool = True
    index_why: str = ""
    seconds: float = 0.0

    def as_map(self) -> dict[str, Any]:
        """Give it as a command's JSON shows it."""
        return {
            "segments": self.segments,
            "batches": self.batches,
            "events": self.events,
            "bytes": self.bytes,
            "blobs": self.blobs,
            "torn_tail": None if self.torn_tail is None else self.torn_tail.as_map(),
            "damaged": [finding.as_map() for finding in self.damaged],
            "index": {"ok": self.index_ok, "why": self.index_why},
            "seconds": round(self.seconds, 3),
        }


def verify(
    root: str,
    served_index: str | None = None,
    *,
    deep: bool = False,
    progress: Progress | None = None,
    scan: FileScanner | None = None,
) -> Verification:
    """Check the journal of the store at `root`; `served_index` is the index that a living writer named.

    `scan` scans several files at a time, elsewhere. Raises StoreMissing, StoreRefused, NewerFormat, Failed.
    """
    started = time.monotonic()
    with store_files(root) as (fs, store):
        found = _Verifier(fs, store, deep, progress, scan).run(served_index)
    found.seconds = time.monotonic() - started
    return found


class _Verifier:
    def __init__(
        self, fs: FileSystem, store: str, deep: bool, progress: Progress | None, scan: FileScanner | None
    ) -> None:
        self._fs = fs
        self._store = store
        self._deep = deep
        self._progress = progress
        self._scan = scan
        self._found = Verification()

    def run(self, served_index: str | None) -> Verification:
        found = self._found
        with ExitStack() as open_indexes:
            kept, stop, witness = self._kept_index(served_index, open_indexes)
            built = Index.in_memory()
            open_indexes.callback(built.close)
            hop = JournalHop(
                self._fs,
                self._store,
                built,
                report=found.damaged.append,
                witness=witness,
                stop=stop,
                inspect=self._check_batch,
                inspect_scan=None if self._deep else self._count_scan,
                scan=self._scan,
                progress=self._progress,
            )
            end = hop.run()
            self._judge_tail(hop, end)
            found.blobs, of_blobs = check_blobs(self._fs, built)
            found.damaged += of_blobs
            if kept is not None:
                found.index_why = _served_difference(kept, built) if served_index else _difference(kept, built)
                found.index_ok = not found.index_why
        found.segments = len(segment_numbers(self._fs))
        found.damaged = _without_repeats(found.damaged)
        return found

    def _kept_index(
        self, served_index: str | None, open_indexes: ExitStack
    ) -> tuple[Index | None, Indexed | None, Witness | None]:
        """Open the index that may be trusted; say why there is none."""
        if served_index is not None:
            index = open_indexes.enter_context(shared_index(self._fs.path(served_index)))
            with index.reading() as snapshot:
                last = index.read_indexed(snapshot)
            witness = None if last is None else Witness(last.batch, last.h, last.next_position)
            return index, last, witness
        judgement = judge_index(self._fs, self._store, "")
        record = judgement.record
        if judgement.trusted and record is not None and record.state == "clean":
            try:
                index = Index.open_readable(self._fs.path(record.directory), lock=False)
            except Failed as error:
                self._found.index_ok, self._found.index_why = False, str(error)
                return None, None, record.witness
            open_indexes.callback(index.close)
            return index, None, record.witness
        why = judgement.why or "it wasn't closed; the next opening judges it"
        self._found.index_why = f"not looked at: {why}"
        return None, None, judgement.witness

    def _count_scan(self, scan: FileScan) -> None:
        """Count batches that were checked together, their runs' bytes too."""
        self._found.batches += scan.batches
        self._found.events += scan.events
        self._found.bytes += scan.bytes

    def _check_batch(self, view: SegmentView, batch: Batch) -> None:
        """Count a batch, and check the bytes of its runs."""
        found = self._found
        found.batches += 1
        found.events += batch.header.events
        found.bytes += batch.header.end
        bad = view.bad_runs(batch)
        last = batch.end > view.size
        if bad and not last:
            streams = {run.stream: [(run.seq, run.events)] for run in bad}
            place = (segment_name(batch.segment), batch.offset, batch.header.end)
            found.damaged.append(Finding("damaged events", *place, "the bytes don't fit their checksum", streams))
        if self._deep:
            self._parse(view, batch, {run.stream for run in bad})

    def _parse(self, view: SegmentView, batch: Batch, bad: set[str]) -> None:
        """Parse each event of the good runs, and check that it is the one that its header promises."""
        offset = batch.offset + batch.header.length
        for run in batch.header.runs:
            if run.stream not in bad:
                for seq, why in _line_faults(view.read(offset, run.size), run):
                    place = (segment_name(batch.segment), offset, run.size)
                    self._found.damaged.append(Finding("damaged events", *place, why, {run.stream: [(seq, 1)]}))
            offset += run.size

    def _judge_tail(self, hop: JournalHop, end: JournalEnd) -> None:
        tail = end.tail()
        if end.segment is None:
            return
        if not tail:
            self._fs.close(end.segment.handle)
            return
        if end.is_damaged():
            hop.lost_behind_end()
        else:
            streams = end.segment.view.events_in(end.end, end.end + len(tail))
            why = "an unfinished write; the next opening moves it to quarantine"
            place = (segment_name(end.segment.number), end.end, len(tail))
            self._found.torn_tail = Finding("torn tail", *place, why, streams)
        self._fs.close(end.segment.handle)


def _line_faults(content: bytes, run: Run) -> Iterator[tuple[int, str]]:
    for place, line in enumerate(content.split(b"\n")[:-1]):
        seq = run.seq + place
        try:
            event = decode_event(line)
            if event["stream"] != run.stream or event["seq"] != seq:
                yield seq, "it says that it is another event"
            elif not isinstance(event["type"], str) or not isinstance(event["data"], dict):
                yield seq, "its type or data is none"
        except (ValueError, KeyError, TypeError):
            yield seq, "it isn't an event in JSON"


def _difference(kept: Index, built: Index) -> str:
    """Say in which table a kept index differs from one built from the headers; empty if in none."""
    difference = kept.first_difference(built)
    if difference is None:
        return ""
    name, theirs, ours = difference
    return f"its table {name} has {theirs} entries that differ from the {ours} which the journal gives"


def _served_difference(kept: Index, built: Index) -> str:
    """Compare heads with an index that goes on growing: none may lie behind what the journal had."""
    with built.reading() as ours, kept.reading() as theirs:
        for stream in built.streams_beginning(ours, "", built.count_streams(ours)):
            mine, other = built.snapshot_state(ours, stream), kept.snapshot_state(theirs, stream)
            if mine is not None and (other is None or other.head < mine.head or other.epoch < mine.epoch):
                return f"its head of {stream} lies behind the journal's {mine.head}"
    return ""


def _without_repeats(findings: list[Finding]) -> list[Finding]:
    """Drop what was found twice: by its bytes, and as the last batch or a missing run."""
    seen: set[tuple[str, int, str]] = set()
    kept = []
    for finding in findings:
        mark = (finding.segment, finding.offset, finding.kind)
        if mark not in seen:
            seen.add(mark)
            kept.append(finding)
    return kept
