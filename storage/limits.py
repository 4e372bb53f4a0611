"""Every limit of the journal, in one place, with its unit; relations between them are asserted here.

The figures belong to the format: a reader of another version relies on them, so a change here is a
change of format. Nothing here is read from the environment.
"""

from __future__ import annotations

import re

KIB = 1024
MIB = 1024 * KIB

FORMAT = 1
"""The version of the bytes on disk; a greater one in a file means "written by a newer version"."""

ID_PATTERN = re.compile(r"[a-z0-9-]{1,64}\Z")
"""What a stream's id looks like: safe in a path, in an LMDB key and on a case-insensitive file system."""

LINE_BYTES_MAX = 1 * MIB
"""One event's line, its newline included."""

PATCH_BYTES_MAX = 4 * KIB
"""One run's patch, as JSON."""

HEADER_BYTES_MAX = 1 * MIB
"""One batch's header line, its newline included."""

RUNS_MAX = 1024
"""Runs in one batch."""

BATCH_BYTES_MAX = 8 * MIB
"""Event lines of one batch, in bytes; a batch is closed at this or at RUNS_MAX, whichever comes first."""

DEPTH_MAX = 512
"""Levels of nesting in an event's data."""

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
"""The integers that every JSON reader of the journal can hold exactly."""

SEGMENT_BYTES = 128 * MIB
"""A segment is sealed by the first batch that ends at or behind this length."""

FILLING_STEP_BYTES = 256 * KIB
"""How much filling is written at a time, between commits."""

FILLING_AHEAD_BYTES = 1 * MIB
"""Filling is extended while less than this lies ahead; also a new segment's first filling."""

RESERVE_BYTES = 64 * MIB
"""Free space below which an append is refused with StoreFull, so that closing and recovery still have room."""

RESERVE_BATCHES = 4
"""... or this many times the batch at hand, if that is more."""

EXTENTS_MAX = 16
"""Extents kept in a stream's own index record; a full record moves to the blocks table."""

MARK_BYTES = 256 * KIB
"""Distance of the index's marks from position to place: a reader hops at most this far to find a position."""

MAP_BYTES = 1 << 40
"""The index's address space. Sparse; never grows, never fills."""

BLOB_BYTES_MAX = 1024 * MIB
"""One blob. It is written and read whole, so this much memory is needed for it, once."""

BLOBS_A_PATCH_MAX = 32
"""Blobs that one event may name: they stand in its run's patch."""

BLOB_GRACE_SECONDS = 3600
"""A blob that nothing names is kept this long since it was put last: it may be about to be named."""

BLOBS_A_LOOK = 256
"""How many files one look for blobs that nothing names takes, between two commits."""

BLOB_LOOK_SECONDS = 5
"""At least so long lies between two looks of one round through the blobs, ..."""

BLOB_ROUND_SECONDS = 3600
"""... and so long between a round's end and the next one's beginning."""

READ_CHUNK_BYTES = 1 * MIB
"""What one read transaction's extents may add up to, before the next transaction."""

SPAN_GAP_BYTES = 8 * KIB
"""Runs with no more than this between them are read in one go."""

assert FILLING_AHEAD_BYTES >= FILLING_STEP_BYTES
assert LINE_BYTES_MAX < BATCH_BYTES_MAX < RESERVE_BYTES * RESERVE_BATCHES
assert BLOBS_A_PATCH_MAX * len('"",' + "0" * 64) <= PATCH_BYTES_MAX - 1024, "beside a turn's and an owner's members"
assert RUNS_MAX * 200 <= HEADER_BYTES_MAX, "a header of runs without patches always fits"
