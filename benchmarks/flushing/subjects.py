"""Who flushes beside our sessions, and in turns with them: files and tables (`driving.baselines`), each by a name.

They run in the process that measures. Each row says what the other's events outlive.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..driving.baselines import AppendedFile, FilledFile, MakeBaseline, SessionFiles, SqliteRows
from ..driving.loads import Lines, Load, drive_baseline
from ..measuring.durability import POWER_LOSS
from ..measuring.runs import Figures, Run, Tell, interleaved, run_of
from ..stores.contents import USUAL, EventSizes

FILE_THREADS: Final = 16

SQLITE_STORE: Final = "turnkeeper on SQLite"
"""Ours, in a store that SQLite keeps."""

APPEND: Final = "append"

SPARE_FILES: Final = 256
"""How many files the process that measures may have open beside those of the baselines."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Who takes part: `burst` puts it under a load, and what it has flushed `survives` this."""

    burst: Callable[[Load], Figures]
    survives: str = POWER_LOSS


@dataclass(frozen=True, slots=True)
class Compared:
    """A baseline as it takes part: with `crowd` only where several sessions flush at once, for one it is the same.

    Those that are `asked` take part only where somebody asks for them.
    """

    make: MakeBaseline
    grouped: bool = False
    crowd: bool = False
    asked: bool = False


_THREADED = partial(SessionFiles, threads=FILE_THREADS)

BASELINES: Final = {
    APPEND: Compared(AppendedFile),
    "append, grouped": Compared(AppendedFile, grouped=True, crowd=True),
    "append, never synced": Compared(partial(AppendedFile, synced=False), asked=True),
    "filled": Compared(FilledFile),
    "sqlite": Compared(SqliteRows),
    "sqlite, grouped": Compared(SqliteRows, grouped=True, crowd=True),
    "sqlite, NORMAL": Compared(partial(SqliteRows, synchronous="NORMAL"), asked=True),
    "files": Compared(SessionFiles),
    "files, never synced": Compared(partial(SessionFiles, synced=False)),
    f"files, {FILE_THREADS} threads": Compared(_THREADED, grouped=True, crowd=True),
}

STANDARD: Final = [name for name, compared in BASELINES.items() if not compared.asked]
"""Those that take part where nobody asks for others."""

ALONE: Final = [name for name in STANDARD if not BASELINES[name].crowd]
"""Those of them that one session is measured beside."""


def open_baselines(
    names: Iterable[str], directory: Path, sessions: int, opened: ExitStack, sizes: EventSizes = USUAL
) -> dict[str, Subject]:
    """Open baselines in directories of their own, for so many sessions; they are closed with `opened`."""
    subjects = {}
    for number, name in enumerate(names):
        compared, place = BASELINES[name], directory / f"baseline-{number}"
        place.mkdir()
        baseline = opened.enter_context(closing(compared.make(place, sessions)))
        burst = partial(drive_baseline, baseline, Lines(sessions, sizes), grouped=compared.grouped)
        subjects[name] = Subject(burst, baseline.durability.survives)
    return subjects


@dataclass(frozen=True, slots=True)
class Turns:
    """How subjects take turns: `rounds` of them, after a warm-up of so many seconds of each.

    `stored` is how many events our stores hold, also the one of SQLite.
    """

    rounds: int
    warm_up_seconds: float
    stored: int
    tell: Tell

    def measure(
        self,
        load: Load,
        ours: Mapping[str, Mapping[str, Any]],
        others: Sequence[str],
        subjects: Mapping[str, Subject],
    ) -> list[Run]:
        """Let subjects take turns under a load, and compare each of ours with each of the others.

        Ours are given with the parameters that they have.
        """
        taking_part = {name: partial(subjects[name].burst, load) for name in (*ours, *others)}
        for name in taking_part:
            subjects[name].burst(load.warming(self.warm_up_seconds))
        kind = f"{load.sessions} sessions, {load.kind}"
        measured = interleaved(self.rounds, taking_part, lambda line: self.tell(f"{kind}: {line}"))
        return [
            self._compare(load, params, other, subjects[other].survives, compared, measured[mine], measured[other])
            for mine, params in ours.items()
            for other in others
            for compared in _compared_figures(load, other)
        ]

    def _compare(
        self,
        load: Load,
        params: Mapping[str, Any],
        other: str,
        survives: str,
        compared: str,
        mine: Sequence[Figures],
        theirs: Sequence[Figures],
    ) -> Run:
        """Put one of ours beside another; the run's name says of which figure the ratio is."""
        about = {
            "sessions": load.sessions,
            "load": load.kind,
            "planned_per_second": load.per_second,
            "events_a_flush": load.events,
            **params,
            "against": other,
            "survives": survives,
            "stored": self.stored,
            "base_stored": self.stored if other == SQLITE_STORE else 0,
            "burst_seconds": load.seconds,
        }
        return run_of(f"flush {compared}", about, mine, theirs, compared=compared)


def _compared_figures(load: Load, other: str) -> list[str]:
    """Say which figures a load is about: with one session in a closed loop also p99, over a bare append."""
    return ["p50_ms", "p99_ms"] if load.compared == "p50_ms" and other == APPEND else [load.compared]


@contextmanager
def frozen_garbage() -> Iterator[None]:
    """Keep what was made until now from the garbage collector: in a process that has run for a while it is old."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def files_allowed(count: int) -> Iterator[None]:
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
