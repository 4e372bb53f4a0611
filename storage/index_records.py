"""What the index keeps, and its bytes: a stream's record, extents, keys, and the last batch that is indexed.

Fixed-size fields, little-endian in values and big-endian in keys, so that keys sort as numbers do. No LMDB here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, TypeAlias
from zlib import crc32

from .format import BatchHeader, Run

RECORD = struct.Struct("<IQIQQQ")  # number, head, epoch, position, time, first seq
EXTENT = struct.Struct("<IQIIIIQ")  # segment, offset, bytes, events, epoch, crc, position of the first event
EXTENT_EVENTS = struct.Struct("<16xI16x")  # an extent's events alone
INDEXED = struct.Struct("<IQQ8sQQ")  # segment, offset, batch, h, next position, next stream number
CHECK = struct.Struct("<I")  # CRC-32 of what stands before it
MARK = struct.Struct("<IQ")  # segment, offset
NUMBER = struct.Struct("<Q")
BLOCK_KEY = struct.Struct(">IQ")  # stream number, first seq
RECENT_KEY = struct.Struct(">QI")  # bucket of positions, stream number
POSITION_KEY = struct.Struct(">Q")
BLOB_RUN = struct.Struct(">IQ")  # stream number, seq of the run, behind a blob's digest


class Indexed(NamedTuple):
    """The last batch that the index knows, and what comes next."""

    segment: int
    offset: int
    batch: int
    h: str
    next_position: int
    next_number: int

    def encode(self) -> bytes:
        """Give the record's bytes, with a check of them."""
        content = INDEXED.pack(*self[:3], self.h.encode(), *self[4:])
        return content + CHECK.pack(crc32(content))


PlacedRun: TypeAlias = tuple[Run, int, int]
"""A run, where its bytes lie in the segment, and the position of its first event."""


class Extent(NamedTuple):
    """Where a run's events lie: `size` bytes at `offset` of a segment; `first` is the first one's seq."""

    first: int
    segment: int
    offset: int
    size: int
    events: int
    epoch: int
    crc: int
    position: int


@dataclass(slots=True)
class StreamState:
    """A stream's record. `first` is the seq with which `extents` begin; `position` 0 means no event yet."""

    number: int
    head: int
    epoch: int
    position: int
    active: int
    first: int
    extents: bytearray

    def encode(self) -> bytes:
        """Give the record's bytes."""
        return RECORD.pack(self.number, self.head, self.epoch, self.position, self.active, self.first) + self.extents


def placed_runs(header: BatchHeader, offset: int) -> list[PlacedRun]:
    """Give the runs of the batch at `offset`, each with its place and the position of its first event."""
    place = offset + header.length
    position = header.position
    placed = []
    for run in header.runs:
        placed.append((run, place, position))
        place += run.size
        position += run.events
    return placed


def key_digest(key: str) -> str:
    """Give the 32 hex digits under which a key is kept."""
    return blake2b(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def decode_indexed(value: bytes) -> Indexed:
    """Read what is indexed. Raises ValueError for bytes that were changed, which would contradict a good journal."""
    content = value[: -CHECK.size]
    if len(content) != INDEXED.size or value[-CHECK.size :] != CHECK.pack(crc32(content)):
        raise ValueError("what it says of the last batch doesn't fit its checksum")
    segment, offset, batch, h, next_position, next_number = INDEXED.unpack(content)
    return Indexed(segment, offset, batch, h.decode(), next_position, next_number)


def decode_record(value: bytes) -> StreamState:
    """Read a stream's record."""
    number, head, epoch, position, active, first = RECORD.unpack_from(value)
    return StreamState(number, head, epoch, position, active, first, bytearray(value[RECORD.size :]))


def decode_extents(block: bytes, first: int) -> Iterator[Extent]:
    """Read a block of extents, of which the first begins with event `first`."""
    for segment, offset, size, events, epoch, crc, position in EXTENT.iter_unpack(block):
        yield Extent(first, segment, offset, size, events, epoch, crc, position)
        first += events
