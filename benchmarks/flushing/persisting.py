"""The three figures that tell what a journal is good for, in the shape of Pekko's kit for journals, on one session.

    pipelined     all events are appended, and the last one is waited for
    one by one    each event is waited for before the next one is appended
    recovered     the session of the first is opened again, and all of its events are read back

Events a second each. Ours go through the public client, on trio, to node and writer in processes of their own. Beside
them one file that is written, synced and parsed, and rows of SQLite, one transaction each time something is waited for;
both in the process that measures.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

import anyio
import orjson

from turnkeeper import Runtime, open_runtime

from ..driving.baselines import DATABASE, AppendedFile, MakeBaseline, SqliteRows
from ..driving.loads import Lines
from ..measuring.asked_process import AskedProcess, answer_all
from ..measuring.durability import POWER_LOSS
from ..measuring.runs import Figures, Run, Tell, interleaved, run_of
from ..stores.contents import EVENT_DATA, EVENT_TYPE

PIPELINED, ONE_BY_ONE, RECOVERED = "pipelined", "one_by_one", "recovered"

_OURS = "turnkeeper"

Seconds: TypeAlias = dict[str, float]
"""How long each of the three took."""


def compare_persisting(directory: Path, events: int, rounds: int, tell: Tell) -> list[Run]:
    """Let everybody persist and recover so many events, in a directory that is made for that."""
    directory.mkdir()
    plain = directory / "plain"
    with AskedProcess(_answer, directory / "store") as ours:
        ours.wait_ready()
        subjects: dict[str, Callable[[], Seconds]] = {
            _OURS: partial(ours.ask, "persist", events),
            "append": partial(_persist_plainly, AppendedFile, _parse, plain, events),
            "sqlite": partial(_persist_plainly, SqliteRows, _select, plain, events),
        }
        measured = interleaved(rounds, subjects, lambda line: tell(f"persisting {events:,} events: {line}"))
    mine = measured.pop(_OURS)
    params = {"sessions": 1, "events": events, "survives": POWER_LOSS}
    return [
        run_of(
            f"persist {what} per_second",
            {**params, "against": other},
            _figures(what, events, mine),
            _figures(what, events, theirs),
            compared="per_second",
        )
        for what in (PIPELINED, ONE_BY_ONE, RECOVERED)
        for other, theirs in measured.items()
    ]


def _figures(what: str, events: int, rounds: Sequence[Seconds]) -> list[Figures]:
    return [{"per_second": events / each[what], "seconds": each[what]} for each in rounds]


def _require(found: int, expected: int) -> None:
    """Raise RuntimeError if not everything was recovered."""
    if found != expected:
        raise RuntimeError(f"{found:,} events were recovered and not {expected:,}")


# -- ours


def _answer(starter: Connection, store: Path) -> None:
    anyio.run(_persist, starter, store, backend="trio")


async def _persist(starter: Connection, store: Path) -> None:
    async with open_runtime(store) as runtime:
        await answer_all(starter, {"persist": partial(_persist_and_recover, runtime)})


async def _persist_and_recover(runtime: Runtime, events: int) -> Seconds:
    taken, name = {}, ""
    for what in (ONE_BY_ONE, PIPELINED):
        async with await runtime.create_session() as session:
            name = session.id
            began = time.perf_counter()
            for _ in range(events):
                await session.append(EVENT_TYPE, EVENT_DATA)
                if what == ONE_BY_ONE:
                    await session.flush()
            await session.flush()
            taken[what] = time.perf_counter() - began
    began = time.perf_counter()
    async with await runtime.open_session(name) as session:
        found = 0
        async for _ in session.events():
            found += 1
        taken[RECOVERED] = time.perf_counter() - began
    _require(found, events)
    return taken


# -- without turnkeeper


def _persist_plainly(make: MakeBaseline, recover: Callable[[Path], int], directory: Path, events: int) -> Seconds:
    taken = {}
    for what, batch, batches in ((ONE_BY_ONE, 1, events), (PIPELINED, events, 1)):
        place = directory / what
        place.mkdir(parents=True)
        with closing(make(place, 1)) as baseline:
            lines = Lines(1)
            began = time.perf_counter()
            for _ in range(batches):
                baseline.flush(lines.events(0, batch))
            taken[what] = time.perf_counter() - began
    began = time.perf_counter()
    found = recover(directory / PIPELINED)
    taken[RECOVERED] = time.perf_counter() - began
    _require(found, events)
    shutil.rmtree(directory)
    return taken


def _parse(directory: Path) -> int:
    (path,) = directory.iterdir()
    with path.open("rb") as lines:
        return sum(1 for line in lines if orjson.loads(line))


def _select(directory: Path) -> int:
    with closing(sqlite3.connect(directory / DATABASE)) as database:
        rows = database.execute("SELECT line FROM events WHERE session = 0 ORDER BY seq")
        return sum(1 for (line,) in rows if orjson.loads(line))
