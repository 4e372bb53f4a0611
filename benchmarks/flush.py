"""What it costs to make an event durable through the public client, beside the ways to do it without turnkeeper.

All sessions are in one host process, node and writer in theirs; every event crosses to the writer and its
acknowledgement back. The store holds many events already, since an empty index flatters. So does the one of our own
SQLite backend, behind the same client, with a node and a writer of its own. The other baselines begin empty, run in the
process that measures and cross no boundary, which flatters them.

Events of 460 bytes, four loads: one session, its host on trio and on asyncio; a hundred, each as fast as it can; a
thousand, paced to 5,000 flushes a second over all of them, measured from the planned moment; a hundred that flush ten
events at a time. All that are compared take turns in one run; a result is the median over its rounds. At last one
session persists and recovers (`persisting`), in a new store: two of those three figures are flushes, so they are here.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from .baselines import AppendedFile, FilledFile, MakeBaseline, SessionFiles, SqliteRows
from .durability import POWER_LOSS
from .filled_stores import Filling, well_used
from .hosts import Host
from .loads import Lines, Load, drive_baseline
from .measuring import Figures, Run, Tell, be_quiet, interleaved, run_of
from .peers import flushes
from .peers.flushes import measure_flushes
from .persisting import compare_persisting
from .workplace import Workplace, run_alone

EVENT_BYTES = 460
PERSISTING_ROUNDS_MAX = 5
FILE_THREADS = 16
_TRIO = "turnkeeper on trio"
_ASYNCIO = "turnkeeper on asyncio"
_SQLITE_STORE = "turnkeeper on SQLite"
_APPEND = "append"
_SPARE_FILES = 256


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: the loads, each for `rounds` rounds, after a burst of `warm_up_seconds` of each subject.

    `stored` is how many events the stores hold before, `persisted` how many one session persists and recovers.
    """

    stored: int
    alone: Load
    closed: Load
    paced: Load
    turns: Load
    persisted: int
    rounds: int
    warm_up_seconds: float
    peers: flushes.Sizes


QUICK = Sizes(
    stored=200_000,
    alone=Load(1, 0.1),
    closed=Load(100, 0.1),
    paced=Load(1_000, 0.2, per_second=5_000),
    turns=Load(100, 0.1, events=10),
    persisted=500,
    rounds=3,
    warm_up_seconds=0.05,
    peers=flushes.QUICK,
)
FULL = Sizes(
    stored=10_000_000,
    alone=Load(1, 0.7),
    closed=Load(100, 0.7),
    paced=Load(1_000, 1.0, per_second=5_000),
    turns=Load(100, 0.7, events=10),
    persisted=10_000,
    rounds=7,
    warm_up_seconds=0.5,
    peers=flushes.FULL,
)


@dataclass(frozen=True, slots=True)
class _Subject:
    """Who takes part: `burst` puts it under a load, and what it has flushed `survives` this."""

    burst: Callable[[Load], Figures]
    survives: str = POWER_LOSS


@dataclass(frozen=True, slots=True)
class _Compared:
    """A baseline as it takes part: with `crowd` only where several sessions flush at once, for one it is the same."""

    make: MakeBaseline
    grouped: bool = False
    crowd: bool = False


_BASELINES = {
    _APPEND: _Compared(AppendedFile),
    "append, grouped": _Compared(AppendedFile, grouped=True, crowd=True),
    "filled": _Compared(FilledFile),
    "sqlite": _Compared(SqliteRows),
    "sqlite, grouped": _Compared(SqliteRows, grouped=True, crowd=True),
    "files": _Compared(SessionFiles),
    "files, never synced": _Compared(partial(SessionFiles, synced=False)),
    f"files, {FILE_THREADS} threads": _Compared(partial(SessionFiles, threads=FILE_THREADS), grouped=True, crowd=True),
}
_ALONE = [name for name, compared in _BASELINES.items() if not compared.crowd]


def run_flush(
    quick: bool, out: Path | None = None, *, stored: int | None = None, tell: Tell = be_quiet
) -> dict[str, Any]:
    """Measure flushes under each load and report a run for each baseline; 15 s if `quick`.

    `stored` events are in the stores before: 10,000,000 if nothing is said, 200,000 if `quick`. The files lie in
    `out`, or else in the current directory, and are removed; with `out` the result is kept there as flush.json. Raises
    OSError where there is not enough space.
    """
    sizes = QUICK if quick else FULL
    sizes = sizes if stored is None else replace(sizes, stored=stored)
    return run_alone("flush", partial(measure, sizes), out, tell)


