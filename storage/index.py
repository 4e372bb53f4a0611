"""The LMDB index: where each stream's events lie. Derived from the headers alone, and disposable.

Here it is opened and written; index_tables.py says what is in it, and reads that. An index built anew from the headers
equals the one that was kept, entry for entry: every value is a pure function of the batches. The only module that knows
LMDB. An environment must not be used in a forked child: it refuses by pid.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from operator import eq
from typing import Any, TypeAlias

import lmdb
import orjson

from .errors import IndexFailed
from .file_scan import FileScan, StreamScan
from .format import Run
from .index_records import (
    BLOB_RUN,
    BLOCK_KEY,
    EXTENT,
    EXTENT_EVENTS,
    MARK,
    NUMBER,
    POSITION_KEY,
    RECENT_KEY,
    Indexed,
    PlacedRun,
    StreamState,
    key_digest,
)
from .index_tables import BUCKET_BITS, TABLES, IndexTables, Transaction
from .limits import EXTENTS_MAX, MAP_BYTES, MARK_BYTES, MIB
from .requests import OWNERLESS, Summary
from .scanning import Batch

_OWNERLESS_KEY = b"ownerless"
_BLOCK_BYTES = EXTENTS_MAX * EXTENT.size
_HOT_RECORDS_MAX = 50_000
_UNREADABLE = (struct.error, OverflowError, UnicodeDecodeError, orjson.JSONDecodeError)
READERS_MAX = 4096


class Index(IndexTables):
    """One open index environment, for the writer (`open_writable`) or for readers (`open_readable`)."""

    def __init__(self, environment: Any, *, writable: bool) -> None:
        super().__init__({name: environment.open_db(name.encode(), create=writable) for name in TABLES})
        self._environment = environment
        self._pid = os.getpid()
        self.page_bytes: int = environment.stat()["psize"]
        self._hot: dict[str, StreamState] = {}
        with environment.begin() as transaction:
            self.indexed = self.read_indexed(transaction)
            counted = transaction.get(_OWNERLESS_KEY, db=self._databases["meta"])
            self._ownerless: int = NUMBER.unpack(counted)[0] if counted else 0

    # -- opening and closing

    @classmethod
    def open_writable(cls, path: str) -> Index:
        """Open or make the index in the directory `path`, for the one writer. Raises Failed."""
        try:
            environment = _open_environment(path, readonly=False)
            environment.reader_check()
            index = cls(environment, writable=True)
            _share(path, index)
            return index
        except lmdb.Error as error:
            raise IndexFailed(f"the index {path} can't be opened: {error}") from None

    @classmethod
    def in_memory(cls) -> Index:
        """Make an index that lies in an anonymous file in memory: for a reader of a store that nobody serves."""
        handle = os.memfd_create("turnkeeper-index", os.MFD_CLOEXEC)
        try:
            environment = _open_environment(f"/proc/self/fd/{handle}", readonly=False, subdir=False, lock=False)
            return cls(environment, writable=True)
        finally:
            os.close(handle)

    @classmethod
    def open_readable(cls, path: str, *, lock: bool) -> Index:
        """Open an index to read; without `lock` nothing on disk changes, and nobody may be writing it.

        Raises Failed.
        """
        try:
            return cls(_open_environment(path, readonly=True, lock=lock), writable=False)
        except lmdb.Error as error:
            raise IndexFailed(f"the index {path} can't be read: {error}") from None

    def close(self) -> None:
        """Close the environment; what isn't synced stays the system's to write."""
        with _shared_lock:
            for token, (index, _) in list(_shared.items()):
                if index is self:
                    del _shared[token]
        self._environment.close()

    def sync(self) -> None:
        """Make everything durable; only a clean close does this."""
        self._environment.sync(True)

    def used_bytes(self) -> int:
        """Give the length that the index needs as it was committed last, its free pages included."""
        return (int(self._environment.info()["last_pgno"]) + 1) * self.page_bytes

    @property
    def is_inherited(self) -> bool:
        """Say whether this process got the index by fork."""
        return self._pid != os.getpid()

    # -- transactions

    def writing(self) -> AbstractContextManager[Transaction]:
        """Run the one write transaction. Raises IndexFailed where LMDB fails, or gives what nobody can have put."""
        return self._transaction("the index transaction failed", write=True)

    def reading(self) -> AbstractContextManager[Transaction]:
        """Hold one snapshot. Never across an await or a yield to a caller: an old one makes the index grow.

        Raises IndexFailed where LMDB fails, or gives what nobody can have put.
        """
        return self._transaction("the index can't be read", write=False)

    @contextmanager
    def _transaction(self, failed: str, *, write: bool) -> Iterator[Transaction]:
        self._check_process()
        try:
            with self._environment.begin(write=write) as transaction:
                yield transaction
        except lmdb.Error as error:
            raise IndexFailed(f"{failed}: {error}") from None
        except _UNREADABLE as error:
            raise IndexFailed(f"the index is damaged: {error}") from error

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise RuntimeError("an index can't be used in a forked child; open the store again in this process")

    # -- writing

    def apply(
        self, transaction: Transaction, batch: Batch, runs: list[PlacedRun], next_position: int
    ) -> dict[str, str]:
        """Index one batch; give the streams whose events are not where they should be, and why.

        A run that begins behind its stream's head leaves a gap; one that begins before it was there already.
        """
        header = batch.header
        before = self.indexed
        next_number = 0 if before is None else before.next_number
        ownerless = self._ownerless
        faults: dict[str, str] = {}
        changed: dict[bytes, StreamState] = {}
        self._forget_cold()
        for run, offset, position in runs:
            state = self._hot.get(run.stream) or self._load(transaction, run.stream)
            if state is None:
                state = StreamState(next_number, 0, run.epoch, 0, 0, 0, bytearray())
                next_number += 1
                ownerless += run.epoch == OWNERLESS
                if run.patch is not None and run.patch.get("parent_seq") == run.seq:
                    state.head = state.first = run.seq
            if run.seq != state.head:
                if run.seq < state.head:
                    faults[run.stream] = f"event {run.seq} again, where {state.head} is due"
                    continue
                faults[run.stream] = f"events {state.head} to {run.seq - 1} are missing"
                self._cut(transaction, state, run.seq)
            if run.events:
                extent = EXTENT.pack(batch.segment, offset, run.size, run.events, run.epoch, run.crc, position)
                self._extend(transaction, state, run, extent, position, header.time)
            state.epoch = max(state.epoch, run.epoch)
            if run.patch is not None:
                self._patch(transaction, run.stream, run.seq, run.patch, state.number)
            self._hot[run.stream] = state
            changed[run.stream.encode()] = state
        self._put_states(transaction, changed)
        if (
            before is None
            or before.segment != batch.segment
            or before.offset // MARK_BYTES != batch.offset // MARK_BYTES
        ):
            mark = MARK.pack(batch.segment, batch.offset)
            transaction.put(POSITION_KEY.pack(header.position), mark, db=self._databases["marks"], overwrite=False)
        self._set_indexed(
            transaction,
            Indexed(batch.segment, batch.offset, header.number, header.h, next_position, next_number),
        )
        self._count_ownerless(transaction, ownerless)
        return faults

    def apply_scan(self, transaction: Transaction, scan: FileScan) -> bool:
        """Index the batches of a scan at once, with the same result as one by one.

        False, and nothing is changed, where they don't go on from what is indexed: then they have to go one by one.
        """
        before = self.indexed
        next_number = 0 if before is None else before.next_number
        ownerless = self._ownerless
        states: list[StreamState] = []
        for found in scan.streams:
            state = self.state(transaction, found.stream)
            if state is None:
                begin = found.first if found.is_fork else 0
                state = StreamState(next_number, begin, found.epoch, 0, 0, begin, bytearray())
                next_number += 1
                ownerless += found.epoch == OWNERLESS
            if state.head != found.first:
                return False
            states.append(state)
        for found, state in zip(scan.streams, states, strict=True):
            self._extend_by_scan(transaction, state, found)
            for seq, patch in found.patches:
                self._patch(transaction, found.stream, seq, patch, state.number)
            transaction.put(found.stream.encode(), state.encode(), db=self._streams)
            if len(self._hot) < _HOT_RECORDS_MAX:
                self._hot[found.stream] = state
            else:
                self._hot.pop(found.stream, None)
        for position, offset in scan.marks:
            mark = MARK.pack(scan.segment, offset)
            transaction.put(POSITION_KEY.pack(position), mark, db=self._databases["marks"], overwrite=False)
        number, offset, h = scan.last
        self._set_indexed(transaction, Indexed(scan.segment, offset, number, h, scan.next_position, next_number))
        self._count_ownerless(transaction, ownerless)
        return True

    def _extend_by_scan(self, transaction: Transaction, state: StreamState, found: StreamScan) -> None:
        """Add a scan's extents to a stream's record; full blocks of them move out."""
        state.epoch = max(state.epoch, found.epoch)
        if not found.events:
            return
        extents = bytes(state.extents + found.extents)
        full = len(extents) // _BLOCK_BYTES * _BLOCK_BYTES
        blocks = []
        known = len(state.extents)
        are_single = found.events * EXTENT.size == len(found.extents)
        for start in range(0, full, _BLOCK_BYTES):
            block = extents[start : start + _BLOCK_BYTES]
            blocks.append((BLOCK_KEY.pack(state.number, state.first), block))
            if are_single and start >= known:
                state.first += EXTENTS_MAX
            else:
                state.first += sum(events for (events,) in EXTENT_EVENTS.iter_unpack(block))
        if blocks:
            transaction.cursor(db=self._databases["blocks"]).putmulti(blocks)
        state.extents = bytearray(extents[full:])
        state.head += found.events
        self._move_recent(transaction, state, found.stream, found.position)
        state.active = found.time

    def raise_head(self, transaction: Transaction, stream: str, head: int, epoch: int = 1) -> bool:
        """Note that events up to `head` once were there though no good batch holds them; True if that is news."""
        state = self.state(transaction, stream)
        if state is None:
            indexed = self.indexed or Indexed(0, 0, 0, "0" * 8, 1, 0)
            state = StreamState(indexed.next_number, 0, epoch, 0, 0, 0, bytearray())
            self._set_indexed(transaction, indexed._replace(next_number=indexed.next_number + 1))
        if head <= state.head:
            return False
        self._cut(transaction, state, head)
        self._hot[stream] = state
        transaction.put(stream.encode(), state.encode(), db=self._streams)
        return True

    def _put_states(self, transaction: Transaction, changed: Mapping[bytes, StreamState]) -> None:
        """Write the records of a batch's streams, by one call."""
        transaction.cursor(db=self._streams).putmulti([(key, state.encode()) for key, state in changed.items()])

    def _set_indexed(self, transaction: Transaction, indexed: Indexed) -> None:
        transaction.put(b"indexed", indexed.encode(), db=self._databases["meta"])
        self.indexed = indexed

    def _count_ownerless(self, transaction: Transaction, count: int) -> None:
        if count != self._ownerless:
            transaction.put(_OWNERLESS_KEY, NUMBER.pack(count), db=self._databases["meta"])
            self._ownerless = count

    def _extend(
        self, transaction: Transaction, state: StreamState, run: Run, extent: bytes, position: int, time: int
    ) -> None:
        """Add a run's extent to its stream's record, and move the stream up in the list of recent ones."""
        extents = state.extents
        extents += extent
        state.head += run.events
        if len(extents) == EXTENTS_MAX * EXTENT.size:
            self._cut(transaction, state, state.head)
        self._move_recent(transaction, state, run.stream, position + run.events - 1)
        state.active = time

    def _move_recent(self, transaction: Transaction, state: StreamState, stream: str, position: int) -> None:
        """Note a stream's last position, and move it up in the list of recent ones if its bucket is another now."""
        bucket, old = position >> BUCKET_BITS, state.position >> BUCKET_BITS
        if state.position == 0 or bucket != old:
            if state.position:
                transaction.delete(RECENT_KEY.pack(old, state.number), db=self._recent)
            transaction.put(RECENT_KEY.pack(bucket, state.number), stream.encode(), db=self._recent)
        state.position = position

    def _cut(self, transaction: Transaction, state: StreamState, head: int) -> None:
        """Move a record's extents out as one block, and let the record go on at `head`."""
        if state.extents:
            key = BLOCK_KEY.pack(state.number, state.first)
            transaction.put(key, bytes(state.extents), db=self._databases["blocks"])
            state.extents = bytearray()
        state.first = state.head = head

    def _patch(self, transaction: Transaction, stream: str, seq: int, patch: Mapping[str, Any], number: int) -> None:
        """Merge the patch of a run that begins at `seq` into its stream's summary; keys and blobs have their tables."""
        key = stream.encode()
        summaries = self._databases["summaries"]
        old = transaction.get(key, db=summaries)
        summary: Summary = orjson.loads(old) if old else {}
        for name, value in patch.items():
            if name == "keys":
                for digest, seq in value.items():
                    entry = key + b"\0" + bytes.fromhex(digest)
                    transaction.put(entry, NUMBER.pack(seq), db=self._databases["keys"])
            elif name == "blobs":
                for digest in value:
                    entry = bytes.fromhex(digest) + BLOB_RUN.pack(number, seq)
                    transaction.put(entry, b"", db=self._databases["blobs"])
            elif name == "deleted_to":
                if value is not None:
                    summary[name] = max(value, summary.get(name) or 0)
            elif value is None:
                summary.pop(name, None)
            else:
                summary[name] = value
                if name == "key":
                    transaction.put(bytes.fromhex(key_digest(value)), key, db=self._databases["names"])
        transaction.put(key, orjson.dumps(summary, option=orjson.OPT_SORT_KEYS), db=summaries)

    # -- what only the writer knows, and comparing

    def state(self, transaction: Transaction, stream: str) -> StreamState | None:
        """Give a stream's record, from the writer's hot ones or the snapshot."""
        state = self._hot.get(stream)
        if state is None:
            self._forget_cold()
            state = self._load(transaction, stream)
        return state

    def _load(self, transaction: Transaction, stream: str) -> StreamState | None:
        state = self.snapshot_state(transaction, stream)
        if state is not None:
            self._hot[stream] = state
        return state

    def _forget_cold(self) -> None:
        """Bound what is kept; never within a batch, whose records are written at its end."""
        if len(self._hot) >= _HOT_RECORDS_MAX:
            self._hot.clear()

    def entries(self) -> dict[str, list[tuple[bytes, bytes]]]:
        """Give every entry of every table, to compare one index with another."""
        with self.reading() as transaction:
            return {name: list(transaction.cursor(db=database)) for name, database in self._databases.items()}

    def first_difference(self, other: Index) -> tuple[str, int, int] | None:
        """Compare with another index, entry for entry; give the first table that differs and both sizes of it."""
        with self.reading() as mine, other.reading() as theirs:
            for name, database in self._databases.items():
                others = other._databases[name]
                entries = mine.stat(database)["entries"], theirs.stat(others)["entries"]
                pairs = map(eq, mine.cursor(db=database), theirs.cursor(db=others))
                if entries[0] != entries[1] or not all(pairs):
                    return name, *entries
        return None

    @property
    def ownerless(self) -> int:
        """How many of the streams have no owner, as the writer knows it."""
        return self._ownerless


