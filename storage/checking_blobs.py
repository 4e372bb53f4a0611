"""Whether the blobs that events name are there, and are what their names say. Reads each of them; changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from .blobs import blob_path
from .errors import Corrupt
from .filesystem import FileSystem
from .findings import Finding, SeqRange, join_ranges
from .index import Index
from .index_tables import Transaction
from .limits import BLOB_BYTES_MAX, MIB
from .run_reader import RunReader


class _Fault(NamedTuple):
    kind: str
    size: int
    why: str


def check_blobs(fs: FileSystem, index: Index) -> tuple[int, list[Finding]]:
    """Check every blob that the index knows to be named; give how many there are, and what is wrong with some.

    A finding's file is the blob's, and its events are those that name it: where a run has several and none of their
    lines says which, all of the run. Raises Failed.
    """
    count = 0
    findings: list[Finding] = []
    runs = RunReader(fs)
    try:
        with index.reading() as snapshot:
            for digest, naming in groupby(index.named_blobs(snapshot), itemgetter(0)):
                count += 1
                fault = _fault(fs, digest)
                if fault is not None:
                    streams = _naming(runs, index, snapshot, digest, [(stream, seq) for _, stream, seq in naming])
                    findings.append(Finding(fault.kind, blob_path(digest), 0, fault.size, fault.why, streams))
    finally:
        runs.close()
    return count, findings


def _fault(fs: FileSystem, digest: str) -> _Fault | None:
    """Say what is wrong with a blob, read piece by piece; None if nothing is."""
    try:
        handle = fs.open(blob_path(digest))
    except FileNotFoundError:
        return _Fault("missing blob", 0, "the file isn't there")
    except OSError as error:
        return _Fault("damaged blob", 0, f"the file can't be opened: {error.strerror}")
    try:
        size = fs.size(handle)
        found = blake2b(digest_size=32)
        for offset in range(0, min(size, BLOB_BYTES_MAX + 1), MIB):
            found.update(fs.read(handle, offset, MIB))
    except OSError as error:
        return _Fault("damaged blob", 0, f"the file can't be read: {error.strerror}")
    finally:
        fs.close(handle)
    return None if found.hexdigest() == digest else _Fault("damaged blob", size, "its bytes don't fit their digest")


def _naming(
    runs: RunReader, index: Index, snapshot: Transaction, digest: str, places: Iterable[tuple[str, int]]
) -> dict[str, list[SeqRange]]:
    """Give the events that name a blob, by the runs that do."""
    streams: dict[str, list[SeqRange]] = {}
    for stream, seq in places:
        (extent,) = index.extents(snapshot, stream, seq, seq + 1, 1) or (None,)
        try:
            lines = [] if extent is None else runs.lines(stream, extent)
        except Corrupt:
            lines = []
        named = [(seq + place, 1) for place, line in enumerate(lines) if digest.encode() in line]
        whole_run = (seq, 1 if extent is None else extent.events)
        streams[stream] = join_ranges([*streams.get(stream, ()), *(named or [whole_run])])
    return streams
