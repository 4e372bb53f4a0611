"""What processes use beside memory: processor time, descriptors, and entries in the process table. Linux only."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

from turnkeeper.runtime.tasks.tree import process_of

from .process_memory import family


def processor_seconds(pid: int) -> float:
    """Give the processor time that a process has used with all its threads, to the nanosecond; 0 if it is gone."""
    try:
        # The clock of a process: its id is the pid's complement, and the low bits ask for time on a processor, as
        # clock_getcpuclockid(3) makes it. What /proc tells in ticks is 0 for a process that only wakes up now and then.
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0


def descriptors(pid: int) -> int:
    """Count the open descriptors of a process; 0 if it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0


def zombies(roots: Iterable[int]) -> set[int]:
    """Find the processes at and below these that have ended, and that nobody has reaped."""
    found = (process_of(pid) for root in roots for pid in family(root))
    return {each.pid for each in found if each is not None and not each.is_alive}
