"""How long opening the journal takes after `kill -9`, where size should not matter.

Two stores differ in nothing but their size. The writer of each is killed at the same point, after a batch became
durable and before the index knew it, so that every opening finds the same tail: the batch at the index's mark and one
behind it. Opening is measured alone, in a process that has started and imported already, with the files in the page
cache (warm) and without (cold). The machine stays up all the while.
"""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

from turnkeeper.runtime.identity import own_identity
from turnkeeper.storage.backend import Backend
from turnkeeper.storage.filesystem import LocalFileSystem

from ..measuring.machine import drop_caches
from ..measuring.measured_process import MeasuredProcess
from ..measuring.runs import Figures, Run, Tell, interleaved, run_of
from ..stores.filled import EVENT_BYTES, SESSIONS, Filling, SessionLines, append, open_to_write, session_name


def compare_openings(small: OpenedStore, large: OpenedStore, rounds: int, tell: Tell) -> list[Run]:
    """Let both stores, which were closed, be opened and killed in turns, warm and cold."""
    for each in (small, large):
        each.kill()  # from here on every opening finds the same tail
    os.sync()  # or the first openings would wait for what was written before
    return [_compare(small, large, rounds, cold=cold, tell=tell) for cold in (False, True)]


def _compare(small: OpenedStore, large: OpenedStore, rounds: int, *, cold: bool, tell: Tell) -> Run:
    subjects = {
        f"{each.filling.stored:,} events, {'cold' if cold else 'warm'}": partial(each.open_and_kill, cold=cold)
        for each in (small, large)
    }
    in_small, in_large = interleaved(rounds, subjects, tell).values()
    params = {
        "cache": "cold" if cold else "warm",
        "dropped_by": large.dropped_by if cold else None,
        "events": large.filling.stored,
        "against": f"{small.filling.stored:,} events",
        "base_events": small.filling.stored,
        "event_bytes": EVENT_BYTES,
        "tail_runs": SESSIONS,
    }
    return run_of("open", params, in_large, in_small, compared="open_ms")


class OpenedStore:
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
