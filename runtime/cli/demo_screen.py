"""How the demo looks: a live display while it runs, on stderr for who looks at a terminal, and a table at its end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from turnkeeper.benchmarks.demonstration.demo import DemoDisplay, DemoResult
from turnkeeper.benchmarks.demonstration.progress import Column, Kill, Progress

from .printing import is_terminal, print_table, print_text

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live


@contextmanager
def live_screen() -> Iterator[DemoDisplay | None]:
    """Give a display that lasts as long as the body; None where nobody looks."""
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield _Screen(live)


class _Screen:
    """Draws the progress anew at each call."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, progress: Progress) -> None:
        self._live.update(_picture(progress), refresh=True)


def _picture(progress: Progress) -> Group:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for column in (progress.store, progress.plain):
        table.add_column(column.name, justify="right", min_width=24)
    for name, ours, plain in _live_rows(progress.store, progress.plain):
        table.add_row(name, ours, plain)
    kills = [Text(line) for line in _kill_lines(progress)]
    return Group(Text(f"{progress.phase}, {progress.elapsed:.0f} s, seed {progress.seed}"), table, *kills)


def _live_rows(store: Column, plain: Column) -> list[tuple[str, str, str]]:
    def flush(column: Column) -> str:
        figures = column.flush_ms()
        return f"{_milliseconds(figures['p50'])} / {_milliseconds(figures['p99'])}"

    return [
        ("sessions", f"{store.sessions:,}", f"{plain.sessions:,}"),
        ("turns", f"{store.turns:,}", f"{plain.turns:,}"),
        ("events", f"{store.events:,}", f"{plain.events:,}"),
        ("tasks", f"{store.tasks:,}", f"{plain.tasks:,}"),
        ("flush p50 / p99", flush(store), flush(plain)),
        ("kills", f"{len(store.kills)}", f"{len(plain.kills)}"),
    ]


def _kill_lines(progress: Progress) -> list[str]:
    """Say of each kill in our column when service was back."""
    kills = sorted(progress.store.kills, key=lambda kill: kill.killed)
    return [_kill_line(kill, progress.store, progress.began) for kill in kills]


def _kill_line(kill: Kill, column: Column, began: float) -> str:
    line = f"{kill.killed - began:5.1f} s  {kill.victim} killed"
    serving, recovery = column.serving_ms(kill), column.recovery_ms(kill)
    if serving is not None:
        line += f", {'there' if kill.victim == 'spawner' else 'serving'} again after {serving:.0f} ms"
    if recovery is not None:
        what = "the next task ran" if kill.victim == "spawner" else "the next acknowledgement"
        line += f", {what} after {recovery:.0f} ms"
    return line


def print_result(result: DemoResult) -> None:
    """Print both columns, each kill, and what is proven."""
    ours = result.as_map()
    plain: dict[str, Any] = ours["plain"]
    counts = ("sessions", "events", "acknowledged", "found", "lost", "repeated", "holes")
    rows = [(name, f"{ours[name]:,}", f"{plain[name]:,}") for name in counts]
    rows += [
        ("open turns", f"{ours['open_turns']:,}", f"{plain['open_turns']:,}"),
        ("unreadable lines", f"{result.verdict.unreadable:,}", f"{plain['unreadable']:,}"),
        ("tasks", f"{ours['tasks']:,}", f"{plain['tasks']:,}"),
        ("wrong ends", f"{ours['wrong_exits']:,}", f"{plain['wrong_exits']:,}"),
        ("orphans", f"{ours['orphans']:,}", f"{plain['orphans']:,}"),
        ("second owners", _owners(ours["second_owners"]), _owners(plain["second_owners"])),
        ("kills", _counted(ours["kills"]), _counted(plain["kills"])),
        ("flush p50", _milliseconds(ours["flush_ms"]["p50"]), _milliseconds(plain["flush_ms"]["p50"])),
        ("flush p99", _milliseconds(ours["flush_ms"]["p99"]), _milliseconds(plain["flush_ms"]["p99"])),
        ("task start p50", _milliseconds(ours["start_ms"]["p50"]), _milliseconds(plain["start_ms"]["p50"])),
        ("task start p99", _milliseconds(ours["start_ms"]["p99"]), _milliseconds(plain["start_ms"]["p99"])),
    ]
    names = (result.progress.store.name, f"{result.progress.plain.name}, one file a session")
    print_table(("", *names), rows, right=names)
    print_text("")
    for line in _kill_lines(result.progress):
        print_text(line)
    print_text(f"seed {result.plan.seed}, {result.elapsed:.1f} s, on {result.file_system}")
    print_text(
        "Plain files lose nothing that reached write() when a process is killed; they tear lines, let two owners in,"
    )
    print_text(
        "and promise nothing about power cuts. How a command ended is known to its parent alone, and dies with it."
    )
    print_text(result.proven)


def _owners(counts: dict[str, int]) -> str:
    return f"{counts['refused']} refused, {counts['let_in']} let in"


def _counted(kills: dict[str, int]) -> str:
    return ", ".join(f"{victim} {count} x" for victim, count in kills.items()) or "none"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} ms"