def _open_environment(path: str, *, readonly: bool, subdir: bool = True, lock: bool = True) -> Any:
    """Open LMDB with the largest map that the process's address space allows (RLIMIT_AS)."""
    size = MAP_BYTES
    while True:
        try:
            return lmdb.open(
                path,
                map_size=size,
                subdir=subdir,
                readonly=readonly,
                create=not readonly and subdir,
                max_dbs=len(TABLES),
                max_readers=READERS_MAX,
                sync=False,
                metasync=False,
                readahead=False,
                lock=lock,
                mode=0o600,
                max_spare_txns=2,
            )
        except (lmdb.MemoryError, lmdb.Error, MemoryError) as error:
            if "allocate" not in str(error).lower() or size <= 64 * MIB:
                raise
            size //= 2


_Token: TypeAlias = tuple[int, int]

_shared: dict[_Token, tuple[Index, int]] = {}
_shared_lock = threading.Lock()


def _token(path: str) -> _Token:
    found = os.stat(f"{path}/data.mdb")
    return found.st_dev, found.st_ino


def _share(path: str, index: Index) -> None:
    with _shared_lock:
        _shared[_token(path)] = (index, 1)


@contextmanager
def shared_index(path: str) -> Iterator[Index]:
    """Open a served index to read, or use the one that this process has open: LMDB allows one a process.

    Raises Failed.
    """
    try:
        token = _token(path)
    except OSError as error:
        raise IndexFailed(f"the index {path} can't be opened: {os.strerror(error.errno or 0)}") from None
    with _shared_lock:
        index, users = _shared.get(token, (None, 0))
        if index is None or index.is_inherited:
            index, users = Index.open_readable(path, lock=True), 0
        _shared[token] = (index, users + 1)
    try:
        yield index
    finally:
        _give_back(token, index)


def _give_back(token: _Token, index: Index) -> None:
    with _shared_lock:
        held, users = _shared.get(token, (None, 0))
        if held is not index:
            return
        if users > 1:
            _shared[token] = (index, users - 1)
            return
    index.close()
