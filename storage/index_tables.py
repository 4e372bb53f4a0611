"""The tables of an index, and what a snapshot of them says. Only ever read here, and within a transaction of LMDB's.

    streams    id -> number, head, epoch, position, time, first seq of the extents that follow, up to 16 extents
    blocks     (number, first seq) -> 16 extents that a full record moved out, or those before a gap
    summaries  id -> JSON object, written only by patches
    keys       id NUL digest -> seq of the line that was stored under that key
    names      digest of a host's key -> id
    blobs      (digest, number, seq) of a run that names a blob -> nothing
    recent     (position >> 12, number) -> id, moved only when the bucket changes
    marks      position -> (segment, offset) of a batch, one for each 256 KiB of journal
    meta       what is indexed, the next stream number, and how many streams have no owner

A value that a transaction gives is copied before it leaves here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import orjson

from .errors import IndexFailed
from .index_records import (
    BLOB_RUN,
    BLOCK_KEY,
    MARK,
    NUMBER,
    POSITION_KEY,
    RECENT_KEY,
    RECORD,
    Extent,
    Indexed,
    StreamState,
    decode_extents,
    decode_indexed,
    decode_record,
    key_digest,
)
from .limits import ID_PATTERN
from .requests import OWNERLESS, StreamRow, Summary
from .row_filter import RowFilter

Transaction: TypeAlias = Any

TABLES = ("streams", "blocks", "summaries", "keys", "names", "blobs", "recent", "marks", "meta")
BUCKET_BITS = 12


class IndexTables:
    """The tables of one index by their names, read in whatever transaction is given."""

    def __init__(self, databases: Mapping[str, Any]) -> None:
        self._databases = databases
        self._streams = databases["streams"]
        self._recent = databases["recent"]

    def read_indexed(self, transaction: Transaction) -> Indexed | None:
        """Give the last indexed batch as this snapshot has it. Raises IndexFailed."""
        value = transaction.get(b"indexed", db=self._databases["meta"])
        if value is None:
            return None
        try:
            return decode_indexed(value)
        except ValueError as error:
            raise IndexFailed(f"the index is damaged: {error}") from None

    def snapshot_state(self, transaction: Transaction, stream: str) -> StreamState | None:
        """Give a stream's record as this snapshot has it; what can't be an id has none, and may be no key of LMDB's."""
        value = transaction.get(stream.encode(), db=self._streams) if ID_PATTERN.match(stream) else None
        return None if value is None else decode_record(value)

    def summary(self, transaction: Transaction, stream: str) -> Summary:
        """Give a stream's summary; empty where it has none."""
        summary: Summary = orjson.loads(self.summary_content(transaction, stream))
        return summary

    def summary_content(self, transaction: Transaction, stream: str) -> bytes:
        """Give a stream's summary as it is kept, as compact JSON."""
        content: bytes = transaction.get(stream.encode(), db=self._databases["summaries"]) or b"{}"
        return content

    def row(self, transaction: Transaction, stream: str) -> StreamRow | None:
        """Give a stream's row of a list."""
        state = self.snapshot_state(transaction, stream)
        if state is None:
            return None
        summary = self.summary(transaction, stream)
        return StreamRow(stream, state.head, state.epoch, state.position, state.active, summary)

    def stored_key(self, transaction: Transaction, stream: str, key: str) -> int | None:
        """Give the seq of the line that was stored under `key`."""
        entry = stream.encode() + b"\0" + bytes.fromhex(key_digest(key))
        value = transaction.get(entry, db=self._databases["keys"])
        return None if value is None else int(NUMBER.unpack(value)[0])

    def stream_named(self, transaction: Transaction, key: str) -> str | None:
        """Give the id of the stream that a host's key names."""
        value = transaction.get(bytes.fromhex(key_digest(key)), db=self._databases["names"])
        return None if value is None else value.decode()

    def streams_beginning(
        self, transaction: Transaction, prefix: str, limit: int, *, ownerless: bool = True
    ) -> list[str]:
        """List ids that begin with `prefix`, in order, `limit` at most; also those without an owner, if wanted."""
        found: list[str] = []
        cursor = transaction.cursor(db=self._streams)
        more = cursor.set_range(prefix.encode()) if prefix else cursor.first()
        while more and len(found) < limit and cursor.key().startswith(prefix.encode()):
            if ownerless or RECORD.unpack_from(cursor.value())[2] != OWNERLESS:
                found.append(cursor.key().decode())
            more = cursor.next()
        return found

    def places_holding(
        self, transaction: Transaction, wanted: RowFilter, bound: tuple[int, str]
    ) -> list[tuple[int, str]]:
        """List (position, id) of streams with events whose summaries may fit, newest first, from `bound` down.

        Walks all summaries, which takes less time than a walk by recency: they lie behind each other.
        """
        needle, passes = wanted.needle, wanted.passes
        summaries = transaction.cursor(db=self._databases["summaries"])
        streams = [stream for stream, content in summaries if needle in content and passes(content)]
        places = [(self._position(transaction, stream), stream.decode()) for stream in streams]
        return sorted((place for place in places if place[0] > 0 and place <= bound), reverse=True)

    def recent(self, transaction: Transaction, before: tuple[int, str] | None) -> Iterator[tuple[int, str]]:
        """Walk (position, id) of streams with events, newest first, below `before`."""
        cursor = transaction.cursor(db=self._recent)
        if before is None:
            more = cursor.last()
        else:
            bound = RECENT_KEY.pack((before[0] >> BUCKET_BITS) + 1, 0)
            more = cursor.prev() if cursor.set_range(bound) else cursor.last()
        while more:
            bucket = RECENT_KEY.unpack(cursor.key())[0]
            rows: list[tuple[int, str]] = []
            while more and RECENT_KEY.unpack(cursor.key())[0] == bucket:
                stream = cursor.value()
                rows.append((self._position(transaction, stream), stream.decode()))
                more = cursor.prev()
            rows.sort(reverse=True)
            yield from (row for row in rows if before is None or row < before)

    def extents(self, transaction: Transaction, stream: str, start: int, stop: int, size_max: int) -> list[Extent]:
        """List the extents that hold events `start` to `stop` (without it), until they add up to `size_max` bytes.

        Each goes on behind the one before. Raises IndexFailed if one doesn't, or it would be read for ever.
        """
        state = self.snapshot_state(transaction, stream)
        if state is None or start >= stop:
            return []
        found: list[Extent] = []
        size = due = 0
        for extent in self._all_extents(transaction, state, start):
            if extent.first < due or not extent.events:
                raise IndexFailed(
                    f"the index contradicts itself: it has event {extent.first} of {stream} elsewhere, too"
                )
            due = extent.first + extent.events
            if extent.first >= stop or (found and size + extent.size > size_max):
                break
            if extent.first + extent.events > start:
                found.append(extent)
                size += extent.size
        return found

    def all_extents(self, transaction: Transaction, stream: str) -> list[Extent]:
        """List all extents of a stream."""
        state = self.snapshot_state(transaction, stream)
        return [] if state is None else list(self._all_extents(transaction, state, 0))

    def has_events_between(self, transaction: Transaction, stream: str, begin: int, end: int) -> bool:
        """Say whether a stream has events with positions from `begin` to `end` (without it)."""
        extents = self.all_extents(transaction, stream)
        return any(begin < extent.position + extent.events and extent.position < end for extent in extents)

    def gaps(self, transaction: Transaction, stream: str) -> list[tuple[int, int]]:
        """List (first seq, number) of the events below the head that no batch holds."""
        state = self.snapshot_state(transaction, stream)
        if state is None:
            return []
        summary = self.summary(transaction, stream)
        due = int(summary.get("parent_seq") or 0)
        found = []
        for extent in self._all_extents(transaction, state, 0):
            if extent.first > due:
                found.append((due, extent.first - due))
            due = extent.first + extent.events
        return [*found, (due, state.head - due)] if state.head > due else found

    def _all_extents(self, transaction: Transaction, state: StreamState, start: int) -> Iterator[Extent]:
        """Walk a stream's extents in order, from the block that holds `start` on."""
        if start < state.first:
            cursor = transaction.cursor(db=self._databases["blocks"])
            wanted = BLOCK_KEY.pack(state.number, start)
            lower = BLOCK_KEY.pack(state.number, 0)
            found = cursor.set_range(wanted)
            if not found or cursor.key() != wanted:
                back = cursor.prev() if found else cursor.last()
                found = bool(back and cursor.key() >= lower) or cursor.set_range(lower)
            while found:
                number, first = BLOCK_KEY.unpack(cursor.key())
                if number != state.number:
                    break
                yield from decode_extents(cursor.value(), first)
                found = cursor.next()
        yield from decode_extents(bytes(state.extents), state.first)

    def named_blobs(self, transaction: Transaction) -> Iterator[tuple[str, str, int]]:
        """Walk (digest, stream, first seq) of the runs that name blobs, in the order of digests."""
        streams: dict[int, str] = {}
        for entry in transaction.cursor(db=self._databases["blobs"]).iternext(values=False):
            digest, (number, seq) = entry[: -BLOB_RUN.size], BLOB_RUN.unpack(entry[-BLOB_RUN.size :])
            streams = streams or self._streams_by_number(transaction)
            yield digest.hex(), streams[number], seq

    def is_blob_named(self, transaction: Transaction, digest: str) -> bool:
        """Say whether some run names a blob."""
        cursor = transaction.cursor(db=self._databases["blobs"])
        wanted = bytes.fromhex(digest)
        return bool(cursor.set_range(wanted)) and cursor.key().startswith(wanted)

    def mark_before(self, transaction: Transaction, position: int) -> tuple[int, int] | None:
        """Give (segment, offset) of a batch at or before the one that holds `position`; None where none is known."""
        return next(self.marks_before(transaction, position), None)

    def marks_before(self, transaction: Transaction, position: int) -> Iterator[tuple[int, int]]:
        """Walk back over (segment, offset) of batches that are known by their places, from `position` on."""
        cursor = transaction.cursor(db=self._databases["marks"])
        key = POSITION_KEY.pack(position)
        found = cursor.set_range(key)
        if not found or cursor.key() != key:
            found = cursor.prev() if found else cursor.last()
        while found:
            segment, offset = MARK.unpack(cursor.value())
            yield segment, offset
            found = cursor.prev()

    def count_streams(self, transaction: Transaction) -> int:
        """Count the streams."""
        return int(transaction.stat(self._streams)["entries"])

    def _streams_by_number(self, transaction: Transaction) -> dict[int, str]:
        return {RECORD.unpack_from(value)[0]: key.decode() for key, value in transaction.cursor(db=self._streams)}

    def _position(self, transaction: Transaction, stream: bytes) -> int:
        """Give the position of a stream that another table has. Raises IndexFailed."""
        record = transaction.get(stream, db=self._streams)
        if record is None:
            raise IndexFailed(f"the index contradicts itself: it lists the stream {stream!r:.100}, and doesn't have it")
        return int(RECORD.unpack_from(record)[3])
