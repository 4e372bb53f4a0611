"""The page of a run of chaos: one HTML file with everything in it, to be read, printed and kept.

What is drawn is also told by tables; what is told when something is pointed at stands in the line to which that leads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from jinja2 import Environment

from turnkeeper import __version__

from ..report.paper import page_environment
from .course import STORE, Course, Kind, Lifetime, Mark
from .report import FIGURES, HOW_RECOVERY_IS_MEASURED, Report, RoundReport, number_of

OPEN_ROUNDS_MAX: Final = 8
"""So few rounds are all shown open; of more, those in which a promise was broken."""

SEEDS_MAX: Final = 20
TICKS_MAX: Final = 8
LAST_TICK_SHARE: Final = 0.92
"""Behind this share of a timeline there is no room for a number of seconds."""

SIGNS: Final[Mapping[Kind, tuple[str, str]]] = {
    "kill": ("✕", "killed"),
    "fault": ("▲", "a fault"),
    "arm": ("◆", "a failpoint was armed: who passes it kills itself"),
    "missed": ("○", "a fault that found nobody to hit"),
}


_WORDS: Final = {"point": "at", "how": "", "why": ""}
"""How members of a note are named where they stand in a sentence; others by themselves."""


class ShownLane(NamedTuple):
    """A lane as it is drawn, with the marks on it, each with its place among all."""

    name: str
    lifetimes: tuple[Lifetime, ...]
    marks: list[tuple[int, Mark]]


def page_of(report: Report) -> str:
    """Make the page."""
    title = f"Chaos from seed {report.seed}: {'every promise kept' if report.is_clean else 'a promise broken'}"
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            report=report,
            title=title,
            version=__version__,
            figures=[
                ("stores", report.stores_text),
                *((name, f"{report.figures[name]:,}") for name in FIGURES),
                *_flush_figures(report),
            ],
            faults=report.fault_rows,
            recoveries=report.recovery_rows,
            how_measured=HOW_RECOVERY_IS_MEASURED,
            hidden=report.rounds - len(report.shown),
            seeds_max=SEEDS_MAX,
            is_open=lambda round: len(report.shown) <= OPEN_ROUNDS_MAX or not round.is_clean,
        )
    )


def write_page(report: Report, path: Path) -> None:
    """Write the page to a file. Raises OSError."""
    path.write_text(page_of(report), encoding="utf-8")


def _environment() -> Environment:
    environment = page_environment(str(__package__))
    environment.globals.update(
        signs={kind: sign for kind, (sign, _) in SIGNS.items()},
        signs_mean={kind: meaning for kind, (_, meaning) in SIGNS.items()},
        count=lambda number: f"{number:,}",
        number_of=number_of,
        percent=_percent,
        long_time=_long_time,
        plain_json=lambda value: json.dumps(value, indent=1),
        lanes_of=_lanes_of,
        breaches=_breaches,
        ticks=_ticks,
        whom=_whom,
        details=_details,
        mark_text=_mark_text,
        life_text=_life_text,
    )
    return environment


# -- A round


def _lanes_of(course: Course) -> list[ShownLane]:
    """Give all lanes that something stands on: those of who lived, then those of what was struck beside."""
    lifetimes = {lane.name: lane.lifetimes for lane in course.lanes}
    names = [*lifetimes, *sorted({mark.lane for mark in course.marks} - {*lifetimes, STORE}), STORE]
    marks = list(enumerate(course.marks))
    lanes = [
        ShownLane(name, lifetimes.get(name, ()), [each for each in marks if each[1].lane == name]) for name in names
    ]
    return [lane for lane in lanes if lane.lifetimes or lane.marks]


def _breaches(round: RoundReport) -> list[tuple[int, float, str]]:
    """Give the violations that have a moment within the round: place, second, words."""
    moments = [(place, each, each.get("at")) for place, each in enumerate(round.violations, 1)]
    found = [(place, at - round.course.began, each["says"]) for place, each, at in moments if at is not None]
    return [(place, second, says) for place, second, says in found if 0 <= second <= round.course.seconds]


def _ticks(seconds: float) -> Iterator[int]:
    """Give the whole seconds to write under a timeline: not too many."""
    step = next(each for each in (1, 2, 5, 10, 20, 60, 600, 6000, 60_000) if seconds / each <= TICKS_MAX)
    yield from range(0, int(seconds * LAST_TICK_SHARE) + 1, step)


def _whom(mark: Mark) -> str:
    pids = ", ".join(map(str, mark.pids))
    who = mark.lane if mark.target == "host" else mark.target
    return f"{who} {pids}".strip()


def _details(mark: Mark) -> str:
    """Say all else that is known of it."""
    parts = [f"{_WORDS.get(name, name)} {value}".strip() for name, value in mark.says.items() if value != mark.name]
    if mark.until is not None:
        parts.append(f"for {mark.until - mark.at:.2f} s")
    return ", ".join(parts)


def _mark_text(mark: Mark) -> str:
    recovery = "" if mark.recovery is None else f"recovery {mark.recovery * 1000:,.0f} ms"
    return ": ".join(filter(None, (f"{mark.at:.2f} s", mark.name, _whom(mark), _details(mark), recovery)))


def _life_text(life: Lifetime) -> str:
    end = "killed" if life.is_killed else "seen last"
    return f"process {life.pid}: from {life.begin:.2f} s, {end} at {life.end:.2f} s"


# -- Values


def _flush_figures(report: Report) -> list[tuple[str, str]]:
    times = report.flush_ms.items()
    return [(f"flush {name}", f"{milliseconds:,.1f} ms") for name, milliseconds in times if milliseconds is not None]


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}%"


def _long_time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
