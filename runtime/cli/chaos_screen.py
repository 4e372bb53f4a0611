"""How chaos looks: rounds as they go, on stderr, and its report at the end, on stdout.

Who looks at a terminal sees the figures grow; elsewhere each round that is over is a line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from turnkeeper.benchmarks.chaos.report import (
    FIGURES,
    HOW_RECOVERY_IS_MEASURED,
    Report,
    RoundReport,
    number_of,
    times_ms,
)

from ..printable_text import printable
from .printing import is_coloured, is_terminal, print_figures, print_note, print_table, print_text

if TYPE_CHECKING:
    from rich.console import Group

Show = Callable[[Report, int, str], None]
"""Called with the rounds that are over, the seed of the one that is played, and what is going on."""

BAR_CHARACTERS = 40
VIOLATIONS_MAX = 20
"""So many violations are told with what stands around them; all of them are in the JSON and on the page."""

SEEDS_MAX = 10

_LIVE_PER_SECOND = 4
_RED, _GREEN, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"


# -- While it goes on


@contextmanager
def live_screen() -> Iterator[Show]:
    """Show what is going on as long as the body lasts, which calls what it is given at each change."""
    if not is_terminal(sys.stderr):
        yield _Lines().show
        return
    from rich.console import Console
    from rich.live import Live

    screen = _Screen()
    console = Console(stderr=True)
    with Live(console=console, transient=True, refresh_per_second=_LIVE_PER_SECOND, get_renderable=screen.picture):
        yield screen.show


class _Lines:
    """Tells each round that is over in a line, once."""

    def __init__(self) -> None:
        self._told = 0

    def show(self, report: Report, seed: int, phase: str) -> None:
        if report.latest is not None and report.rounds > self._told:
            self._told = report.rounds
            print_note(f"round {report.rounds}: {_round_text(report.latest)}")


def _round_text(round: RoundReport) -> str:
    course = round.course
    parts = [
        number_of(course.kills.total(), "kill"),
        number_of(course.counted("fault").total(), "fault"),
        number_of(round.figures["events"], "event"),
        f"{round.seconds:.1f} s",
    ]
    verdict = "every promise kept" if round.is_clean else f"BROKEN: {_counted(round.broken)}"
    return f"seed {round.seed}: {verdict}; {', '.join(parts)}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {times:,} x" for name, times in counts.items()) or "none"


class _Screen:
    """Draws the latest that it was shown, again and again."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._report: Report | None = None
        self._seed = 0
        self._phase = "starting"

    def show(self, report: Report, seed: int, phase: str) -> None:
        self._report, self._seed, self._phase = report, seed, phase

    def picture(self) -> Group:
        """Draw it; called by the thread that refreshes the screen."""
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        elapsed = time.monotonic() - self._began
        report = self._report
        if report is None:
            return Group(Text(f"{self._phase}, {elapsed:.0f} s"))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
        table.add_column("")
        table.add_column("", justify="right", min_width=24)
        for name, value in _live_rows(report):
            table.add_row(name, value)
        broken = Text(f"violations: {_counted(report.broken)}", style="" if report.is_clean else "bold red")
        head = Text(f"seed {self._seed}: {self._phase}, {elapsed:.0f} s")
        return Group(head, table, broken)


def _live_rows(report: Report) -> list[tuple[str, str]]:
    return [
        ("rounds", f"{report.rounds:,}"),
        ("kills", f"{report.kills.total():,}"),
        ("faults", f"{report.faults.total():,}"),
        ("events", f"{report.figures['events']:,}"),
        ("tasks", f"{report.figures['tasks']:,}"),
        ("flush p50 / p99", _shares(report.flush_ms, "p50", "p99")),
        ("recovery p50 / p99 / max", _shares(times_ms(report.recovery_seconds), "p50", "p99", "max")),
    ]


# -- The report


def print_report(report: Report) -> None:
    """Print what was done and found, how soon it was overcome, and what was broken."""
    print_figures(
        [
            ("seed", str(report.seed)),
            ("rounds", f"{report.rounds:,} in {report.elapsed:.0f} s"),
            ("stores", report.stores_text or "none"),
            *((name, f"{report.figures[name]:,}") for name in FIGURES),
            ("flush p50 / p99", _shares(report.flush_ms, "p50", "p99")),
            ("kills", f"{report.kills.total():,}"),
            ("faults", f"{report.faults.total():,}"),
            ("violations", f"{report.broken.total():,}"),
        ]
    )
    print_text("Acknowledged and found are events and pieces of text, as agents sent them one by one.")
    kills = [(name, f"{times:,}") for name, times in report.kills.most_common()]
    _print_table(("killed", "times"), kills, right=("times",))
    rows = [(name, f"{done:,}", f"{missed:,}", why) for name, done, missed, why in report.fault_rows]
    _print_table(("fault", "done", "hit nobody", "left out"), rows, right=("done", "hit nobody"))
    _print_recovery(report)
    print_text("")
    if report.is_clean:
        _print_verdict(f"Every promise was kept in {number_of(report.rounds, 'round')}.", _GREEN)
    else:
        _print_violations(report)


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str]) -> None:
    """Print a table behind an empty line; nothing if it has no rows."""
    if rows:
        print_text("")
        print_table(columns, rows, right=right)


def _print_recovery(report: Report) -> None:
    names = ("p50", "p99", "max")
    cells = [
        (target, str(times["times"]), *(_milliseconds(times[name]) for name in names))
        for target, times in report.recovery_rows
    ]
    _print_table(("recovery after", "times", *names), cells, right=("times", *names))
    classes = report.recovery_classes
    if not classes:
        return
    print_text("")
    most = max(each.times for each in classes)
    for each in classes:
        bar = "#" * -(-each.times * BAR_CHARACTERS // most)
        print_text(f"{each.label:>16}  {each.times:>6,}  {bar}".rstrip())
    print_text(HOW_RECOVERY_IS_MEASURED)


def _print_violations(report: Report) -> None:
    violations = report.violations
    for each in violations[:VIOLATIONS_MAX]:
        _print_violation(each)
    if len(violations) > VIOLATIONS_MAX:
        print_text(f"... and {len(violations) - VIOLATIONS_MAX:,} more, which --json and --html tell")
    rounds = f"{len(report.broken_seeds):,} of {number_of(report.rounds, 'round')}"
    _print_verdict(f"A promise was broken in {rounds}: {_counted(report.broken)}.", _RED)
    for kept in (each.kept for each in report.shown if each.kept is not None):
        print_text(f"what is left of it: {printable(kept)}")
    for seed in report.broken_seeds[:SEEDS_MAX]:
        print_text(f"play it again: turnkeeper chaos replay {seed}")


def _print_violation(violation: Mapping[str, Any]) -> None:
    first, *more = str(violation["says"]).splitlines() or [""]
    print_text(printable(f"seed {violation['seed']}: {violation['promise']}: {violation['subject']}: {first}"))
    for line in more:
        print_text(printable(f"    {line}"))
    for name in ("journal", "notes"):
        for line in violation.get(name, ()):
            print_text(printable(f"    {name}  {line}"))
    print_text("")


def _print_verdict(line: str, colour: str) -> None:
    print_text(f"{colour}{printable(line)}{_PLAIN}" if is_coloured(sys.stdout) else printable(line))


def _shares(times: Mapping[str, float | None], *names: str) -> str:
    return " / ".join(_milliseconds(times[name]) for name in names)


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms"
