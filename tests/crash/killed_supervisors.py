"""Rounds of tasks under whose feet host, node, writer, spawner and shims are killed; and what is left is judged.

A round starts hosts of its own, which start tasks of mixed kinds, and kills a random set of processes at a random
moment; then the store is opened again (see `reopened_store`). All that is random follows from the round's seed, but for
what the system's scheduler makes of it.

In a storm those who serve the store are killed again and again, before they have taken up what the ones before left.

`python -m tests.crash.killed_supervisors [--shims | --storm | --sqlite] SEED…` runs these rounds, and says what was
wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from turnkeeper.benchmarks.chaos.store_processes import Process, marked_processes, processes_by_role
from turnkeeper.storage.store import BackendName

from ..stores import make_store
from .judging_tasks import Facts
from .mixed_tasks import mixed_tasks
from .reopened_store import judge_reopened
from .started_hosts import SECONDS_MAX, Host

TASKS: Final = 20

QUIET_SECONDS: Final = 3.0
"""When the hosts have said nothing for so long, no more lines are waited for."""

STORM_STRIKES: Final = 10
STORM_SECONDS: Final = 0.5
"""How often they are killed in a storm, and the longest time between two strikes."""

SERVANTS: Final = ("node", "writer", "spawner")
ROLES: Final = ("host", *SERVANTS)


Kind = Literal["strike", "shims", "storm", "sqlite"]
"""What a round is: some are killed once or twice; shims, too; those who serve the store again and again; as the first,
but SQLite keeps the store."""


@dataclass(frozen=True, slots=True)
class Strike:
    """Whom to kill, and when: when the hosts have said so many lines, and so many seconds after that."""

    roles: tuple[str, ...]
    lines: int
    seconds: float

    def __str__(self) -> str:
        return f"{'+'.join(self.roles)} at line {self.lines} + {self.seconds} s"


@dataclass(slots=True)
class Result:
    """What a round did, and what was wrong."""

    seed: int
    strikes: list[Strike]
    ends: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        strikes = ", ".join(map(str, self.strikes))
        return "\n  ".join([f"seed {self.seed}: {strikes}: {dict(sorted(self.ends.items()))}", *self.violations])


class Round:
    """One round below the directory `place`."""

    def __init__(self, place: Path, seed: int, kind: Kind = "strike") -> None:
        rng = random.Random(seed)
        self.store = place / "store"
        self.kept_by: BackendName = "sqlite" if kind == "sqlite" else "journal"
        if kind == "sqlite":
            make_store(self.store, "sqlite")
        notes = place / "notes"
        notes.mkdir()
        planned = mixed_tasks(TASKS, notes, rng)
        self.facts = Facts({task.label: task for task in planned}, notes)
        count = rng.choice((1, 2))
        self.loop = rng.choice(("trio", "asyncio"))
        self.plans = [
            {
                "session": f"session of host {number}",
                "accepts": rng.random() < 0.6,
                "pause": rng.choice((0.0, 0.0, 0.02, 0.1)),
                "tasks": [task.as_map() for task in planned[number::count]],
            }
            for number in range(count)
        ]
        self.result = Result(seed, _storm(rng) if kind == "storm" else _strikes(rng, shims=kind == "shims"))
        self.hosts: list[Host] = []
        self._lines = 0

    def randomness(self, purpose: object) -> random.Random:
        """Give what is random for one purpose, whatever else was."""
        return random.Random(f"{self.result.seed} {purpose}")

    def run(self) -> Result:
        """Play it, and judge it."""
        log = self.store.with_name("host.log")
        try:
            for number, plan in enumerate(self.plans):
                self.hosts.append(Host(self.store, plan, self.loop, log.with_name(f"host-{number}.log")))
            for number, strike in enumerate(self.result.strikes):
                self._hear(strike.lines, strike.seconds)
                self._strike(strike, self.randomness(number))
            violations = judge_reopened(self)
            self.result.violations.extend(violations)
        finally:
            for host in self.hosts:
                host.kill()
                host.close()
            self._clean_up()
        return self.result

    def _clean_up(self) -> None:
        """Kill what a round has left that went wrong."""
        with contextlib.suppress(FileNotFoundError):
            kill_all([pid for role in processes_by_role(self.store).values() for pid in role])
            kill_all(list(marked_processes(os.listdir(self.store / "tasks"))))

    # -- Hearing

    def _hear(self, lines: int, seconds: float) -> None:
        """Hear the hosts until they have said so many lines in all, and for so many seconds more."""
        while self._lines < lines and self._hear_some(QUIET_SECONDS):
            pass
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not self._hear_some(left):
                time.sleep(max(0.0, deadline - time.monotonic()))

    def hear_to_the_end(self) -> None:
        """Hear the hosts until all have ended."""
        deadline = time.monotonic() + SECONDS_MAX
        while any(not host.has_ended for host in self.hosts) and time.monotonic() < deadline:
            self._hear_some(1.0)

    def _hear_some(self, seconds: float) -> bool:
        """Hear what the hosts say next; False if that is nothing, for so long."""
        found, _, _ = select.select([host for host in self.hosts if not host.has_ended], [], [], seconds)
        for host in found:
            for message in host.hear():
                self._lines += 1
                host.take(message)
                self._note(message)
        return bool(found)

    def _note(self, message: dict[str, object]) -> None:
        match message:
            case {"started": str(label), "task": str(task)}:
                self.facts.tasks[label] = task
            case {"ended": str(label), "end": dict(end)}:
                self.facts.told[label] = end

    # -- Killing

    def _strike(self, strike: Strike, rng: random.Random) -> None:
        """Kill all of them, one right after the other; of hosts and shims only some."""
        found = processes_by_role(self.store)
        hosts = [host for host in self.hosts if rng.random() < 0.7] or self.hosts[:1]
        found["host"] = [host.process.pid for host in hosts]
        if "host" in strike.roles:
            for host in hosts:
                host.is_killed = True
                self.facts.may_lose_owner |= host.labels
        found["shim"] = [pid for pid in sorted(found["shim"]) if rng.random() < 0.5]
        victims = [pid for role in strike.roles for pid in found[role]]
        rng.shuffle(victims)
        kill_all(victims)
        while any(host.is_killed and not host.has_ended for host in self.hosts):
            self._hear_some(SECONDS_MAX)
        # Whoever was taken for a spawner may have been a shim that had just begun.
        self.facts.lost |= {path.name for path in self.store.glob("tasks/task-*") if is_lost(path, victims)}

    def strike_again(self) -> None:
        """Kill some of those who serve the store, at a moment of its second life, in some rounds."""
        rng = self.randomness("again")
        roles = [role for role in SERVANTS if rng.random() < 0.4]
        if roles and rng.random() < 0.4:
            strike = Strike(tuple(roles), 0, round(rng.random() ** 2, 3))
            self.result.strikes.append(strike)
            time.sleep(strike.seconds)
            self._strike(strike, rng)


def _strikes(rng: random.Random, *, shims: bool) -> list[Strike]:
    strikes = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        roles = [role for role in ROLES if rng.random() < 0.5] or [rng.choice(ROLES)]
        lines, seconds = rng.choice(((0, rng.random() * 2.5), (rng.randrange(1, 41), rng.random() ** 2 * 0.1)))
        strikes.append(Strike((*roles, *(["shim"] if shims else [])), lines, round(seconds, 4)))
    return sorted(strikes, key=lambda strike: strike.lines)


def _storm(rng: random.Random) -> list[Strike]:
    strikes = []
    for _ in range(STORM_STRIKES):
        roles = [role for role in SERVANTS if rng.random() < 0.5] or [rng.choice(SERVANTS)]
        strikes.append(Strike(tuple(roles), 1, round(rng.random() * STORM_SECONDS, 4)))
    return strikes


def kill_all(pids: list[int]) -> None:
    """Kill processes at once, and wait until all are dead; those that are dead already are no error."""
    held = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            held.append(Process(pid))
    for process in held:
        process.kill()
    for process in held:
        process.wait_dead()
        process.close()


def is_lost(directory: Path, killed: list[int]) -> bool:
    """Say whether one of those killed was the task's shim and had begun with it, and nothing tells how it ended."""
    try:
        if json.loads((directory / "run.json").read_bytes())["pid"] not in killed:
            return False
    except (OSError, ValueError):
        return False
    for name in ("exit.json", "exit.json.tmp", "leader.json", "leader.json.tmp"):
        with contextlib.suppress(OSError, ValueError):
            if "lost" not in json.loads((directory / name).read_bytes()):
                return False
    return True


def play(seed: int, kind: Kind = "strike", *, parent: Path | None = None) -> Result:
    """Play a round in a directory of its own, which is removed."""
    with tempfile.TemporaryDirectory(dir=parent, prefix="turnkeeper-round-") as place:
        return Round(Path(place), seed, kind).run()


def main(arguments: list[str]) -> Iterator[Result]:
    """Play the rounds of these seeds."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else None
    kinds = [kind for kind in get_args(Kind) if f"--{kind}" in arguments]
    for seed in arguments:
        if not seed.startswith("--"):
            yield play(int(seed), *kinds, parent=parent)


if __name__ == "__main__":
    violated = 0
    for result in main(sys.argv[1:]):
        violated += bool(result.violations)
        print(result, flush=True)  # noqa: T201
    sys.exit(violated > 0)
