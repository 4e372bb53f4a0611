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

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..driving.hosts import Host, Terms
from ..driving.loads import Load
from ..measuring.runs import Run, Tell, be_quiet
from ..stores.filled import Filling, well_used
from ..workplace import Workplace, run_alone
from . import peer_flushes
from .peer_flushes import measure_flushes
from .persisting import compare_persisting
from .subjects import (
    ALONE,
    SPARE_FILES,
    SQLITE_STORE,
    STANDARD,
    Subject,
    Turns,
    files_allowed,
    frozen_garbage,
    open_baselines,
)

PERSISTING_ROUNDS_MAX = 5
_TRIO = "turnkeeper on trio"
_ASYNCIO = "turnkeeper on asyncio"


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
    peers: peer_flushes.Sizes


QUICK = Sizes(
    stored=200_000,
    alone=Load(1, 0.1),
    closed=Load(100, 0.1),
    paced=Load(1_000, 0.2, per_second=5_000),
    turns=Load(100, 0.1, events=10),
    persisted=500,
    rounds=3,
    warm_up_seconds=0.05,
    peers=peer_flushes.QUICK,
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
    peers=peer_flushes.FULL,
)


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
    with files_allowed(2 * sessions + SPARE_FILES), ExitStack() as opened:
        journal, sqlite = _stores(sizes, place)
        place.tell("opening sessions")
        hosts = {
            _TRIO: opened.enter_context(Host(str(journal), sessions)),
            _ASYNCIO: opened.enter_context(Host(str(journal), 1, Terms("asyncio"))),
            SQLITE_STORE: opened.enter_context(Host(f"sqlite:{sqlite}", sessions)),
        }
        for host in hosts.values():
            host.wait_ready()
        ours = {name: Subject(host.burst) for name, host in hosts.items()}
        subjects = ours | open_baselines(STANDARD, place.directory, sessions, opened)
        opened.enter_context(frozen_garbage())
        runs = _measure_all(sizes, subjects, place.tell)
        about = {**Terms().params, "stored": sizes.stored, "base_stored": 0}
        runs += measure_flushes(hosts[_TRIO].burst, sizes.peers, place.directory, place.tell, about)
    rounds = min(sizes.rounds, PERSISTING_ROUNDS_MAX)
    return runs + compare_persisting(place.directory / "persisted", sizes.persisted, rounds, place.tell)


def _stores(sizes: Sizes, place: Workplace) -> list[Path]:
    """Give a journal and a SQLite store that hold so many events, or none."""
    if not sizes.stored:
        return [place.directory / "store", place.directory / "sqlite"]
    return place.stores.take(well_used(sizes.stored), Filling(sizes.stored, backend="sqlite"))


def _measure_all(sizes: Sizes, subjects: Mapping[str, Subject], tell: Tell) -> list[Run]:
    turns = Turns(sizes.rounds, sizes.warm_up_seconds, sizes.stored, tell)
    trio = {_TRIO: Terms().params}
    everybody = [SQLITE_STORE, *STANDARD]
    runs = turns.measure(sizes.alone, {**trio, _ASYNCIO: Terms("asyncio").params}, [SQLITE_STORE, *ALONE], subjects)
    runs += turns.measure(sizes.closed, trio, everybody, subjects)
    runs += turns.measure(sizes.paced, trio, everybody, subjects)
    return runs + turns.measure(sizes.turns, trio, [SQLITE_STORE], subjects)