def measure(sizes: Sizes, place: Workplace) -> list[Run]:
    """Measure with these sizes."""
    sessions = max(load.sessions for load in (sizes.closed, sizes.paced, sizes.turns))
    with _files_allowed(2 * sessions + _SPARE_FILES), ExitStack() as opened:
        journal, sqlite = _stores(sizes, place)
        place.tell("opening sessions")
        hosts = {
            _TRIO: opened.enter_context(Host(str(journal), sessions)),
            _ASYNCIO: opened.enter_context(Host(str(journal), 1, "asyncio")),
            _SQLITE_STORE: opened.enter_context(Host(f"sqlite:{sqlite}", sessions)),
        }
        for host in hosts.values():
            host.wait_ready()
        ours = {name: _Subject(host.burst) for name, host in hosts.items()}
        subjects = ours | _baselines(place.directory, sessions, opened)
        opened.enter_context(_frozen_garbage())
        runs = _measure_all(sizes, subjects, place.tell)
        about = {"loop": "trio", "event_bytes": EVENT_BYTES, "stored": sizes.stored, "base_stored": 0}
        runs += measure_flushes(hosts[_TRIO].burst, sizes.peers, place.directory, place.tell, about)
    rounds = min(sizes.rounds, PERSISTING_ROUNDS_MAX)
    return runs + compare_persisting(place.directory / "persisted", sizes.persisted, rounds, place.tell)


def _stores(sizes: Sizes, place: Workplace) -> list[Path]:
    """Give a journal and a SQLite store that hold so many events, or none."""
    if not sizes.stored:
        return [place.directory / "store", place.directory / "sqlite"]
    return place.stores.take(well_used(sizes.stored), Filling(sizes.stored, backend="sqlite"))


def _baselines(directory: Path, sessions: int, opened: ExitStack) -> dict[str, _Subject]:
    subjects = {}
    for number, (name, compared) in enumerate(_BASELINES.items()):
        place = directory / f"baseline-{number}"
        place.mkdir()
        baseline = opened.enter_context(closing(compared.make(place, sessions)))
        burst = partial(drive_baseline, baseline, Lines(sessions), grouped=compared.grouped)
        subjects[name] = _Subject(burst, baseline.durability.survives)
    return subjects


def _measure_all(sizes: Sizes, subjects: Mapping[str, _Subject], tell: Tell) -> list[Run]:
    everybody = [_SQLITE_STORE, *_BASELINES]
    runs = _measure_load(sizes, sizes.alone, [_TRIO, _ASYNCIO], [_SQLITE_STORE, *_ALONE], subjects, tell)
    runs += _measure_load(sizes, sizes.closed, [_TRIO], everybody, subjects, tell)
    runs += _measure_load(sizes, sizes.paced, [_TRIO], everybody, subjects, tell)
    runs += _measure_load(sizes, sizes.turns, [_TRIO], [_SQLITE_STORE], subjects, tell)
    return runs


def _measure_load(
    sizes: Sizes,
    load: Load,
    ours: Sequence[str],
    others: Sequence[str],
    subjects: Mapping[str, _Subject],
    tell: Tell,
) -> list[Run]:
    """Let subjects take turns under a load, and compare each of ours with each of the others."""
    taking_part = {name: partial(subjects[name].burst, load) for name in (*ours, *others)}
    for name in taking_part:
        subjects[name].burst(replace(load, seconds=sizes.warm_up_seconds))
    kind = f"{load.sessions} sessions, {load.kind}"
    measured = interleaved(sizes.rounds, taking_part, lambda line: tell(f"{kind}: {line}"))
    return [
        _compare(sizes, load, measured, mine, other, compared, survives=subjects[other].survives)
        for mine in ours
        for other in others
        for compared in _compared_figures(load, other)
    ]


def _compared_figures(load: Load, other: str) -> list[str]:
    """Say which figures a load is about: with one session also p99, over a bare append."""
    if load.per_second:
        return ["p99_ms"]
    if load.sessions > 1:
        return ["per_second"]
    return ["p50_ms", "p99_ms"] if other == _APPEND else ["p50_ms"]


def _compare(
    sizes: Sizes,
    load: Load,
    measured: Mapping[str, Sequence[Figures]],
    mine: str,
    other: str,
    compared: str,
    *,
    survives: str,
) -> Run:
    """Put one of ours beside another; the run's name says of which figure the ratio is."""
    params = {
        "sessions": load.sessions,
        "load": load.kind,
        "planned_per_second": load.per_second,
        "events_a_flush": load.events,
        "loop": mine.rpartition(" ")[2],
        "against": other,
        "survives": survives,
        "event_bytes": EVENT_BYTES,
        "stored": sizes.stored,
        "base_stored": sizes.stored if other == _SQLITE_STORE else 0,
        "burst_seconds": load.seconds,
    }
    return run_of(f"flush {compared}", params, measured[mine], measured[other], compared=compared)


@contextmanager
def _frozen_garbage() -> Iterator[None]:
    """Keep what was made until now from the garbage collector: in a process that has run for a while it is old."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _files_allowed(count: int) -> Iterator[None]:
    """Let this process open so many files: a file a session is what one of the baselines is about.

    Raises ValueError where the system's hard limit is below that.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
