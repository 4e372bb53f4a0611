"""The demo on a terminal: a live table of both columns while it runs, and the verdict at its end."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .demo import DemoResult
from .oracle import Verdict
from .replay.progress import Column, Progress

_LATE_MS = 1_000.0


class LiveDisplay:
    """Shows the demo as it goes, as a context manager; on a console that is no terminal it shows nothing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveDisplay:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live.is_started:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Show this moment."""
        if self._live.is_started:
            self._live.update(_moment(progress), refresh=True)


def verdict(result: DemoResult) -> RenderableType:
    """Give the table and the lines that the demo ends with."""
    table = _table(result.progress)
    store, plain = result.verdict, result.plain_verdict
    for name, what in _COUNTS.items():
        wrong = name in _WRONG
        table.add_row(what, _count(store, name, wrong), _count(plain, name, wrong))
    _add_common_rows(table, result.progress)
    lines = [Text(line, style="dim") for line in _about_plain(result)]
    outcome = Text(result.proven, style="bold green" if result.is_clean else "bold red")
    seed = Text(f"seed {result.plan.seed}, {result.elapsed:.1f} s, stores on {result.file_system}", style="dim")
    return Group(table, *lines, seed, outcome)


_COUNTS = {
    "sessions": "sessions",
    "events": "events stored",
    "acknowledged": "acknowledged",
    "found": "of these found",
    "lost": "lost",
    "repeated": "repeated",
    "holes": "holes",
    "open_turns": "turns left open",
    "unreadable": "unreadable lines",
}
_WRONG = ("lost", "repeated", "holes", "open_turns", "unreadable")


def _moment(progress: Progress) -> RenderableType:
    table = _table(progress)
    store, plain = progress.store, progress.plain
    table.add_row("sessions", str(store.sessions), str(plain.sessions))
    table.add_row("turns", f"{store.turns:,}", f"{plain.turns:,}")
    table.add_row("events", f"{store.events:,}", f"{plain.events:,}")
    _add_common_rows(table, progress)
    return Group(table, Text(f"{progress.phase} … {progress.elapsed:.1f} s, seed {progress.seed}", style="dim"))


def _table(progress: Progress) -> Table:
    table = Table()
    table.add_column("")
    table.add_column(progress.store.name, justify="right", min_width=24)
    table.add_column(progress.plain.name, justify="right", min_width=24)
    return table


def _add_common_rows(table: Table, progress: Progress) -> None:
    """Add what is known at any moment: flush latency, owners, and each kill with the time until service was back."""
    store, plain = progress.store, progress.plain
    table.add_row("second owner", _owners(store), _owners(plain))
    table.add_row("flush p50 / p99", _latency(store), _latency(plain))
    for number in range(max(len(store.kills), len(plain.kills))):
        table.add_row(f"kill {number + 1}", _kill(store, number), _kill(plain, number))


def _count(found: Verdict, name: str, wrong: bool) -> Text:
    value: int = getattr(found, name)
    style = "" if not wrong else "green" if value == 0 else "bold red"
    return Text(f"{value:,}", style=style)


def _owners(column: Column) -> Text:
    if column.owners_let_in:
        return Text("let in", style="bold red")
    return Text("refused" if column.owners_refused else "", style="green")


def _latency(column: Column) -> str:
    figures = column.flush_ms()
    if figures["p50"] is None:
        return ""
    return f"{figures['p50']:.2f} / {figures['p99']:.1f} ms"


def _kill(column: Column, number: int) -> Text:
    if number >= len(column.kills):
        return Text("")
    kill = column.kills[number]
    recovery = column.recovery_ms(kill)
    if recovery is None:
        return Text(f"{kill.victim} killed {time.monotonic() - kill.killed:.1f} s ago", style="bold yellow")
    return Text(f"{kill.victim}, back in {recovery:.0f} ms", style="green" if recovery < _LATE_MS else "yellow")


def _about_plain(result: DemoResult) -> list[str]:
    """Say what the plain column shows, and what it doesn't."""
    plain = result.progress.plain
    lines = ["Plain files: who writes is the agent itself, so the kills hit agents; and nothing is synced."]
    if plain.kills:
        lines.append(
            "What reached write() outlives a killed process. On purpose, one was killed between two writes of a line: "
            f"{result.plain_verdict.unreadable} line is unreadable, and with it the event that was appended behind it."
        )
    if plain.owners_let_in:
        lines.append("A second process opened a file that was open: both went on with the same numbers.")
    return lines
