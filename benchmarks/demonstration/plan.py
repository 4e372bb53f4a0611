"""What is going to happen, all of it decided by a seed beforehand: which turn and task begins when, and what dies when.

The same seed, sessions, length and transcripts give the same plan. Times are milliseconds from the beginning of the
replay; a kill's moment is a time and not a step, so that it can fall anywhere into a commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, NamedTuple

from .planned_tasks import PlannedTask, draw_task

WORKERS_MAX = 8
"""Worker processes for the sessions of one column; more sessions share them."""

TURN_MS = 120
"""From one turn of a session to its next, on average, as long as each session has a worker of its own."""

TASK_SHARE = 0.3
"""Of the turns start a task."""

Victim = Literal["writer", "node", "spawner"]

_VICTIMS: tuple[tuple[Victim, float], ...] = (
    ("writer", 0.18),
    ("spawner", 0.30),
    ("node", 0.42),
    ("spawner", 0.56),
    ("writer", 0.68),
)
_SPREAD = 0.11


class PlannedTurn(NamedTuple):
    """A turn of a transcript that a session replays, and the task that it starts."""

    at_ms: int
    transcript: int
    turn: int
    task: PlannedTask | None


class PlannedKill(NamedTuple):
    """A kill: of one of the store's processes, and in the plain run of the process that writes this session's file."""

    at_ms: int
    victim: Victim
    session: int


class PlannedMischief(NamedTuple):
    """Something that happens to one session at some moment."""

    at_ms: int
    session: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All that happens. `second_owner`: somebody else opens a session that is open; `torn_write`: the process that
    writes a plain file dies between two writes of one line.
    """

    seed: int
    seconds: float
    turns: tuple[tuple[PlannedTurn, ...], ...]
    kills: tuple[PlannedKill, ...]
    second_owner: PlannedMischief
    torn_write: PlannedMischief | None

    @property
    def sessions(self) -> int:
        """How many sessions there are."""
        return len(self.turns)

    @property
    def workers(self) -> int:
        """How many worker processes they share."""
        return min(self.sessions, WORKERS_MAX)

    def as_map(self) -> dict[str, Any]:
        """Give the plan as plain values; a turn is [at_ms, transcript, turn, task]."""
        return {
            "seed": self.seed,
            "seconds": self.seconds,
            "turns": [[_turn_as_list(turn) for turn in turns] for turns in self.turns],
            "kills": [kill._asdict() for kill in self.kills],
            "second_owner": self.second_owner._asdict(),
            "torn_write": self.torn_write and self.torn_write._asdict(),
        }


def make_plan(seed: int, sessions: int, seconds: float, transcripts: Sequence[int], *, kill: bool) -> Plan:
    """Plan a replay. `transcripts` are the numbers of turns of each transcript, all above 0."""
    random = Random(seed)
    length = round(seconds * 1000)
    pause = TURN_MS * max(1.0, sessions / WORKERS_MAX)
    turns = [list(_turns(random, number, length, pause, transcripts)) for number in range(sessions)]
    kills = [
        PlannedKill(round(length * (share + random.random() * _SPREAD)), victim, random.randrange(sessions))
        for victim, share in _VICTIMS
    ]
    second_owner = PlannedMischief(round(length * random.uniform(0.30, 0.40)), random.randrange(sessions))
    torn_write = PlannedMischief(round(length * random.uniform(0.58, 0.68)), random.randrange(sessions))
    for at_ms in (0, *(each.at_ms for each in kills)):
        _see_task_start(random, turns, at_ms)
    planned = tuple(map(tuple, turns))
    return Plan(seed, seconds, planned, tuple(kills) if kill else (), second_owner, torn_write if kill else None)


def _turns(random: Random, session: int, length: int, pause: float, transcripts: Sequence[int]) -> list[PlannedTurn]:
    """Let a session walk through its transcript and those after it, again and again, until the time is over."""
    planned: list[PlannedTurn] = []
    transcript, turn = session % len(transcripts), 0
    at = random.uniform(0, pause)
    while at < length or not planned:
        task = draw_task(random) if random.random() < TASK_SHARE else None
        planned.append(PlannedTurn(int(at), transcript, turn, task))
        turn += 1
        if turn == transcripts[transcript]:
            transcript, turn = (transcript + 1) % len(transcripts), 0
        at += random.uniform(0.5, 1.5) * pause
    return planned


def _see_task_start(random: Random, turns: Sequence[list[PlannedTurn]], at_ms: int) -> None:
    """Have the first turn from a moment on start a task: there is a spawner to kill, and work for the one after it."""
    later = [(turn.at_ms, session, number) for session, each in enumerate(turns) for number, turn in enumerate(each)]
    _, session, number = min((each for each in later if each[0] >= at_ms), default=max(later))
    turn = turns[session][number]
    if turn.task is None:
        turns[session][number] = turn._replace(task=draw_task(random))


def _turn_as_list(turn: PlannedTurn) -> list[Any]:
    return [*turn[:3], None if turn.task is None else turn.task._asdict()]
