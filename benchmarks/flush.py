"""What it costs to make an event durable through the public client, beside the ways to do it without turnkeeper.

All sessions are in one host process on trio, node and writer in theirs; every event crosses to the writer and its
acknowledgement back. The store is new, so its index is as good as empty (a filled one costs the writer more). One flush
an event, events of 460 bytes, three loads: one session; a hundred, each as fast as it can; a thousand, paced to 5,000
flushes a second over all of them, measured from the planned moment. The baselines run in the host process and cross no
boundary. All take turns in one run; a result is the median over its rounds. What the host has made before it measures
is kept from its garbage collector (`gc.freeze`).
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import trio

from turnkeeper import Session, open_runtime

from .baselines import AppendedFile, Baseline, FilledFile, MakeBaseline, SessionFiles, SqliteRows
from .loads import EVENT_DATA, EVENT_TYPE, Lines, Load, drive_baseline, drive_sessions
from .measuring import (
    Figures,
    Run,
    Tell,
    be_quiet,
    describe_machine,
    measured_directory,
    medians,
    report,
    save,
    turns,
)

EVENT_BYTES = 460
FILE_THREADS = 16
_OURS = "turnkeeper"
_SPARE_FILES = 256


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: the loads, each for `rounds` rounds, after a burst of `warm_up_seconds` of each subject."""

    loads: tuple[Load, ...]
    rounds: int
    warm_up_seconds: float


QUICK = Sizes((Load(1, 0.4), Load(100, 0.5), Load(1_000, 0.8, per_second=5_000)), rounds=5, warm_up_seconds=0.1)
FULL = Sizes((Load(1, 2.0), Load(100, 2.0), Load(1_000, 4.0, per_second=5_000)), rounds=11, warm_up_seconds=0.5)

Subject: TypeAlias = Callable[[Load], Awaitable[Figures]]


@dataclass(frozen=True, slots=True)
class _Compared:
    """A baseline as it takes part: with `crowd` only where several sessions flush at once, for one it is the same."""

    make: MakeBaseline
    grouped: bool = False
    crowd: bool = False


_BASELINES = {
    "append": _Compared(AppendedFile),
    "append, grouped": _Compared(AppendedFile, grouped=True, crowd=True),
    "filled": _Compared(FilledFile),
    "sqlite": _Compared(SqliteRows),
    "sqlite, grouped": _Compared(SqliteRows, grouped=True, crowd=True),
    "files": _Compared(SessionFiles),
    f"files, {FILE_THREADS} threads": _Compared(partial(SessionFiles, threads=FILE_THREADS), grouped=True, crowd=True),
}


def run_flush(quick: bool, out: Path | None = None, *, tell: Tell = be_quiet) -> dict[str, Any]:
    """Measure flushes under each load and report one run for each baseline; less than 100 s if `quick`.

    The files lie in `out`, or else in the current directory, and are removed; with `out` the result is kept there as
    flush.json.
    """
    return measure(QUICK if quick else FULL, out, tell)


def measure(sizes: Sizes, out: Path | None, tell: Tell) -> dict[str, Any]:
    """Run the benchmark with these sizes."""
    sessions = max(load.sessions for load in sizes.loads)
    with measured_directory(out) as directory, _files_allowed(2 * sessions + _SPARE_FILES), ExitStack() as opened:
        machine = describe_machine(directory)
        subjects: dict[str, Subject] = {}
        for number, (name, compared) in enumerate(_BASELINES.items()):
            place = directory / f"baseline-{number}"
            place.mkdir()
            baseline = opened.enter_context(closing(compared.make(place, sessions)))
            subjects[name] = _drive(baseline, Lines(sessions), compared.grouped)
        runs = trio.run(_measure_all, sizes, directory / "store", subjects, tell)
    result = report(machine, runs)
    save(result, "flush", out)
    return result


def _drive(baseline: Baseline, lines: Lines, grouped: bool) -> Subject:
    async def burst(load: Load) -> Figures:
        # The loop has nothing else to do meanwhile, and Ctrl-C ends it at once.
        return drive_baseline(baseline, lines, load, grouped=grouped)

    return burst


async def _measure_all(sizes: Sizes, store: Path, subjects: dict[str, Subject], tell: Tell) -> list[Run]:
    runs: list[Run] = []
    async with open_runtime(store) as runtime:
        sessions: list[Session] = []
        for _ in range(max(load.sessions for load in sizes.loads)):
            sessions.append(await runtime.create_session())

        # As in a host that has run for a while: what it keeps is old, and a full collection is rare.
        gc.collect()
        gc.freeze()

        async def flush_one(number: int) -> None:
            session = sessions[number]
            await session.append(EVENT_TYPE, EVENT_DATA)
            await session.flush()

        async def burst(load: Load) -> Figures:
            return await drive_sessions(flush_one, load)

        for load in sizes.loads:
            runs += await _measure_load(sizes, load, {_OURS: burst, **subjects}, tell)
    return runs


async def _measure_load(sizes: Sizes, load: Load, subjects: dict[str, Subject], tell: Tell) -> list[Run]:
    """Let the subjects that differ under this load take turns, and compare ours with each of the others."""
    taking_part = [name for name in subjects if name == _OURS or load.sessions > 1 or not _BASELINES[name].crowd]
    for name in taking_part:
        await subjects[name](replace(load, seconds=sizes.warm_up_seconds))
    measured: dict[str, list[Figures]] = {name: [] for name in taking_part}
    for number, name in turns(sizes.rounds, taking_part):
        tell(f"{load.sessions} sessions, {load.kind}: round {number + 1} of {sizes.rounds}: {name}")
        measured[name].append(await subjects[name](load))
    ours = medians(measured.pop(_OURS))
    return [_compare(load, ours, name, medians(rounds), sizes.rounds) for name, rounds in measured.items()]


def _compare(load: Load, ours: Figures, name: str, base: Figures, rounds: int) -> Run:
    """Put ours beside a baseline; the run's name says of which figure the ratio is."""
    compared = "p99_ms" if load.per_second else "p50_ms" if load.sessions == 1 else "per_second"
    params = {
        "sessions": load.sessions,
        "load": load.kind,
        "planned_per_second": load.per_second,
        "event_bytes": EVENT_BYTES,
        "index": "empty",
        "against": name,
        "rounds": rounds,
        "burst_seconds": load.seconds,
    }
    return Run(f"flush {compared}", params, ours, base, round(ours[compared] / base[compared], 3))


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
