"""Opening the journal for its one writer: judge the index, hop to the end, settle the end, go on.

The order of steps is the format's (see the package's text): the last good batch is written again and synced before
anything is acknowledged, since a former writer may have died between its write and its sync; a torn tail is copied to
quarantine before it is overwritten; after damage to what was acknowledged all bytes are kept and appending goes on in
a new file.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, field

from .errors import Failed
from .filesystem import FileSystem, write_whole_file
from .findings import Finding
from .format import FILLING, FILLING_BYTES, encode_segment_header
from .hopping import FileScanner, JournalEnd, JournalHop, Progress
from .index import Index
from .index_records import Indexed
from .index_room import make_room_for_readers
from .limits import FILLING_AHEAD_BYTES, RESERVE_BYTES
from .losses import streams_that_lost
from .scanning import (
    Hopper,
    Segment,
    Stretch,
    is_foreign,
    open_segment,
    segment_name,
    segment_numbers,
    segment_path,
)
from .store import INDEX_DIRECTORY, JOURNAL_DIRECTORY, QUARANTINE_DIRECTORY, StoreDescription
from .trust import IndexRecord, Witness, judge_index, record_of, with_state, write_index_record


@dataclass(slots=True)
class OpeningReport:
    """What opening found and did. `rebuilt` says why the index was built anew; empty if it was trusted.

    `replaying` is when the journal's end was looked for, with the index open: seconds of the system's monotonic clock.
    """

    findings: list[Finding] = field(default_factory=list)
    torn_bytes: int = 0
    possibly_acknowledged: bool = False
    quarantined: str = ""
    hopped_batches: int = 0
    rebuilt: str = ""
    replaying: float | None = None

    @property
    def may_lack_events(self) -> bool:
        """Say whether events that were acknowledged, or may have been, are missing from the journal."""
        return self.possibly_acknowledged or any(finding.kind != "torn tail" for finding in self.findings)


@dataclass(slots=True)
class ActiveSegment:
    """The file that is appended to: the next batch goes to `end`, filling lies up to `filled`, `h` goes into `prev`."""

    number: int
    handle: int
    end: int
    filled: int
    h: str


@dataclass(slots=True)
class Opened:
    """Everything the commit loop goes on from. `declare` are damaged streams to be marked so in the next batch."""

    index: Index
    record: IndexRecord
    active: ActiveSegment
    next_batch: int
    next_position: int
    report: OpeningReport
    declare: list[str]
    must_declare: bool


def open_for_writing(
    fs: FileSystem,
    description: StoreDescription,
    boot: str,
    *,
    distrust_index: bool = False,
    progress: Progress | None = None,
    scan: FileScanner | None = None,
) -> Opened:
    """Open the journal of the store whose lock the caller holds.

    Raises Failed or OSError, having acknowledged nothing.
    """
    return _Opening(fs, description, boot, progress, scan).run(distrust_index)


class _Opening:
    def __init__(
        self,
        fs: FileSystem,
        description: StoreDescription,
        boot: str,
        progress: Progress | None,
        scan: FileScanner | None,
    ) -> None:
        self._fs = fs
        self._store = description.store
        self._syncs = description.durability == "fsync"
        self._boot = boot
        self._progress = progress
        self._scan = scan
        self._report = OpeningReport()

    def run(self, distrust: bool) -> Opened:
        fs = self._fs
        for directory in (JOURNAL_DIRECTORY, INDEX_DIRECTORY):
            fs.make_directory(directory)
        self._remove_temporary()
        judgement = judge_index(fs, self._store, self._boot, distrust=distrust)
        record = judgement.record if judgement.trusted else None
        if not self._syncs and record is None and (judgement.machine_went_down or judgement.record is None):
            cut_unsynced(fs, self._store, judgement.witness, self._report)
        if record is None:
            directory = f"{INDEX_DIRECTORY}/{secrets.token_hex(8)}"
            if fs.free_bytes() < RESERVE_BYTES:
                self._remove_other_indexes(directory)  # nobody opens them again, and the new one needs their space
            fs.make_directory(directory)
            self._report.rebuilt = judgement.why
        else:
            directory = record.directory
            if record.state == "clean":
                record = with_state(record, "open", self._boot, None)
                write_index_record(fs, record)
        make_room_for_readers(fs, directory)
        index = Index.open_writable(fs.path(directory))
        try:
            return self._go_on(index, directory, record, judgement.witness, judgement.machine_went_down)
        except BaseException:
            index.close()
            raise

    def _go_on(
        self, index: Index, directory: str, record: IndexRecord | None, witness: Witness | None, machine_went_down: bool
    ) -> Opened:
        self._report.replaying = time.monotonic()
        indexed = index.indexed
        settled: list[ActiveSegment] = []

        def settle(end: JournalEnd) -> None:
            if not end.is_damaged():
                settled.append(self._settle(end, machine_went_down))

        hop = JournalHop(
            self._fs,
            self._store,
            index,
            report=self._report.findings.append,
            witness=witness,
            write=True,
            progress=self._progress,
            scan=self._scan,
            settle=settle,
        )
        end = hop.run()
        damaged = not settled
        lost = list(end.damaged)
        if damaged:
            hop.lost_behind_end()
            lost = [*end.damaged, *self._lost_at_end(end, index, indexed)]
            # The file that the index knows may be gone: its number is never used again.
            end.greatest_number = max(end.greatest_number, 0 if indexed is None else indexed.segment)
            active = self._new_segment(end)
        else:
            (active,) = settled
            self._cut_filling(end)
        self._report.hopped_batches = end.hopped
        if record is None:
            record = self._name_new_index(index, directory, witness)
        self._remove_other_indexes(directory)
        with index.reading() as snapshot:
            declare = [name for name in dict.fromkeys(lost) if not index.summary(snapshot, name).get("damaged")]
        return Opened(
            index, record, active, end.next_batch, end.next_position, self._report, declare, damaged or bool(declare)
        )

    def _lost_at_end(self, end: JournalEnd, index: Index, indexed: Indexed | None) -> list[str]:
        """Name the streams with events in batches that are known to have been acknowledged and aren't whole."""
        if not end.indexed_is_bad:
            return []
        if indexed is not None:
            return streams_that_lost(self._fs, self._store, index, indexed)
        if end.segment is None or end.last is None:
            return []
        return [run.stream for run in end.segment.view.bad_runs(end.last)]

    def _remove_temporary(self) -> None:
        """Remove files that were being made when their writer died; they were never part of the store."""
        for directory in ("", JOURNAL_DIRECTORY, QUARANTINE_DIRECTORY):
            for name in self._fs.names(directory):
                if name.endswith(".tmp"):
                    self._fs.remove(f"{directory}/{name}")

    def _settle(self, end: JournalEnd, machine_went_down: bool) -> ActiveSegment:
        """Quarantine a torn tail, fill it over, write the last batch again in place; sync file and name."""
        if end.segment is None:
            return self._new_segment(end)
        segment = end.segment
        torn = end.tail()
        if torn:
            self._quarantine(segment, end.end, torn, machine_went_down)
            self._fs.write(segment.handle, end.end, FILLING * len(torn))
        if end.last is not None:
            again = segment.view.read(end.last.offset, end.last.header.end)
            self._fs.write(segment.handle, end.last.offset, again)
            h = end.last.header.h
        else:
            again = segment.view.read(0, segment.header_length)
            self._fs.write(segment.handle, 0, again)
            h = segment.header.h if segment.header else ""
        self._fs.sync(segment.handle)
        # The file may have got its name from a writer that died before it synced the directory, or failed to.
        self._fs.sync_directory(JOURNAL_DIRECTORY)
        return ActiveSegment(segment.number, segment.handle, end.end, max(segment.view.size, end.end), h)

    def _cut_filling(self, end: JournalEnd) -> None:
        """Cut the filling that a former writer left in the file before the last, having died after a roll."""
        if end.before is None:
            return
        number, length = end.before
        handle = self._fs.open(segment_path(number), write=True)
        try:
            if self._fs.size(handle) > length:
                self._fs.truncate(handle, length)
                self._fs.sync(handle)
        finally:
            self._fs.close(handle)

    def _quarantine(self, segment: Segment, offset: int, torn: bytes, machine_went_down: bool) -> None:
        """Keep a copy of an unfinished batch, with a note that says what it is."""
        why = "an unfinished write at the journal's end; nothing in it was acknowledged"
        if machine_went_down:
            why = "an unfinished write at the journal's end; the machine went down, so it was possibly acknowledged"
        quarantine(self._fs, self._report, segment, offset, torn, "torn tail", why)
        self._report.possibly_acknowledged = machine_went_down

    def _new_segment(self, end: JournalEnd) -> ActiveSegment:
        if end.segment is not None:
            self._fs.close(end.segment.handle)
        return create_segment(self._fs, self._store, end.greatest_number + 1, end.next_batch)

    def _name_new_index(self, index: Index, directory: str, witness: Witness | None) -> IndexRecord:
        """Let index.json name the index that was built."""
        indexed = index.indexed
        if indexed is not None and indexed.batch and (witness is None or witness.batch < indexed.batch):
            witness = Witness(indexed.batch, indexed.h, indexed.next_position)
        record = record_of(self._fs, directory, self._store, self._boot, "open", witness)
        write_index_record(self._fs, record)
        return record

    def _remove_other_indexes(self, directory: str) -> None:
        """Remove the indexes that aren't this one: the former one, and any whose builder died before it was named."""
        for name in self._fs.names(INDEX_DIRECTORY):
            if f"{INDEX_DIRECTORY}/{name}" != directory:
                self._fs.remove_tree(f"{INDEX_DIRECTORY}/{name}")


