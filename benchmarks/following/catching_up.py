"""How fast a follower catches up that begins at the first event, over what reading the same lines takes elsewhere.

The store holds the events of a hundred sessions, ten a run; a follower of all of them gets one object after the other.
Beside it, with the same lines: a JSONL file whose lines are parsed, and rows that are selected a thousand at a time,
behind the last one, and parsed. Everything is in the page cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing, closing
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import anyio
import orjson

from turnkeeper import open_runtime

from ..measuring.asked_process import AskedProcess, answer_all
from ..measuring.runs import Figures, Run, interleaved, run_of
from ..stores.filled import Filling, SessionLines, session_name
from ..workplace import Workplace
from .followed_stores import EventTable

_OURS = "turnkeeper"
_BLOCK_EVENTS = 10_000


def compare_catching_up(events: int, rounds: int, place: Workplace) -> list[Run]:
    """Let everybody begin at the first of at least so many events."""
    filling = Filling(events, run_events=10)
    (store,) = place.stores.read(filling)
    place.tell("filling a file and a table")
    file, directory = place.directory / "lines.jsonl", place.directory / "table"
    directory.mkdir()
    _fill(file, directory, filling.stored)
    with AskedProcess(_answer, store) as ours:
        ours.wait_ready()
        subjects: dict[str, Callable[[], Figures]] = {
            _OURS: lambda: _figures(filling.stored, ours.ask("follow", filling.stored)),
            "JSONL parsed": partial(_timed, filling.stored, partial(_parse, file)),
            "SQLite, by rowid": partial(_timed, filling.stored, partial(_select, directory)),
        }
        measured = interleaved(rounds, subjects, lambda line: place.tell(f"catching up: {line}"))
    mine = measured.pop(_OURS)
    params = {"events": filling.stored, "run_events": filling.run_events, "cache": "warm"}
    return [
        run_of("follow catch_up per_second", {**params, "against": other}, mine, theirs, compared="per_second")
        for other, theirs in measured.items()
    ]


def _fill(file: Path, directory: Path, events: int) -> None:
    lines = SessionLines(session_name(0))
    with closing(EventTable(directory)) as table, file.open("wb") as opened:
        for first in range(0, events, _BLOCK_EVENTS):
            block = lines.lines(first, min(_BLOCK_EVENTS, events - first))
            opened.write(block)
            table.fill(block.splitlines(keepends=True))


def _figures(events: int, seconds: float) -> Figures:
    return {"per_second": events / seconds, "seconds": seconds}


def _timed(events: int, read: Callable[[], int]) -> Figures:
    began = time.perf_counter()
    found = read()
    seconds = time.perf_counter() - began
    if found != events:
        raise RuntimeError(f"{found:,} events were read and not {events:,}")
    return _figures(events, seconds)


def _parse(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for line in lines if orjson.loads(line))


def _select(directory: Path) -> int:
    found = place = 0
    with closing(EventTable(directory)) as table:
        while rows := table.behind(place):
            found += sum(1 for _, line in rows if orjson.loads(line))
            place = rows[-1][0]
    return found


# -- in the process that follows a store


def _answer(starter: Connection, store: Path) -> None:
    anyio.run(_follow, starter, store, backend="trio")


async def _follow(starter: Connection, store: Path) -> None:
    async with open_runtime(store) as runtime:

        async def follow(events: int) -> float:
            """Follow from the first event on until so many came; give the seconds that it took."""
            left = events
            began = time.perf_counter()
            async with aclosing(runtime.follow(after=0)) as following:
                async for _ in following:
                    left -= 1
                    if not left:
                        break
            return time.perf_counter() - began

        await answer_all(starter, {"follow": follow})
