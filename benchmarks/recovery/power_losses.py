"""A power loss under a store in use: what wasn't synced is gone, the caches are cold, and the machine has a new boot.

The store lies on a disk of its own, a file system in an image, which is copied there once and whose power is then cut
again and again (`chaos.cut_disk`). Everything is stopped at the cut, as on a machine that goes down. When the disk is
mounted again, which is measured alone, a host is started: from there on it is told what it waits for. The index isn't
trusted any more, so it is built anew. Beside it a program reads the same journal to its end, as cold. Needs root.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, Self

from turnkeeper.runtime.tasks import tree
from turnkeeper.storage.store import JOURNAL_DIRECTORY

from ..chaos.cut_disk import CutDisk, private_mounts
from ..chaos.store_processes import all_pids
from ..driving.plain_restarts import PlainProgram
from ..measuring.machine import drop_caches
from ..measuring.measured_process import MeasuredProcess
from ..measuring.room import require_space
from ..measuring.runs import Figures
from .interrupted_store import InterruptedStore

_ROOM_SHARE: Final = 1.1
_ROOM_BYTES: Final = 400_000_000
"""What the disk has beside the store: for the file system itself, another index, and the reserve."""

LEAVE_SECONDS: Final = 20.0
"""How long all who use the disk may take to end by themselves, once nobody wants it any more."""

_LOOK_SECONDS = 0.02
_OURS, _PLAIN = "ours", "plain"


class CutStore:
    """A copy of the store at `path`, of so many batches, on a disk below `directory`, whose power can be cut.

    Raises OSError with ENOSPC where there isn't enough space. Left as a context manager, the disk is gone.
    """

    def __init__(self, path: Path, batches: int, directory: Path) -> None:
        size = sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
        size = int(size * _ROOM_SHARE) + _ROOM_BYTES
        require_space(directory.parent, size)
        directory.mkdir()
        self._directory = directory
        self._process = MeasuredProcess(_be_machine, path, batches, directory, size, ending_seconds=LEAVE_SECONDS)

    def __enter__(self) -> Self:
        try:
            self._process.receive()  # the store is served
        except BaseException:
            self._end(at_once=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self._end(at_once=kind is not None)

    def _end(self, *, at_once: bool) -> None:
        mounts = _mounts_of(self._process.pid)
        if at_once:
            self._process.ending_seconds = 0.0
        try:
            self._process.__exit__()
        finally:
            if mounts is not None:
                _end_all_with(mounts, self._process.ending_seconds)
            shutil.rmtree(self._directory, ignore_errors=True)

    def cut_and_recover(self) -> Figures:
        """Cut the power in the middle of appends, and give what a host waited for that was started afterwards."""
        return self._ask(_OURS)

    def cut_and_read(self) -> Figures:
        """Let a program begin again that reads the journal to its end, with cold caches."""
        return self._ask(_PLAIN)

    def _ask(self, what: str) -> Figures:
        self._process.send(what)
        figures: Figures = self._process.receive()
        return figures


def _mounts_of(pid: int) -> str | None:
    """Name the mounts that a process sees; None if they are this process's, or it has ended."""
    try:
        found = os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return None
    return None if found == os.readlink("/proc/self/ns/mnt") else found


def _end_all_with(mounts: str, seconds: float) -> None:
    """Wait until nobody has these mounts any more, and kill who stays for longer: the disk goes with the last of them.

    Who works there can't be found by where he works: that path is nowhere to be seen from here.
    """
    deadline = time.monotonic() + seconds
    while left := [pid for pid in all_pids() if _mounts_of(pid) == mounts]:
        if time.monotonic() > deadline:
            for process in filter(None, map(tree.process_of, left)):
                tree.send_signal(process.pid, process.start, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)


# -- in the process that has the disk


def _be_machine(starter: Connection, path: Path, batches: int, directory: Path, size: int) -> None:
    private_mounts()
    disk = CutDisk(directory, size)
    try:
        disk.power_up()
        store = disk.mounted / "store"
        shutil.copytree(path, store, ignore=shutil.ignore_patterns("*.sock"))
        os.sync()  # or the first cut would undo it
        with InterruptedStore(store) as interrupted:
            answers: dict[str, Callable[[], Figures]] = {
                _OURS: partial(_cut, disk, interrupted, batches),
                _PLAIN: partial(_read, disk, store / JOURNAL_DIRECTORY),
            }
            starter.send("ready")
            while True:
                starter.send(answers[starter.recv()]())
    finally:
        disk.release()


def _cut(disk: CutDisk, store: InterruptedStore, batches: int) -> Figures:
    served = store.begin()
    store.stop_all(served)
    disk.cut()
    store.kill_stopped(served)
    began = time.monotonic()
    disk.restart()
    mounted = time.monotonic()
    drop_caches(disk.image.parent)
    started = time.monotonic()
    figures = store.start_host_again(started, started, served)
    store.require_rebuilt(batches)
    del figures["detect_ms"]  # who starts it again knows
    return {**figures, "mount_ms": (mounted - began) * 1000}


def _read(disk: CutDisk, journal: Path) -> Figures:
    drop_caches(disk.image.parent)
    with PlainProgram("jsonl", journal) as program:
        figures = program.kill_and_begin_again()
    del figures["detect_ms"]
    return figures
