"""How much memory processes have, read from /proc: of their own, or with their part of what they share.

Of their own is what is anonymous and resident; pages of files that are mapped, as of an index, belong to the system's
cache and don't count. Linux only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

SAMPLE_SECONDS = 0.02


def anonymous_bytes(pid: int) -> int:
    """Give a process's anonymous resident memory in bytes; 0 if there is no such process any more."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0  # a zombie has none


def proportional_bytes(pid: int) -> int:
    """Give a process's part of memory in bytes (PSS); 0 if there is no such process any more.

    A page that several processes have mapped counts for each of them by its share, so the parts of all add up.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def family(pid: int) -> Iterator[int]:
    """Give a process and all processes below it, as they are at this moment."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in children.read_text().split():
                yield from family(int(child))


class PeakMemory:
    """Watches a process and all below it while the body of a `with` runs; `bytes` is the most they had together."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._pid = pid
        self._ended = Event()
        self._thread = Thread(target=self._watch, name="memory of a measured process", daemon=True)

    def __enter__(self) -> PeakMemory:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        self.bytes = max(self.bytes, sum(map(anonymous_bytes, family(self._pid))))
