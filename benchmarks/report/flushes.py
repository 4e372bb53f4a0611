"""The flushes of a result by who flushes and under which load: what the README's table and the plots show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..measuring.bounds import Bounds
from ..measuring.durability import POWER_LOSS, our_survival
from ..measuring.runs import Figures, Run, figure_bounds
from .wording import number, table_row

SUITE_NAME = "flush "


@dataclass(frozen=True, slots=True, order=True)
class Load:
    """A load, as runs have it in their parameters."""

    sessions: int
    kind: str
    events: int
    per_second: int

    def __str__(self) -> str:
        sessions = f"{self.sessions:,} session{'s' if self.sessions > 1 else ''}"
        pace = f"{self.per_second:,}/s planned" if self.per_second else "closed loop" if self.sessions > 1 else ""
        events = f"{self.events} events a flush" if self.events > 1 else ""
        return ", ".join(filter(None, (sessions, events, pace)))


@dataclass(frozen=True, slots=True)
class Flushes:
    """The figures of one subject under one load, what its events survive, and how many sessions it really had."""

    subject: str
    is_ours: bool
    load: Load
    figures: Figures
    bounds: dict[str, Bounds]
    survives: str
    sessions: int

    @property
    def name(self) -> str:
        """Give the subject's name, with a sign where its events are known not to outlive a power loss."""
        return self.subject if self.survives in ("", POWER_LOSS) else f"{self.subject} †"


def flushes_of(runs: Sequence[Run]) -> list[Flushes]:
    """Give each subject under each load once, ours first, in the order in which they were measured."""
    found: dict[tuple[str, Load], Flushes] = {}
    for is_ours in (True, False):
        for run in filter(_is_flush, runs):
            load = _load_of(run.params)
            subject = _ours(run.params) if is_ours else str(run.params["against"])
            figures, rounds = (run.figures, run.rounds.figures) if is_ours else (run.base, run.rounds.base)
            bounds = figure_bounds(rounds)
            mine = is_ours or subject.startswith("turnkeeper ")
            ours_survive = our_survival(run.params.get("durability", "fsync"))
            survives = ours_survive if is_ours else str(run.params.get("survives", ""))
            sessions = load.sessions if is_ours else run.params.get("base_sessions", load.sessions)
            found.setdefault((subject, load), Flushes(subject, mine, load, figures, bounds, survives, sessions))
    return list(found.values())


def _ours(params: dict[str, Any]) -> str:
    where = " in workers" if params.get("where") == "worker" else ""
    return f"turnkeeper on {params['loop']}{where}"


def _is_flush(run: Run) -> bool:
    needed = {"sessions", "load", "loop", "against", "events_a_flush"}
    return run.name.startswith(SUITE_NAME) and needed <= run.params.keys() and {"p50_ms", "p99_ms"} <= run.base.keys()


def _load_of(params: dict[str, Any]) -> Load:
    per_second = params.get("planned_per_second") or 0
    return Load(params["sessions"], params["load"], params["events_a_flush"], per_second)


def flush_table(runs: Sequence[Run]) -> list[str]:
    """Give the table of flushes in Markdown: a row a subject, a column a load; nothing where none were measured."""
    flushes = flushes_of(runs)
    return list(_lines(flushes)) if flushes else []


def _lines(flushes: Sequence[Flushes]) -> Iterator[str]:
    loads = sorted({each.load for each in flushes})
    cells = {(each.subject, each.load): each for each in flushes}
    survive = {each.subject: each.survives for each in flushes}
    yield f"| flush, p50 / p99 | {' | '.join(map(str, loads))} | its events survive |"
    yield f"| --- |{' --- |' * len(loads)} --- |"
    for subject in survive:
        row = [_cell(cells.get((subject, load))) for load in loads]
        is_ours = subject.startswith("turnkeeper on ") and not subject.endswith("SQLite")
        name, row = (f"**{subject}**", [each and f"**{each}**" for each in row]) if is_ours else (subject, row)
        yield table_row((name, *row, survive[subject]))


def _cell(flushes: Flushes | None) -> str:
    if flushes is None:
        return ""
    figures = flushes.figures
    latency = f"{number(figures['p50_ms'])} / {number(figures['p99_ms'])} ms"
    if flushes.load.sessions == 1 or flushes.load.per_second:
        return latency
    fewer = f" with {flushes.sessions} sessions" if flushes.sessions < flushes.load.sessions else ""
    return f"{latency}; {number(figures['per_second'])}/s{fewer}"
