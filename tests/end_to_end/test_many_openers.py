"""End to end: fifty processes open one store at once, while its node and its writer are killed at random."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.storage.lock import store_is_held
from turnkeeper.storage.reading import open_reader

from ..serving import kill_holder
from ..stores import event

ROOT = Path(__file__).parents[2]
PROCESSES = 50
SECONDS = 1.5
"""For so long each process appends in a round."""

KILLS = 6
IN_SECONDS = 10.0
GONE_SECONDS = 0.5


class Openers:
    """The fifty processes."""

    def __init__(self, path: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / '.import'}:{ROOT}"}
        command = [sys.executable, "-m", "tests.end_to_end.opener", str(path)]
        self._processes = [
            subprocess.Popen(
                [*command, f"opener-{number}", ("asyncio", "trio")[number % 2]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env=environment,
                text=True,
            )
            for number in range(PROCESSES)
        ]

    def tell(self, command: str) -> list[dict[str, Any]]:
        """Tell all of them at once what to do, and return what each answers."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(command + "\n")
            process.stdin.flush()
        return [self._answer(process) for process in self._processes]

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"an opener ended with exit code {process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """End them all."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            with process:
                pass


@contextlib.contextmanager
def killing(path: Path, seed: int) -> Iterator[list[str]]:
    """Kill node or writer, whichever chance says, every 50 to 400 ms, KILLS times at most; the list says whom."""
    chance = random.Random(seed)
    killed: list[str] = []
    over = threading.Event()

    def kill() -> None:
        while len(killed) < KILLS and not over.wait(chance.uniform(0.05, 0.4)):
            role = chance.choice(["node", "writer", "writer"])
            if kill_holder(path, role):
                killed.append(role)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield killed
    finally:
        over.set()
        killer.join()


def check_events(path: Path, acknowledged: dict[str, int]) -> None:
    """Hold that what was acknowledged is there, once and in order, and nothing else is."""
    with contextlib.closing(open_reader(str(path))) as reader:
        assert {row.id: row.head for row in reader.rows(len(acknowledged) + 1)} == acknowledged
        for stream, events in acknowledged.items():
            page = reader.read(stream, limit=events + 1)
            assert [stored.line + b"\n" for stored in page.events] == [event(stream, seq) for seq in range(events)]
            assert not page.missing


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_everybody_gets_in_and_nothing_is_lost_or_repeated(tmp_path: Path, rounds: int) -> None:
    """Each joining takes at most 10 s, there is one node, every event is acknowledged and stored once, none is left."""
    path = tmp_path / "store"
    openers = Openers(path)
    killed: list[str] = []
    acknowledged: dict[str, int] = {}
    try:
        for number in range(rounds):
            with killing(path, seed=number) as killed_now:
                answers = openers.tell(f"open {number} {SECONDS}")
            killed += killed_now
            assert max(seconds for answer in answers for seconds in answer["joined"]) < IN_SECONDS
            acknowledged |= {f"opener-{n}-{number}": answer["acknowledged"] for n, answer in enumerate(answers)}
            assert len({answer["node"] for answer in openers.tell("node")}) == 1
            openers.tell("leave")
            gone_by = time.monotonic() + GONE_SECONDS
            while store_is_held(str(path)):
                assert time.monotonic() < gone_by, "the last client has left, and somebody still holds the store"
                time.sleep(0.01)
    finally:
        openers.end()
    check_events(path, acknowledged)
    assert {"node", "writer"} <= set(killed)
