"""The journal as its one writer drives it: open, commit, fill and roll between commits, close.

Life of a commit: the append rule decides (drafting), free space and filling are made sure of, then `pwrite`,
`fdatasync`, one unsynced index transaction. Only then is it answered. Any failure from the write on raises Failed and
the journal takes nothing more: its process must end, and a successor's opening settles what the disk has. What is
lost when the *process* dies: nothing that was answered. When the *machine* dies: nothing that was answered; in a
store of durability `os`, which doesn't sync its commits, what the system had not written yet.

Synchronous, for one thread; the caller holds the store's lock as long as the journal is open.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .blobs import fault_of_names
from .collecting import BlobCollection
from .draft_runs import Waiting
from .drafting import Answer, BatchIsFull, Draft, StoredHead
from .errors import Conflict, Failed, Fenced, IndexFailed, InvalidLine, NotFound, StorageError, StoreFull
from .filesystem import FileSystem, LocalFileSystem
from .findings import join_ranges
from .format import FILLING, BatchHeader, Run, encode_batch_header, encode_run
from .full_disk import full_disk_as_refusal, lacks_space
from .hopping import FileScanner, Progress
from .index import Index
from .index_records import PlacedRun, placed_runs
from .index_room import IndexRoom
from .index_tables import Transaction
from .limits import (
    FILLING_AHEAD_BYTES,
    FILLING_STEP_BYTES,
    READ_CHUNK_BYTES,
    RESERVE_BATCHES,
    RESERVE_BYTES,
    RUNS_MAX,
    SEGMENT_BYTES,
)
from .opening import ActiveSegment, Opened, OpeningReport, create_segment, open_for_writing
from .reading import resolve
from .requests import Appended, Granted, Post, Request, Result, StreamRow, Summary
from .run_reader import RunReader
from .scanning import Batch
from .spare_files import rewrite_file
from .store import WRITER_FILE, StoreDescription, describe
from .trust import Witness, with_state, write_index_record


class Journal:
    """An open journal. Make one with `Journal.open`; not usable in a forked child."""

    def __init__(
        self,
        fs: FileSystem,
        description: StoreDescription,
        boot: str,
        opened: Opened,
        is_gone: Callable[[Mapping[str, Any]], bool],
        clock: Callable[[], int],
    ) -> None:
        self._fs = fs
        self._store = description.store
        self._syncs = description.durability == "fsync"
        self._boot = boot
        self._record = opened.record
        self._index = opened.index
        self._index_room = IndexRoom(fs, opened.record.directory, opened.index)
        self._active: ActiveSegment = opened.active
        self._next_batch = opened.next_batch
        self._is_gone = is_gone
        self._clock = clock
        self._failed = False
        self._pid = os.getpid()
        self._reader = RunReader(fs)
        self._blobs = BlobCollection(fs, self._is_blob_named)
        self._positions: dict[str, int] = {}
        self.next_position = opened.next_position
        self.report: OpeningReport = opened.report
        if opened.must_declare:
            self._declare_damage(opened.declare)
        if self.report.may_lack_events:
            self._blobs.keep_all()
        self._blobs.look_if_due()

    @classmethod
    def open(
        cls,
        root: str,
        *,
        boot: str,
        is_gone: Callable[[Mapping[str, Any]], bool],
        holder: Mapping[str, Any],
        distrust_index: bool = False,
        progress: Progress | None = None,
        scan: FileScanner | None = None,
        fs: FileSystem | None = None,
        clock: Callable[[], int] | None = None,
    ) -> Journal:
        """Open the journal of the store at `root`, whose lock the caller holds, and settle how it ended.

        `boot` identifies the machine's present run; `is_gone` says whether a stream's owner has ended; `holder` goes
        into writer.json, for people; `distrust_index` is the supervisor's word that the last writer died of a memory
        fault; `scan` scans several files at a time, elsewhere; `clock` gives milliseconds since 1970. Raises
        StoreRefused, NewerFormat, StoreFull, Failed, OSError.
        """
        fs = fs or LocalFileSystem(root)
        description = describe(root)
        with full_disk_as_refusal(fs):
            opened = open_for_writing(
                fs, description, boot, distrust_index=distrust_index, progress=progress, scan=scan
            )
            try:
                rewrite_file(fs, WRITER_FILE, json.dumps(dict(holder)).encode() + b"\n")
                return cls(fs, description, boot, opened, is_gone, clock or _now)
            except BaseException:
                opened.index.close()
                fs.close(opened.active.handle)
                raise

    @property
    def index_directory(self) -> str:
        """Where the index lies, relative to the store: a reader opens no other."""
        return self._record.directory

    # -- committing

    def commit(self, requests: Sequence[Request]) -> list[Result]:
        """Carry out the requests, in order, in as few batches as hold them; give one result for each.

        When it returns, what it answers is durable and readable from every process. A refused request is an error
        among the results. Raises Failed when it can't be told what was stored.
        """
        if self._failed:
            raise Failed("an earlier commit failed and this writer takes no more")
        if self._pid != os.getpid():
            raise RuntimeError("a journal can't be used in a forked child; open the store again in this process")
        results: list[Result] = []
        while len(results) < len(requests):
            draft, answers = self._draft(requests[len(results) :])
            full = self._write(draft)
            if full is None:
                results.extend(map(self._settled, answers))
            else:
                results.extend(self._judge_again(requests[len(results) : len(results) + len(answers)], full))
        return results

    def _draft(self, requests: Sequence[Request]) -> tuple[Draft, list[Answer]]:
        """Build one batch from the first of the requests; give it and the answers for as many as it took.

        Posts that are joined go into the same batch: where that can't hold the last of them, it holds none.
        """
        draft, answers = self._fill_batch(requests)
        begin = _without_part_of_joined(requests, len(answers))
        if begin == len(answers):
            return draft, answers
        if begin > 0:
            return self._fill_batch(requests[:begin])
        refusal = InvalidLine(requests[0].stream, 0, "more is joined to it than one batch holds")
        draft, _ = self._fill_batch(())
        return draft, [refusal] * _count_joined(requests)

    def _fill_batch(self, requests: Sequence[Request]) -> tuple[Draft, list[Answer]]:
        """Take requests into a batch until it is full."""
        answers: list[Answer] = []
        with self._index.reading() as snapshot:
            draft = Draft(_Snapshot(self._fs, self._index, snapshot, self._reader), self._is_gone)
            try:
                for request in requests:
                    answers.append(draft.add(request))
            except BatchIsFull:
                pass
        return draft, answers

    def _judge_again(self, requests: Sequence[Request], full: StoreFull) -> list[Result]:
        """Answer requests whose batch found no room, each by what is stored alone.

        What the batch would have changed must not count: no line of it is stored, and no grant of it fences anybody.
        """
        results: list[Result] = []
        unwritten: set[str] = set()
        with self._index.reading() as snapshot:
            stored = _Snapshot(self._fs, self._index, snapshot, self._reader)
            for request in requests:
                answer = Draft(stored, self._is_gone).add(request)
                if isinstance(answer, Waiting | Granted) or (
                    isinstance(answer, Conflict | Fenced | NotFound) and request.stream in unwritten
                ):
                    unwritten.add(request.stream)
                    results.append(full)
                else:
                    results.append(answer)
        return results

    def _settled(self, answer: Answer) -> Result:
        """Turn an answer that waited for its batch, which is written now, into a result."""
        if not isinstance(answer, Waiting):
            return answer
        run = answer.run
        position = self._positions[run.stream] + answer.events - 1 if answer.has_lines else 0
        return Appended(answer.first, run.seq + answer.events, position)

    def _write(self, draft: Draft) -> StoreFull | None:
        """Write, sync and index one batch; StoreFull if there is no room, and then nothing happened."""
        if not draft.runs:
            return None
        entries, runs, lines = draft.finish()
        return self._write_batch(entries, runs, lines)

    def _write_batch(self, entries: list[str], runs: list[Run], lines: bytes) -> StoreFull | None:
        active = self._active
        position, now = self.next_position, self._clock()
        line, h = encode_batch_header(self._next_batch, position, now, len(lines), entries, active.h)
        content = line + lines
        full = self._make_room(len(content), len(runs), len(line))
        if full is not None:
            return full
        try:
            self._fs.write(active.handle, active.end, content)
            if self._syncs:
                self._fs.sync(active.handle)
            header = BatchHeader(self._next_batch, position, now, len(lines), runs, active.h, h, len(line))
            batch = Batch(active.number, active.end, header)
            placed = placed_runs(header, active.end)
            self._index_batch(batch, placed, position + sum(run.events for run in runs))
        except BaseException as error:
            self._failed = True
            if isinstance(error, OSError):
                raise Failed(f"batch {self._next_batch} could not be written: {error}") from error
            if isinstance(error, IndexFailed) and self._fs.free_bytes() < RESERVE_BYTES:
                # Nothing speaks against the index, and for a new one there would be no space.
                raise Failed(f"the disk is full, and batch {self._next_batch} isn't indexed: {error.what}") from error
            raise
        self._positions = {run.stream: first for run, _, first in placed}
        active.end += len(content)
        active.h = h
        self._next_batch += 1
        self.next_position = position + sum(run.events for run in runs)
        return None

    def _index_batch(self, batch: Batch, placed: list[PlacedRun], next_position: int) -> None:
        with self._index.writing() as transaction:
            faults = self._index.apply(transaction, batch, placed, next_position)
            if faults:
                raise Failed(f"the index contradicts batch {batch.header.number}: {faults}")

    def _declare_damage(self, streams: list[str]) -> None:
        """Write down which streams miss events, so that their heads outlive the index; also a batch without runs."""
        runs: list[Run] = []
        with self._index.reading() as snapshot:
            for stream in streams:
                state = self._index.state(snapshot, stream)
                if state is not None:
                    runs.append(Run(stream, state.epoch, state.head, 0, 0, 0, {"damaged": True}))
        for start in range(0, max(1, len(runs)), RUNS_MAX):
            part = runs[start : start + RUNS_MAX]
            full = self._write_batch([encode_run(run) for run in part], part, b"")
            if full is not None:
                raise full

    # -- space, filling, rolling

    def _make_room(self, size: int, runs: int, header_bytes: int) -> StoreFull | None:
        """Make sure of the reserve, that the batch lies within the filling, and that its index entries find space."""
        reserve = max(RESERVE_BYTES, RESERVE_BATCHES * size)
        free = self._fs.free_bytes()
        if free < reserve:
            return StoreFull(free, reserve)
        active = self._active
        try:
            self._index_room.make(runs, header_bytes)
            if active.end + size > active.filled:
                self._fill(active.end + size - active.filled + FILLING_STEP_BYTES)
        except OSError as error:
            self._require_full_disk(error)
            return StoreFull(self._fs.free_bytes(), size)
        return None

    def _require_full_disk(self, error: OSError) -> None:
        """Take no more if the disk failed in making room otherwise than by being full. Raises Failed."""
        if not lacks_space(error):
            self._failed = True
            raise Failed(f"the journal can't be extended: {error}") from error

    def _fill(self, size: int) -> None:
        active = self._active
        try:
            self._fs.write(active.handle, active.filled, FILLING * size)
        finally:
            active.filled = max(active.filled, self._fs.size(active.handle))

    def between_commits(self) -> None:
        """Make room ahead, seal a full segment and go on in a new one; at times remove blobs that nothing names.

        Call it when the answers are out. A full disk is no error here: the next commit answers StoreFull. Raises
        Failed, OSError.
        """
        if self._failed:
            return
        active = self._active
        try:
            if active.end >= SEGMENT_BYTES:
                self._active = create_segment(self._fs, self._store, active.number + 1, self._next_batch)
                self._cut(active)
            elif active.filled - active.end < FILLING_AHEAD_BYTES:
                self._fill(FILLING_STEP_BYTES)
            self._index_room.keep_ahead()
        except OSError as error:
            self._require_full_disk(error)
        self._blobs.look_if_due()

    def _is_blob_named(self, digest: str) -> bool:
        with self._index.reading() as snapshot:
            return self._index.is_blob_named(snapshot, digest)

    def _cut(self, retired: ActiveSegment) -> None:
        """Cut a sealed segment's filling off.

        Nothing may be stored in its successor before: whoever opens the journal behind a crash looks for filling to be
        cut where the index ends, and in no file before that.
        """
        self._fs.truncate(retired.handle, retired.end)
        self._fs.sync(retired.handle)
        self._fs.close(retired.handle)

    # -- looking

    def resolve(self, wanted: str) -> str:
        """Give the id that `wanted` names: an id, a host's key, or a unique prefix. Raises NotFound, Ambiguous."""
        with self._index.reading() as snapshot:
            return resolve(self._index, snapshot, wanted)

    def row(self, id: str) -> StreamRow:
        """Give what is known of a stream. Raises NotFound."""
        with self._index.reading() as snapshot:
            row = self._index.row(snapshot, id)
        if row is None:
            raise NotFound(id)
        return row

    def missing(self, id: str) -> list[tuple[int, int]]:
        """List (first seq, number) of a damaged stream's events that can't be read. Reads all of its own events."""
        with self._index.reading() as snapshot:
            gaps = self._index.gaps(snapshot, id)
            extents = self._index.all_extents(snapshot, id)
        return join_ranges([*gaps, *self._reader.unreadable(id, extents)])

    def statistics(self) -> dict[str, int]:
        """Count what the journal holds: batches, events, streams, and where the next batch goes."""
        with self._index.reading() as snapshot:
            streams = self._index.count_streams(snapshot)
        return {
            "batches": self._next_batch - 1,
            "position": self.next_position,
            "streams": streams,
            "ownerless": self._index.ownerless,
            "segment": self._active.number,
            "end": self._active.end,
        }

    # -- closing

    def close(self) -> None:
        """Close cleanly: the index synced and named clean, with the last batch as witness.

        After a failure it only lets go, and the next opening settles the rest; also on a full disk that has no room
        for the words that it was clean.
        """
        indexed = self._index.indexed
        if not self._failed:
            if not self._syncs:
                self._fs.sync(self._active.handle)
            self._index.sync()
        self._index.close()
        if not self._failed:
            witness = None if indexed is None else Witness(indexed.batch, indexed.h, indexed.next_position)
            self._record = with_state(self._record, "clean", self._boot, witness)
            try:
                write_index_record(self._fs, self._record)
            except OSError as error:
                if not lacks_space(error):
                    raise
        self._failed = True
        self._reader.close()
        self._fs.close(self._active.handle)


