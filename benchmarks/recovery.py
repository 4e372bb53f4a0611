"""How long a store's index takes to be ready again: after `kill -9`, where size should not matter, and built anew.

*Opening after a kill*: two stores differ in nothing but their size. The writer of each is killed at the same point,
after a batch became durable and before the index knew it, so that every opening finds the same tail: the batch at the
index's mark and one behind it. Opening is measured alone, in a process that has started and imported already, with the
files in the page cache (warm) and without (cold). The machine stays up all the while.

*Rebuild and verify* of the large store, each event a run of its own and ten events a run: see `rebuilding`. Rebuild is
what opening costs after the machine went down.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from turnkeeper.runtime.identity import own_identity
from turnkeeper.storage.backend import Backend
from turnkeeper.storage.filesystem import LocalFileSystem

from .filled_stores import SESSIONS, Filling, SessionLines, append, open_to_write, session_name, well_used
from .machine import drop_caches
from .measured_process import MeasuredProcess
from .measuring import Figures, Run, Tell, be_quiet, interleaved, run_of
from .rebuilding import compare_with_parsing
from .workplace import Workplace, run_alone

EVENT_BYTES = 460


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: events of two stores, and how often each is opened, and the large one built anew."""

    small_events: int
    large_events: int
    openings: int
    rebuilds: int


QUICK = Sizes(small_events=20_000, large_events=200_000, openings=3, rebuilds=3)
FULL = Sizes(small_events=100_000, large_events=10_000_000, openings=21, rebuilds=5)


def run_recovery(quick: bool, out: Path | None = None, *, tell: Tell = be_quiet) -> dict[str, Any]:
    """Fill stores, open and kill them many times, build and verify them; report medians and their ratios.

    The stores lie in `out`, or else in the current directory, and are removed; with `out` the result is kept there as
    recovery.json. Takes 7 GB of disk, 0.8 GB if `quick`. Raises OSError where that isn't free.
    """
    return run_alone("recovery", partial(measure, QUICK if quick else FULL), out, tell)


def measure(sizes: Sizes, place: Workplace) -> list[Run]:
    """Measure with these sizes."""
    fillings = Filling(sizes.small_events), well_used(sizes.large_events)
    small, large = (_Store(path, each) for path, each in zip(place.stores.take(*fillings), fillings, strict=True))
    rebuilt = compare_with_parsing(large.path, large.filling, sizes.rebuilds, place.tell)
    runs = [*_compare_openings(small, large, sizes, place.tell), *rebuilt]
    shutil.rmtree(large.path)  # before the next one of its size
    turns = Filling(sizes.large_events, run_events=10)
    (store,) = place.stores.read(turns)
    return runs + compare_with_parsing(store, turns, sizes.rebuilds, place.tell)


def _compare_openings(small: _Store, large: _Store, sizes: Sizes, tell: Tell) -> list[Run]:
    for each in (small, large):
        each.kill()  # from here on every opening finds the same tail
    os.sync()  # or the first openings would wait for what was written before
    return [_compare(small, large, sizes, cold=cold, tell=tell) for cold in (False, True)]


def _compare(small: _Store, large: _Store, sizes: Sizes, *, cold: bool, tell: Tell) -> Run:
    subjects = {
        f"{each.filling.stored:,} events, {'cold' if cold else 'warm'}": partial(each.open_and_kill, cold=cold)
        for each in (small, large)
    }
    in_small, in_large = interleaved(sizes.openings, subjects, tell).values()
    params = {
        "cache": "cold" if cold else "warm",
        "dropped_by": large.dropped_by if cold else None,
        "events": large.filling.stored,
        "base_events": small.filling.stored,
        "event_bytes": EVENT_BYTES,
        "tail_runs": SESSIONS,
    }
    return run_of("open", params, in_large, in_small, compared="open_ms")


class _Store:
    """One store, and the process that is to be killed in it."""

    def __init__(self, path: Path, filling: Filling) -> None:
        self.path = path
        self.filling = filling
        self.dropped_by = ""

    def kill(self) -> None:
        """Open the store, which was closed, and let its writer die with one batch that the index doesn't know."""
        with MeasuredProcess(_open_and_die, str(self.path)) as victim:
            victim.receive()  # it has started
            victim.send("open")
            victim.receive()
            victim.wait_killed()

    def open_and_kill(self, *, cold: bool) -> Figures:
        """Open the journal in a new process and give the time that took; the process then dies as the one before."""
        with MeasuredProcess(_open_and_die, str(self.path)) as victim:
            victim.receive()  # it has started
            if cold:
                self.dropped_by = drop_caches(self.path)
            victim.send("open")
            seconds, hopped, cpu = victim.receive()
            if hopped != 1:
                raise RuntimeError(f"the opening hopped {hopped} batches instead of the one that was not indexed")
            victim.wait_killed()
        return {"open_ms": seconds * 1000, "cpu_ms": cpu * 1000}


# -- in the process that is killed


class _LethalFileSystem(LocalFileSystem):
    """A file system on which, once `armed`, the next sync is done and is the last thing that its process does."""

    armed = False

    def sync(self, handle: int) -> None:
        super().sync(handle)
        if self.armed:
            os.kill(os.getpid(), signal.SIGKILL)


def _open_and_die(starter: Connection, root: str) -> None:
    fs = _LethalFileSystem(root)
    own_identity()
    import_module("turnkeeper.storage.journal")
    starter.send("started")
    starter.recv()
    began, cpu_began = time.perf_counter(), time.process_time()
    backend = open_to_write(root, fs)
    cpu, seconds = time.process_time() - cpu_began, time.perf_counter() - began
    starter.send((seconds, backend.report.hopped_batches, cpu))
    _die(backend, fs)


def _die(backend: Backend, fs: _LethalFileSystem) -> None:
    """Commit one event of each session, as at any opening before, and die when it is durable and not yet indexed."""
    appends = []
    for number in range(SESSIONS):
        name = session_name(number)
        head = backend.row(name).head
        appends.append(append(name, head, SessionLines(name).lines(head, 1)))
    fs.armed = True
    backend.commit(appends)