def create_segment(fs: FileSystem, store: str, number: int, first: int) -> ActiveSegment:
    """Make a segment file: whole and durable before it has its name, and never in place of another.

    Raises Failed where the name is taken (somebody else writes here), OSError where the disk refuses.
    """
    temporary = f"{JOURNAL_DIRECTORY}/{number:08d}.tmp"
    line, h = encode_segment_header(number, store, time.time_ns() // 1_000_000, first)
    fs.remove(temporary)
    handle = fs.open(temporary, create=True)
    try:
        fs.write(handle, 0, line + FILLING * (FILLING_AHEAD_BYTES - len(line)))
        fs.sync(handle)
        fs.rename(temporary, segment_path(number))
        fs.sync_directory(JOURNAL_DIRECTORY)
    except FileExistsError:
        fs.close(handle)
        raise Failed(f"{segment_path(number)} appeared from elsewhere") from None
    except BaseException:
        fs.close(handle)
        fs.remove(temporary)
        raise
    return ActiveSegment(number, handle, len(line), FILLING_AHEAD_BYTES, h)


def cut_unsynced(fs: FileSystem, store: str, witness: Witness | None, report: OpeningReport) -> None:
    """After the machine's death, move everything from the first bad batch on to quarantine: the commits weren't synced.

    What the witness knows was durable, so damage to it is left to be reported as such.
    """
    durable = 0 if witness is None else witness.batch
    due = None
    cut = False
    for number in segment_numbers(fs):
        try:
            segment = open_segment(fs, number, store, write=True)
        except OSError:
            continue
        try:
            if is_foreign(segment):
                continue
            if due is not None and segment.header is not None and segment.header.first > due > durable:
                cut = True  # the file before was rolled, and lost its end behind this one's sync
            begin, due = (0, None) if cut else _first_bad(segment, durable)
            if begin is None:
                continue
            tail = segment.view.read(begin, segment.view.size - begin).rstrip(FILLING_BYTES)
            if tail:
                why = "the machine went down before this was on disk; it was possibly acknowledged"
                quarantine(fs, report, segment, begin, tail, "unsynced batches", why)
                report.possibly_acknowledged = True
            if cut or begin == 0:
                fs.remove(segment_path(number))
            else:
                fs.truncate(segment.handle, begin)
                fs.sync(segment.handle)
            cut = True
        finally:
            fs.close(segment.handle)
    if cut:
        fs.sync_directory(JOURNAL_DIRECTORY)


def _first_bad(segment: Segment, durable: int) -> tuple[int | None, int | None]:
    """Find where the first batch begins that isn't whole and wasn't known to be durable; None where all are good.

    Gives the number of the batch that is due behind them, too.
    """
    hopper = Hopper(segment.view, segment.begin())
    for hop in hopper:
        if isinstance(hop, Stretch):
            return (0 if segment.header is None and hopper.last is None else hop.offset), None
        if hop.header.number > durable and not segment.view.is_whole(hop):
            return hop.offset, None
    if segment.header is None:
        return 0, None
    due = segment.header.first if hopper.last is None else hopper.last.header.number + 1
    return (hopper.end, None) if segment.view.first_content(hopper.end) < segment.view.size else (None, due)


def quarantine(
    fs: FileSystem, report: OpeningReport, segment: Segment, offset: int, content: bytes, kind: str, why: str
) -> None:
    """Keep a durable copy of bytes that are about to be cut, with a note, and report them."""
    fs.make_directory(QUARANTINE_DIRECTORY)
    name = f"{QUARANTINE_DIRECTORY}/{kind.split()[0]}-{segment.number:08d}-{offset}-{secrets.token_hex(4)}"
    streams = segment.view.events_in(offset, offset + len(content))
    note = {
        "why": why,
        "segment": segment_name(segment.number),
        "offset": offset,
        "bytes": len(content),
        "time": time.time_ns() // 1_000_000,
        "streams": {stream: [list(part) for part in ranges] for stream, ranges in streams.items()},
    }
    write_whole_file(fs, f"{name}.bytes", content)
    write_whole_file(fs, f"{name}.json", json.dumps(note).encode() + b"\n")
    fs.sync_directory("")
    report.torn_bytes += len(content)
    report.quarantined = f"{name}.bytes"
    report.findings.append(Finding(kind, segment_name(segment.number), offset, len(content), why, streams))
