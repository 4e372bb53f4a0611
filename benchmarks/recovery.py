"""How long the journal's opening takes after `kill -9`, in a large store over a small one: size should not matter.

Two stores differ in nothing but their size: 10,000 and 1,000,000 events of 460 bytes, each event a run of its own, as
one flush an event leaves them (the largest index that so many events can have). The writer of each is killed at the
same point, after a batch became durable and before the index knew it, so that every opening finds the same tail: the
batch at the index's mark and one behind it. Opening is measured alone, in a process that has started and imported
already, with the files in the page cache (warm) and without (cold). The machine stays up all the while: after it went
down the index is built anew from the headers, which this does not measure.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from turnkeeper.runtime.identity import boot_id, is_gone, own_identity
from turnkeeper.storage import lock, store
from turnkeeper.storage.exact_json import encode_event
from turnkeeper.storage.filesystem import LocalFileSystem
from turnkeeper.storage.journal import Journal
from turnkeeper.storage.requests import Append

from .measuring import (
    Figures,
    Run,
    Tell,
    be_quiet,
    describe_machine,
    drop_caches,
    interleaved,
    measured_directory,
    medians,
    report,
    save,
)

EVENT_BYTES = 460
TAIL_RUNS = 100
"""Streams that get one more event in each batch of the tail."""

_ANSWER_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: two stores of sessions, each with `events` events, and how often each is opened."""

    small_sessions: int
    large_sessions: int
    small_events: int
    large_events: int
    rounds: int


QUICK = Sizes(small_sessions=1_000, large_sessions=10_000, small_events=10_000, large_events=1_000_000, rounds=21)
FULL = Sizes(small_sessions=1_000, large_sessions=10_000, small_events=10_000, large_events=1_000_000, rounds=51)


def run_recovery(quick: bool, out: Path | None = None, *, tell: Tell = be_quiet) -> dict[str, Any]:
    """Build both stores, kill and open each many times, and report medians and their ratio, warm and cold.

    The stores lie in `out`, or else in the current directory, and are removed; with `out` the result is kept there as
    recovery.json. Takes 700 MB of disk.
    """
    return measure(QUICK if quick else FULL, out, tell)


def measure(sizes: Sizes, out: Path | None, tell: Tell) -> dict[str, Any]:
    """Run the benchmark with these sizes."""
    with measured_directory(out) as directory:
        machine = describe_machine(directory)
        small = _Store(directory / "small", sizes.small_sessions, sizes.small_events)
        large = _Store(directory / "large", sizes.large_sessions, sizes.large_events)
        for each in (small, large):
            tell(f"building a store of {each.events:,} events")
            each.build()
            each.open_and_kill(cold=False)  # from here on every opening finds the same tail
        os.sync()  # or the first openings would wait for what building left to be written
        runs = [_compare(small, large, sizes, cold=cold, tell=tell) for cold in (False, True)]
    result = report(machine, runs)
    save(result, "recovery", out)
    return result


def _compare(small: _Store, large: _Store, sizes: Sizes, *, cold: bool, tell: Tell) -> Run:
    subjects = {f"{each.events:,} events": partial(each.open_and_kill, cold=cold) for each in (small, large)}
    in_small, in_large = interleaved(sizes.rounds, subjects, tell).values()
    figures, base = _summary(in_large), _summary(in_small)
    params = {
        "cache": "cold" if cold else "warm",
        "dropped_by": large.dropped_by if cold else None,
        "events": sizes.large_events,
        "base_events": sizes.small_events,
        "event_bytes": EVENT_BYTES,
        "tail_runs": TAIL_RUNS,
        "rounds": sizes.rounds,
    }
    return Run("open", params, figures, base, round(figures["open_ms"] / base["open_ms"], 3))


def _summary(rounds: list[Figures]) -> Figures:
    times = [each["open_ms"] for each in rounds]
    return {**medians(rounds), "fastest_ms": round(min(times), 4), "slowest_ms": round(max(times), 4)}


