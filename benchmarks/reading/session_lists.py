"""What it costs to find sessions among very many: through the Python API, in a directory of files, and in SQLite.

Each is asked for the same, everything warm:

    newest    the 20 sessions that were active last, as a program shows them when it starts
    prefix    the last event of the session whose id begins with eight given characters
    key       the last event of the session that has a given key
    pages     all sessions, in pages of 1,000
    tasks     the 20 tasks that changed last, among all these sessions

Ours asks a store by a process that has it open. The others are in the process that measures, which flatters them. A
directory knows no keys, titles or pages, so its one answer to *pages* is the sorted list of all files.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sized
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

import anyio

from turnkeeper import Runtime, SessionInfo, open_runtime

from ..driving.loads import round_figures
from ..measuring.asked_process import AskedProcess, answer_all
from ..measuring.room import require_space
from ..measuring.runs import Figures, Run, Tell, be_quiet, interleaved, run_of
from ..workplace import Workplace, run_alone
from .many_sessions import SESSION_BYTES, SessionDirectory, SessionTables, drawn_session, fill_store, tasks_of

NEWEST = 20
PAGE = 1_000
_OURS = "turnkeeper"
_SQLITE = "sqlite"
_FILES = "a directory of files"

Measure: TypeAlias = Callable[[], Figures]
Find: TypeAlias = Callable[[int], int]
"""Looks for something, by the number of the turn; says how much was found."""

AsyncFind: TypeAlias = Callable[[int], Awaitable[Sized]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: the sessions there are, and how often a round asks for something quick."""

    sessions: int
    asks: int
    rounds: int

    def asks_of(self, what: str) -> int:
        """How often a round asks for this."""
        return 1 if what == "pages" else self.asks


QUICK = Sizes(sessions=10_000, asks=20, rounds=5)
FULL = Sizes(sessions=100_000, asks=200, rounds=7)


def run_list(
    quick: bool, out: Path | None = None, *, sessions: int | None = None, tell: Tell = be_quiet
) -> dict[str, Any]:
    """Fill a store, a directory and a database with sessions and look for some; report medians and ratios.

    There are `sessions`, 100,000 if nothing is said, 10,000 if `quick`. All of it lies in `out`, or else in the current
    directory, and is removed; with `out` the result is kept there as list.json. Raises OSError where that isn't free.
    """
    sizes = QUICK if quick else FULL
    chosen = sizes if sessions is None else replace(sizes, sessions=sessions)
    return run_alone("list", partial(measure, chosen), out, tell)


def measure(sizes: Sizes, place: Workplace) -> list[Run]:
    """Measure with these sizes."""
    directory, tell = place.directory, place.tell
    require_space(directory, sizes.sessions * SESSION_BYTES)
    with ExitStack() as opened:
        fill_store(directory / "store", sizes.sessions, tell)
        files = SessionDirectory(directory / "sessions", sizes.sessions, tell)
        tables = opened.enter_context(closing(SessionTables(directory / "sessions.sqlite", sizes.sessions)))
        ours = opened.enter_context(AskedProcess(_answer, str(directory / "store"), sizes.sessions))
        ours.wait_ready()
        return [
            run
            for what, others in _others(sizes, files, tables).items()
            for run in _compare(what, sizes, partial(ours.ask, what, sizes.asks_of(what)), others, tell)
        ]


def _others(sizes: Sizes, files: SessionDirectory, tables: SessionTables) -> dict[str, dict[str, Measure]]:
    """Give by what each question is answered beside ours. A look through all files counts for itself."""
    drawn = partial(drawn_session, sizes.sessions)

    def often(find: Find, expected: int) -> Measure:
        return partial(_look_often, find, expected, sizes.asks)

    def once(find: Find, expected: int) -> Measure:
        return partial(_look_often, find, expected, 1)

    newest = min(NEWEST, sizes.sessions)
    return {
        "newest": {
            _SQLITE: often(lambda _: len(tables.newest(NEWEST)), newest),
            _FILES: once(lambda _: len(files.newest(NEWEST)), newest),
        },
        "prefix": {
            _SQLITE: often(lambda turn: len(tables.read_beginning_with(drawn(turn).beginning)), 1),
            _FILES: once(lambda turn: len(files.read_beginning_with(drawn(turn).beginning)), 1),
        },
        "key": {_SQLITE: often(lambda turn: len(tables.read_named(drawn(turn).key)), 1)},
        "pages": {
            _SQLITE: once(lambda _: tables.page_through(PAGE), sizes.sessions),
            _FILES: once(lambda _: len(files.newest()), sizes.sessions),
        },
        "tasks": {},
    }


def _look_often(find: Find, expected: int, asks: int) -> Figures:
    taken = []
    for turn in range(asks):
        began = time.perf_counter()
        found = find(turn)
        taken.append(time.perf_counter() - began)
        _require(found, expected)
    return round_figures(taken)


def _compare(what: str, sizes: Sizes, ask: Measure, others: Mapping[str, Measure], tell: Tell) -> list[Run]:
    subjects = {_OURS: ask, **others}
    for each in subjects.values():
        each()  # the first time, what is looked at isn't in memory yet
    measured = interleaved(sizes.rounds, subjects, lambda line: tell(f"{what}: {line}"))
    mine = measured.pop(_OURS)
    name, params = f"list {what} p50_ms", {"sessions": sizes.sessions, "cache": "warm"}
    if not others:
        return [run_of(name, params, mine, compared="p50_ms")]
    return [run_of(name, {**params, "against": other}, mine, measured[other], compared="p50_ms") for other in others]


def _require(found: int, expected: int) -> None:
    """Raise RuntimeError if not everything was found."""
    if found != expected:
        raise RuntimeError(f"{found:,} were found and not {expected:,}")


# -- in the process that asks a store


def _answer(starter: Connection, store: str, sessions: int) -> None:
    anyio.run(_look, starter, store, sessions, backend="trio")


async def _look(starter: Connection, store: str, sessions: int) -> None:
    """Look for what is wanted, as often as is wanted."""
    async with open_runtime(store) as runtime:
        tasks = min(NEWEST, tasks_of(sessions))
        looks: dict[str, tuple[AsyncFind, int]] = {
            "newest": (lambda _: runtime.sessions(limit=NEWEST), min(NEWEST, sessions)),
            "prefix": (lambda turn: runtime.read(drawn_session(sessions, turn).beginning, last=1), 1),
            "key": (lambda turn: runtime.read(drawn_session(sessions, turn).key, last=1), 1),
            "pages": (lambda _: _page_through(runtime), sessions),
            "tasks": (lambda _: runtime.tasks(limit=NEWEST), tasks),
        }
        await answer_all(starter, {what: partial(_ask_often, *look) for what, look in looks.items()})


async def _ask_often(find: AsyncFind, expected: int, asks: int) -> Figures:
    taken = []
    for turn in range(asks):
        began = time.perf_counter()
        found = await find(turn)
        taken.append(time.perf_counter() - began)
        _require(len(found), expected)
    return round_figures(taken)


async def _page_through(runtime: Runtime) -> list[SessionInfo]:
    """List all sessions, page by page."""
    found: list[SessionInfo] = []
    while page := await runtime.sessions(limit=PAGE, after=found[-1] if found else None):
        found += page
    return found
