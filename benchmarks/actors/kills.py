"""A session actor in a worker process that is killed in its turns: how soon it goes on, and what is left of its turns.

A supervisor has the actor in a worker process, and starts it again without a delay. It appends to its session in a
turn, one durable event after the other, until it is killed at a moment from a seed. What is measured begins just before
the signal and ends when the host has the next incarnation's word: the session is open there, the interrupted turn is
closed in it, and the first event of the next turn is acknowledged as durable. In parts: *respawn* until the actor's
code runs, *open* until it has the session, *append* until that event is durable. A kill that comes sooner than the next
spare worker has loaded waits for it, and is measured with that.

Behind the last kill the store is read as a whole: events that the actor knew to be durable and that aren't there once
are lost; a turn is left open if it has no end before the next one begins.

Beside it, in turns: a program that keeps its events in a SQLite database, is killed, started again, and commits one. It
has no supervisor and nothing to wait for but Python and SQLite: the least that it takes to begin again without us.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio

from turnkeeper import ActorRef, ChildSpec, RestartPolicy, Runtime, open_runtime
from turnkeeper.actors.folding import TURN_END, TURN_START

from ..driving.plain_restarts import PLAIN_SQLITE, PlainProgram, fill_database
from ..measuring.asked_process import AskedProcess, answer_all
from ..measuring.durability import POWER_LOSS
from ..measuring.runs import SEED, Figures, Run, in_blocks, interleaved, medians, percentile, run_of
from ..workplace import Workplace
from .killed_agent import ENTRY, SESSION, Agent

NAME: Final = "killed session actor goes on, p50_ms"

ROUNDS: Final = 10
"""The kills make so many rounds at most."""

TURN_SECONDS_MAX: Final = 0.5
"""How long a turn goes on until its kill, at most."""

REST_SECONDS: Final = 0.25
"""How long is waited before the program is killed: the next spare worker loads meanwhile."""

RESTART_SECONDS_MAX: Final = 60.0
"""So long a restart may take."""

_OFTEN: Final = RestartPolicy(intensity=1_000_000, backoff_first=0.0, backoff_max=0.0)
"""Being killed all the time is no reason to give up here, or to wait."""

_DATABASE_BYTES: Final = 1_000_000
_OURS: Final = "a session actor"
_TOTAL: Final = "total_ms"


def measure_kills(kills: int, place: Workplace) -> Run:
    """Kill an actor in its turns so often, in stores below the workplace."""
    store, plain = place.directory / "killed", place.directory / "plain"
    plain.mkdir()
    fill_database(plain / "events.sqlite", _DATABASE_BYTES, place.tell)
    with (
        AskedProcess(_be_host, str(store), str(place.directory / "notes")) as host,
        PlainProgram("sqlite", plain / "events.sqlite") as program,
    ):
        host.wait_ready()
        program.kill_and_begin_again()  # so that each finds what one that was killed has left
        subjects = {_OURS: partial(host.ask, "kill"), PLAIN_SQLITE: partial(_kill_plain, program)}
        ours, base = interleaved(kills, subjects, lambda line: place.tell(f"kills in turns: {line}")).values()
        left = host.ask("settle")
    return run_of_kills(ours, base, left)


def _kill_plain(program: PlainProgram) -> Figures:
    time.sleep(REST_SECONDS)
    return program.kill_and_begin_again()


def run_of_kills(ours: Sequence[Figures], base: Sequence[Figures], left: Figures) -> Run:
    """Make a run of the kills, in rounds of neighbours; its percentiles are of all of them.

    p99 has no rounds, so no bounds either: the slowest kill of a few is another figure.
    """
    rounds = min(ROUNDS, len(ours))
    blocks = [[_middle(each) for each in in_blocks(kills, rounds)] for kills in (ours, base)]
    params = {"kills": len(ours), "loop": "trio", "against": PLAIN_SQLITE, "survives": POWER_LOSS}
    run = run_of(NAME, params, *blocks, compared="p50_ms")
    return replace(run, figures=medians([_figures(ours) | left]), base=medians([_figures(base)]))


def _figures(kills: Sequence[Figures]) -> Figures:
    middle = _middle(kills)
    return {"p50_ms": middle["p50_ms"], "p99_ms": percentile([each[_TOTAL] for each in kills], 99), **middle}


def _middle(kills: Sequence[Figures]) -> Figures:
    parts = {name: statistics.median(each[name] for each in kills) for name in kills[0] if name != _TOTAL}
    return {"p50_ms": percentile([each[_TOTAL] for each in kills], 50), **parts}


# -- in the process that has the supervisor


def _be_host(starter: Connection, store: str, notes: str) -> None:
    anyio.run(_host, starter, store, notes, backend="trio")


async def _host(starter: Connection, store: str, notes: str) -> None:
    async with open_runtime(store) as runtime:
        supervisor = await runtime.supervise(ChildSpec("agent", Agent, (store, notes), process=True), policy=_OFTEN)
        killer = _Killer(supervisor.ref("agent"))
        await killer.begin_turn()

        async def settle() -> Figures:
            (child,) = supervisor.children()
            await supervisor.stop()
            return {"restarts": child.restarts, **await _left_in(runtime, Path(notes))}

        await answer_all(starter, {"kill": killer.kill, "settle": settle})


class _Killer:
    """Kills the actor in its turns, at moments from a seed."""

    def __init__(self, agent: ActorRef) -> None:
        self._agent = agent
        self._random = Random(SEED)
        self._turn = 0
        self._pid = 0

    async def begin_turn(self) -> Mapping[str, Any]:
        """Have whoever is the actor now begin a turn; give the moments that it tells."""
        self._turn += 1
        told: Mapping[str, Any] = await self._agent.ask("begin_turn", self._turn, timeout=RESTART_SECONDS_MAX)
        self._pid = told["pid"]
        return told

    async def kill(self) -> Figures:
        """Let it go on with its turn for a moment, kill it, and give what it took until the next one had begun one."""
        await self._agent.tell("go_on")
        await anyio.sleep(self._random.uniform(0, TURN_SECONDS_MAX))
        died = time.monotonic()
        os.kill(self._pid, signal.SIGKILL)
        told = await self.begin_turn()
        went_on = time.monotonic()
        parts = {
            "respawn_ms": told["began"] - died,
            "open_ms": told["opened"] - told["began"],
            "append_ms": told["appended"] - told["opened"],
            _TOTAL: went_on - died,
        }
        return {name: seconds * 1000 for name, seconds in parts.items()}


# -- what is left


async def _left_in(runtime: Runtime, notes: Path) -> Figures:
    events = [(event.type, event.data) async for event in runtime.events(SESSION)]
    lines = (await anyio.Path(notes).read_text()).splitlines()
    return left_of_turns(events, [(int(turn), int(number)) for turn, number in map(str.split, lines)])


def left_of_turns(events: Iterable[tuple[str, Mapping[str, Any]]], durable: Sequence[tuple[int, int]]) -> Figures:
    """Hold a session's events, by type and data, against those known as durable, by their turn and number there."""
    entries: Counter[tuple[int, int]] = Counter()
    is_open, left_open = False, 0
    for kind, data in events:
        if kind == TURN_START:
            left_open += is_open
            is_open = True
        elif kind == TURN_END:
            is_open = False
        elif kind == ENTRY:
            entries[data["turn"], data["number"]] += 1
    lost = sum(entries[each] != 1 for each in durable)
    return {"durable_events": len(durable), "lost_events": lost, "open_turns": left_open + is_open}