class _Store:
    """One store, and the process that is to be killed in it."""

    def __init__(self, path: Path, sessions: int, events: int) -> None:
        self.path = path
        self.sessions = sessions
        self.events = events
        self.dropped_by = ""

    def build(self) -> None:
        """Fill the store in a process that is killed at the end, one batch of which the index doesn't know."""
        with _Victim(_build_and_die, str(self.path), self.sessions, self.events) as victim:
            victim.wait_killed()

    def open_and_kill(self, *, cold: bool) -> Figures:
        """Open the journal in a new process and give the time that took; the process then dies as the one before."""
        with _Victim(_open_and_die, str(self.path)) as victim:
            victim.receive()  # it has started
            if cold:
                self.dropped_by = drop_caches(self.path)
            victim.send("open")
            seconds, hopped, cpu = victim.receive()
            if hopped != 1:
                raise RuntimeError(f"the opening hopped {hopped} batches instead of the one that was not indexed")
            victim.wait_killed()
        return {"open_ms": seconds * 1000, "cpu_ms": cpu * 1000}


class _Victim:
    """A process that ends by killing itself at the point that it is told to; ended in any case."""

    def __init__(self, target: Any, *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> _Victim:
        return self

    def __exit__(self, *exception: object) -> None:
        self._connection.close()
        self._process.kill()
        self._process.join()
        self._process.close()

    def send(self, message: str) -> None:
        self._connection.send(message)

    def receive(self) -> Any:
        if not self._connection.poll(_ANSWER_SECONDS):
            raise TimeoutError(f"the measured process said nothing for {_ANSWER_SECONDS:.0f} s")
        return self._connection.recv()

    def wait_killed(self) -> None:
        self._process.join(_ANSWER_SECONDS)
        if self._process.exitcode != -signal.SIGKILL:
            raise RuntimeError(f"the measured process ended with {self._process.exitcode} and not by SIGKILL")


# -- in the process that is killed


class _LethalFileSystem(LocalFileSystem):
    """A file system on which, once `armed`, the next sync is done and is the last thing that its process does."""

    armed = False

    def sync(self, handle: int) -> None:
        super().sync(handle)
        if self.armed:
            os.kill(os.getpid(), signal.SIGKILL)


def _build_and_die(connection: Connection, root: str, sessions: int, events: int) -> None:
    connection.close()
    store.make_directory(root)
    fs = _LethalFileSystem(root)
    journal = _open(root, fs)
    names = [_name(number) for number in range(sessions)]
    for seq in range(events // sessions):
        for start in range(0, sessions, 1_000):
            part = names[start : start + 1_000]
            journal.commit([_append(name, seq) for name in part])
            journal.between_commits()
    _die(journal, fs)


def _open_and_die(connection: Connection, root: str) -> None:
    fs = _LethalFileSystem(root)
    own_identity()
    connection.send("started")
    connection.recv()
    began, cpu_began = time.perf_counter(), time.process_time()
    journal = _open(root, fs)
    cpu, seconds = time.process_time() - cpu_began, time.perf_counter() - began
    connection.send((seconds, journal.report.hopped_batches, cpu))
    _die(journal, fs)


def _open(root: str, fs: LocalFileSystem) -> Journal:
    """Open the journal as the writer does, with the store's lock held from here to the process's end."""
    descriptor = store.open_store_file(root, create=True)
    if not lock.take(descriptor):
        raise RuntimeError("the store's last writer still holds its lock")
    store.finish(descriptor, root)
    return Journal.open(root, boot=boot_id(), is_gone=is_gone, holder=own_identity().as_map(), fs=fs)


def _die(journal: Journal, fs: _LethalFileSystem) -> None:
    """Commit one batch as at any opening before, and die when it is durable and not yet indexed."""
    appends = []
    for number in range(TAIL_RUNS):
        name = _name(number)
        appends.append(_append(name, journal.row(name).head))
    fs.armed = True
    journal.commit(appends)


def _name(number: int) -> str:
    return f"session-{number:06d}"


def _append(stream: str, seq: int) -> Append:
    patch = {"id": stream, "kind": "session", "created": 1_700_000_000_000} if seq == 0 else None
    line = encode_event(stream, seq, 1_700_000_000_000, "assistant/message", {"text": "x" * 356})
    return Append(stream, 1, seq, line, patch, create=seq == 0)