class _Snapshot:
    """What is stored, as the append rule asks for it, in one transaction."""

    def __init__(self, fs: FileSystem, index: Index, transaction: Transaction, reader: RunReader) -> None:
        self._fs = fs
        self._index = index
        self._transaction = transaction
        self._reader = reader

    def head(self, stream: str) -> StoredHead | None:
        return self._index.state(self._transaction, stream)

    def summary(self, stream: str) -> Summary:
        return self._index.summary(self._transaction, stream)

    def lines(self, stream: str, first: int, stop: int) -> list[tuple[int, bytes, int]]:
        found: list[tuple[int, bytes, int]] = []
        while first < stop:
            extents = self._index.extents(self._transaction, stream, first, stop, READ_CHUNK_BYTES)
            if not extents or extents[0].first > first:
                break
            for extent in extents:
                if extent.first > first:
                    return found
                lines = self._reader.lines(stream, extent)
                for number in range(first, min(stop, extent.first + extent.events)):
                    place = number - extent.first
                    found.append((extent.epoch, lines[place] + b"\n", extent.position + place))
                first = extent.first + extent.events
        return found

    def stored_key(self, stream: str, key: str) -> int | None:
        return self._index.stored_key(self._transaction, stream, key)

    def stream_named(self, key: str) -> str | None:
        return self._index.stream_named(self._transaction, key)

    def blobs_fault(self, stream: str, seq: int, named: Any) -> StorageError | None:
        return fault_of_names(self._fs, stream, seq, named)


def _is_joined(request: Request) -> bool:
    return request.__class__ is Post and request.joined


def _without_part_of_joined(requests: Sequence[Request], count: int) -> int:
    """Give how many of the first `count` requests a batch may hold so that no joined posts are torn apart."""
    while 0 < count < len(requests) and _is_joined(requests[count]):
        count -= 1
    return count


def _count_joined(requests: Sequence[Request]) -> int:
    """Count the first request and those that are joined to it."""
    return next((count for count in range(1, len(requests)) if not _is_joined(requests[count])), len(requests))


def _now() -> int:
    return time.time_ns() // 1_000_000
