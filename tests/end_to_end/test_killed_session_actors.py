"""End to end: a session actor in a worker process is killed in its turns, again and again, and its session goes on.

Each time its supervisor starts it again, it opens its session, the turn is closed as interrupted, and nothing that was
durable is lost, repeated or out of order.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper import ActorRef, ActorUnknown, ChildSpec, Event, RestartPolicy, open_runtime

from ..diarist import Diarist
from ..served import SECONDS_MAX, wait_unserved

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("import_path")]


OFTEN = RestartPolicy(intensity=1000, period_seconds=60.0, backoff_first=0.0, backoff_max=0.0)
"""Somebody kills it all the time, and that is no reason to give up, or to wait."""

KEY = "diary"
TURN_SECONDS_MAX = 1.5
"""How long a turn goes on until its kill. One that comes sooner than the next spare worker finds none."""

RESTART_SECONDS_MAX = 0.3
"""From the kill to the first answer of the next incarnation, which has opened the session; the median."""


@dataclass
class Killer:
    """Kills the actor in its turns, at moments from a seed, and keeps what it saw."""

    diarist: ActorRef
    notes: Path
    chance: random.Random
    turn_seconds_max: float
    seconds: list[float] = field(default_factory=list)

    async def kill_in_turn(self, turn: int) -> None:
        """Have it begin a turn, kill it when an event of that is durable, and see that the next one has opened."""
        pid = (await self.diarist.ask("state"))["pid"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write, turn)
            while self._noted(turn) == 0:  # noqa: ASYNC110 - only the file tells
                await anyio.sleep(0.001)
            await anyio.sleep(self.chance.uniform(0, self.turn_seconds_max))
            begun = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            state = await self.diarist.ask("state", timeout=SECONDS_MAX)
            self.seconds.append(time.perf_counter() - begun)
        assert state["pid"] != pid
        assert state["interrupted"] == turn

    async def _write(self, turn: int) -> None:
        with pytest.raises(ActorUnknown, match="was killed by SIGKILL"):
            await self.diarist.ask("write", turn)

    def _noted(self, turn: int) -> int:
        return len(noted(self.notes).get(turn, []))


def noted(notes: Path) -> dict[int, list[int]]:
    """Give the numbers that are noted as durable, by their turns."""
    found: dict[int, list[int]] = {}
    if notes.exists():
        for line in notes.read_text().splitlines():
            turn, number = line.split()
            found.setdefault(int(turn), []).append(int(number))
    return found


def check_diary(events: list[Event], durable: dict[int, list[int]], kills: int) -> None:
    """The log is one turn after another, each closed as interrupted and with at least what was noted of it."""
    assert [event.seq for event in events] == list(range(len(events)))
    turns: dict[int, list[int]] = {}
    open_turn = 0
    for event in events:
        data: dict[str, Any] = event.data
        match event.type:
            case "turn/start":
                assert open_turn == 0
                open_turn = data["turn"]
                turns[open_turn] = []
            case "diary/entry":
                assert data["turn"] == open_turn
                turns[open_turn].append(data["number"])
            case "turn/end":
                assert (data["turn"], data["reason"]) == (open_turn, "interrupted")
                open_turn = 0
    assert open_turn == 0
    assert list(turns) == list(range(1, kills + 1))
    for turn, numbers in turns.items():
        assert numbers == list(range(len(numbers)))
        assert durable[turn] == numbers[: len(durable[turn])]


async def kill_often(folder: Path, kills: int, *, seed: int, turn_seconds_max: float) -> list[float]:
    """Have the actor under a supervisor killed so often; check its session, and give how long each return took."""
    store, notes = folder / "store", folder / "notes"
    async with open_runtime(store) as runtime:
        supervisor = await runtime.supervise(
            ChildSpec("diarist", Diarist, (str(store), KEY, str(notes)), process=True), policy=OFTEN
        )
        killer = Killer(supervisor.ref("diarist"), notes, random.Random(seed), turn_seconds_max)
        for turn in range(1, kills + 1):
            await killer.kill_in_turn(turn)
        (child,) = supervisor.children()
        assert child.restarts == kills
        events = [event async for event in runtime.events(KEY)]
    check_diary(events, noted(notes), kills)
    wait_unserved(store, SECONDS_MAX)
    return killer.seconds


async def test_a_session_actor_goes_on_after_each_kill(tmp_path: Path) -> None:
    """It is started again, opens its session, and tells which turn was interrupted; what was durable is there."""
    with anyio.fail_after(SECONDS_MAX):
        assert len(await kill_often(tmp_path, 5, seed=1, turn_seconds_max=0.01)) == 5


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_session_actor_that_is_killed_a_hundred_times_is_back_soon(tmp_path: Path) -> None:
    """Nothing is lost, and half of the times it answers again, with its session open, within 300 ms of the kill."""
    seconds = await kill_often(tmp_path, 100, seed=2, turn_seconds_max=TURN_SECONDS_MAX)
    median = statistics.median(seconds)
    print(f"back after {1000 * median:.0f} ms, at most {1000 * max(seconds):.0f}")  # noqa: T201
    assert median <= RESTART_SECONDS_MAX
