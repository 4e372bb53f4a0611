"""The faults of a life: what is done to the store's processes and files while they work, and how it is put right again.

Each function begins a fault and gives what ends it: to be called once, at the end of its time or of the round, whatever
has become of those whom it hit. Raises Missed where nobody is there whom it could hit.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from .store_processes import Process

Lift = Callable[[], None]
"""Ends a fault."""

ATTACH_SECONDS = 2.0
"""How long strace may take to hold its process."""

HELD_SECONDS = 120
"""So long a sync is held, which is longer than anybody looks."""

SHORT_BYTES = 200_000
"""So much farther than it reaches a file may grow under the limit."""

_LOOK_SECONDS = 0.005

_MEMORY = Path("/dev/shm")
_SHARED = ("faketime_shm_", "sem.faketime_sem_")
"""How the names begin of what libfaketime shares between processes; they end with the pid that made it."""


class Missed(Exception):
    """There was nobody whom the fault could hit, and why; `is_tried`: that it is tried was noted before."""

    def __init__(self, why: str, *, is_tried: bool = True) -> None:
        super().__init__(why)
        self.is_tried = is_tried


def stop(pids: Sequence[int]) -> Lift:
    """Stop processes; the end continues those that are there still."""
    held = []
    for pid in pids:
        with suppress(ProcessLookupError):
            held.append(Process(pid))
    for process in held:
        process.send(signal.SIGSTOP)

    def lift() -> None:
        for process in held:
            process.send(signal.SIGCONT)
            process.close()

    return lift


def failing_sync(pid: int, number: int) -> Lift:
    """Let one of the next syncs of a process fail with EIO."""
    return _inject(pid, f"inject=fdatasync:error=EIO:when={1 + number % 20}")


def event_files(store: Path) -> list[Path]:
    """Give the files that events are written into: a journal's, or SQLite's database and its log."""
    return sorted([*store.glob("journal/*.jsonl"), *store.glob("store.sqlite*")])


def full_disk(pid: int, number: int, files: Sequence[Path]) -> Lift:
    """Let each of the next writes of a process fail with ENOSPC: all, or those into these files alone."""
    within = [word for path in files for word in ("-P", str(path))]
    return _inject(pid, f"inject=pwrite64:error=ENOSPC:when={1 + number % 20}+", *(within if number % 2 else ()))


def slow_disk(pid: int, number: int) -> Lift:
    """Let each sync of a process take long."""
    return _inject(pid, f"inject=fdatasync:delay_enter={(20 + number % 300) * 1000}")


def held_syncs(pid: int) -> Lift:
    """Let a process go no further than to its next sync, as if that took for ever; it may be killed there."""
    return _inject(pid, f"inject=fdatasync:delay_enter={HELD_SECONDS * 1_000_000}")


def _inject(pid: int, fault: str, *within: str) -> Lift:
    """Attach strace to a process and all its threads, and wait until it holds it."""
    command = ["strace", "-f", "-qqq", "-o", "/dev/null", *within, "-e", fault, "-p", str(pid)]
    tracer = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )

    def lift() -> None:
        tracer.terminate()  # which lets go of what it holds
        tracer.wait()

    deadline = time.monotonic() + ATTACH_SECONDS
    while not _is_traced(pid):
        if tracer.poll() is not None or time.monotonic() > deadline:
            lift()
            raise Missed(f"strace can't hold process {pid}")
        time.sleep(_LOOK_SECONDS)
    return lift


def _is_traced(pid: int) -> bool:
    try:
        return "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def short_writes(pid: int, number: int, files: Sequence[Path]) -> Lift:
    """Limit the length of the files that a process writes: the write that reaches it is short, the next ones fail.

    The limit lies behind the longest of these files; or where a new segment, which has filling in it, can't be made.
    """
    sizes = [path.stat().st_size for path in files]
    if not sizes:
        raise Missed("nothing is written yet")
    size = SHORT_BYTES if number % 2 else max(sizes) + SHORT_BYTES
    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    except ProcessLookupError:
        raise Missed(f"process {pid} has just ended") from None

    def lift() -> None:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)

    return lift


def remove_socket(path: Path) -> Lift:
    """Remove a socket's name; there is nothing to put right, as whoever listens there has to notice."""
    try:
        path.unlink()
    except FileNotFoundError:
        raise Missed(f"{path.name} isn't there") from None
    return lambda: None


class Clock:
    """The clock of processes that were started with its environment, which can be set back.

    Only the time of day is set: what counts from the machine's start goes on as it does. That is how a clock is set.
    `release` it when all these processes are dead: those that were killed leave memory behind that the library shares.
    """

    def __init__(self, library: Path, setting: Path) -> None:
        self._setting = setting
        self._began = time.time()
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(setting),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # or waiting for another thread takes milliseconds
        }
        self._set(0)

    def set_back(self, seconds: int) -> Lift:
        """Set it back by so many seconds."""
        self._set(-seconds)
        return lambda: self._set(0)

    def release(self) -> None:
        """Remove what dead processes have left in memory since this clock was made."""
        remove_clocks(self._began)

    def _set(self, seconds: int) -> None:
        """Say the time in one move: whoever looks meanwhile sees the time before or the one after."""
        temporary = self._setting.with_suffix(".tmp")
        temporary.write_text(f"{seconds:+d}s\n")
        os.replace(temporary, self._setting)


def remove_clocks(since: float) -> None:
    """Remove what processes that had clocks of their own, and are dead, have left in memory since a time of the day."""
    for pattern in _SHARED:
        for path in _MEMORY.glob(f"{pattern}*"):
            pid = path.name.removeprefix(pattern)
            with suppress(FileNotFoundError):
                if pid.isdecimal() and not _has_library(int(pid)) and path.stat().st_mtime >= since - 1:
                    path.unlink()


def _has_library(pid: int) -> bool:
    """Say whether a process has libfaketime loaded: another one may have the pid by now."""
    try:
        return "libfaketime" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False
