"""Scanning a journal's files on all cores, where there is so much of it that starting processes is worth while.

What scans is storage's plain function; here is only who runs it. A small journal is scanned by the caller itself.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence

from turnkeeper.storage.file_scan import FileScan, ScanRequest, scan_file
from turnkeeper.storage.limits import SEGMENT_BYTES

PARALLEL_BYTES_MIN = 3 * SEGMENT_BYTES
"""A journal of so many bytes is scanned by processes; they take as long to start as half of this takes to scan."""

PROCESSES_MAX = 8
"""Processes at most; the caller, who indexes what they scan, keeps up with no more."""


def scan_files(requests: Sequence[ScanRequest]) -> Generator[FileScan | None, None, None]:
    """Scan files, in the order of the requests, as far ahead as there are processes.

    None stands for a file that nothing was scanned of. Closing the iterator ends what still runs.
    """
    processes = min(PROCESSES_MAX, len(requests), available_cores())
    if processes < 2 or sum(request.size for request in requests) < PARALLEL_BYTES_MIN:
        yield from map(scan_file, requests)
        return
    # trio and its worker processes are loaded only by whoever has so much to scan.
    from .scan_processes import scan_in_processes

    yield from scan_in_processes(requests, processes)


def available_cores() -> int:
    """Count the cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
