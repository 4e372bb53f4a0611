"""Draws the plan of a round from its seed, and nothing else: the same seed gives the same plan, on any machine.

Store, load and strikes are drawn each by itself. Whatever is planned makes sense for the store that is drawn: a writer
is struck at failpoints that it passes, and what only a journal can suffer is left out where SQLite keeps the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import get_args

from turnkeeper.actors.failpoints import OF_ANY_WRITER, OF_ROLLING, OF_SQLITE, POINTS, WRITER
from turnkeeper.storage.limits import KIB
from turnkeeper.storage.store import BackendName

from .plan import (
    HABITS,
    ROLES,
    AgentPlan,
    Copying,
    Cut,
    Disturbance,
    Ending,
    Fault,
    FollowerPlan,
    HostPlan,
    Index,
    Kill,
    Life,
    Loop,
    Role,
    RoundPlan,
    StorePlan,
    without,
)

LIFE_MS = (2500, 4500)
"""How long a life is, beside its start and its end."""

LATEST_SHARE = 0.85
"""No strike comes later in a life than this share of it: what follows it is to be seen."""

PARTS_BYTES = (16 * KIB, 64 * KIB, 256 * KIB)
"""How small segments are, where they are: of what a round writes, a megabyte or so, that makes many or a few."""

JOURNAL_FAULTS: tuple[Fault, ...] = ("index-deleted", "index-damaged", "tail", "flip")
"""Faults that only a journal can have."""

NO_JOURNAL = "SQLite keeps this store, which has no journal and no index"
"""Why these are left out of a plan."""


_CUT_OF_EVERY_THIRD: Mapping[int, Cut] = {0: "behind a write", 1: "behind a successor's answers"}
"""How the last life of a round ends, by the remainder of its seed: so few rounds in a row have both of these cuts."""


def make_plan(seed: int) -> RoundPlan:
    """Plan the round of this seed, with everything that there is."""
    load, chance = Random(f"{seed} load"), Random(f"{seed} strikes")
    store = _draw_store(Random(f"{seed} store"))
    lives = tuple(_draw_life(chance, store) for _ in range(load.choice((1, 2, 2))))
    copies = [Copying(kind, chance.randrange(1 << 30)) for kind in ("tail", "flip", "flip") if chance.random() < 0.4]
    hosts, stops = tuple(_draw_hosts(load)), Random(f"{seed} stops")
    lives = tuple(_with_stops(life, stops, store, len(hosts)) for life in lives)
    if (cut := _CUT_OF_EVERY_THIRD.get(seed % 3)) is not None:
        lives = (*lives[:-1], replace(lives[-1], ending="power cut", cut=cut))
    plan = RoundPlan(seed, hosts, lives, tuple(copies), store)
    return plan if store.backend == "journal" else without(plan, dict.fromkeys(JOURNAL_FAULTS, NO_JOURNAL))


# -- store and load


def _draw_store(choice: Random) -> StorePlan:
    (backend,) = choice.choices(get_args(BackendName), (4, 1))
    return StorePlan(backend, choice.choice(PARTS_BYTES) if choice.random() < 0.6 else None)


def _draw_hosts(load: Random) -> list[HostPlan]:
    loops: list[Loop] = ["trio", "asyncio"]
    load.shuffle(loops)
    hosts = []
    for number in range(load.choice((1, 2, 2, 3))):
        agents = tuple(_draw_agent(load, f"agent-{number}-{each}") for each in range(load.choice((1, 2, 3, 4))))
        followers = tuple(
            FollowerPlan(f"follower-{number}-{each}", load.choice((0, 0, 2, 20)))
            for each in range(load.choice((0, 1, 1)))
        )
        hosts.append(HostPlan(f"host-{number}", loops[number % 2], agents, followers))
    return hosts


def _draw_agent(load: Random, name: str) -> AgentPlan:
    habits = tuple(habit for habit in HABITS if load.random() < (0.8 if habit == "tasks" else 0.55))
    seed, pace_ms = load.randrange(1 << 30), load.choice((1, 5, 20, 60))
    return AgentPlan(name, seed, pace_ms, habits, in_worker=load.random() < 0.3)


# -- strikes


def _writer_points(store: StorePlan) -> tuple[str, ...]:
    """Name the failpoints that a writer of such a store passes."""
    if store.backend == "sqlite":
        return (*OF_ANY_WRITER, *OF_SQLITE)
    return tuple(name for name in WRITER if name not in OF_SQLITE and (store.part_bytes or name not in OF_ROLLING))


def _draw_life(chance: Random, store: StorePlan) -> Life:
    length = chance.randint(*LIFE_MS)

    def moment() -> int:
        return chance.randrange(round(length * LATEST_SHARE))

    kills = [_draw_kill(chance, moment(), store) for _ in range(chance.choice((1, 2, 3, 4)))]
    disturbances = [_draw_disturbance(chance, moment(), store) for _ in range(chance.choice((0, 1, 1, 2)))]
    endings: tuple[Ending, ...] = ("in order", "killed", "power cut")
    (ending,) = chance.choices(endings, (5, 2, 3))
    rolls = store.backend == "journal" and store.part_bytes is not None
    cut = chance.choice([each for each in get_args(Cut) if rolls or each != "behind a roll"])
    (index,) = chance.choices(get_args(Index), (6, 2, 2))
    return Life(
        length,
        tuple(sorted(kills, key=lambda kill: kill.at_ms)),
        tuple(sorted(disturbances, key=lambda each: each.at_ms)),
        ending,
        cut,
        index,
    )


def _draw_kill(chance: Random, at_ms: int, store: StorePlan) -> Kill:
    draw = chance.randrange(1 << 30)
    how = chance.random()
    if how < 0.35:
        role: Role = chance.choice(tuple(POINTS))  # type: ignore[arg-type]
        points = _writer_points(store) if role == "writer" else POINTS[role]
        return Kill(at_ms, (role,), chance.choice(points), draw)
    if how < 0.75:
        return Kill(at_ms, (chance.choice(ROLES),), None, draw)
    if how < 0.9:
        return Kill(at_ms, tuple(role for role in ROLES if chance.random() < 0.5) or ("node", "writer"), None, draw)
    return Kill(at_ms, ROLES, None, draw)


_STOPPED = ("writer", "writer", "node", "host", "host")
_STOP_POINTS = (
    *("writer-took-requests", "writer-writes", "writer-wrote", "writer-synced", "writer-indexes"),
    *("writer-rolls", "writer-names-segment", "writer-named-segment", "writer-cuts-filling"),
    *("writer-transacts", "writer-transacted", "writer-moves-log"),
)
"""Where a stop hurts: in the middle of a commit or a roll, which is gone on with when somebody else has taken over."""

_TIMED: tuple[Fault, ...] = ("stop", "eio", "enospc", "slow", "short", "socket", "clock")
_WEIGHTS = (8, 3, 3, 3, 2, 3, 2)


def _stop_points(target: str, store: StorePlan) -> tuple[str, ...]:
    if target == "writer":
        return tuple(name for name in _writer_points(store) if name in _STOP_POINTS)
    return POINTS["node"] if target == "node" else ()


def _draw_disturbance(chance: Random, at_ms: int, store: StorePlan) -> Disturbance:
    (kind,) = chance.choices(_TIMED, _WEIGHTS)
    stopped, socket = chance.choice(_STOPPED), chance.choice(("node.sock", "writer.sock"))
    target = {"stop": stopped, "socket": socket}.get(kind, "writer")
    for_ms, number, takeover = chance.randint(200, 1500), chance.randrange(1 << 30), chance.random() < 0.7
    points = _stop_points(target, store) if kind == "stop" and chance.random() < 0.75 else ()
    point = chance.choice(points) if points else None
    return Disturbance(at_ms, kind, target, for_ms, number, point, takeover)


# -- stops where they hurt


_LOOKING_AT_TASK = "node-asks-for-lock-of-task"
_LOOKS_A_LIFE = 5
_PASSES_MAX = 4
_STOPS_SHARE = 0.7


def _with_stops(life: Life, chance: Random, store: StorePlan, hosts: int) -> Life:
    """Add stops in the middle of what must not be gone on with as if nothing had happened meanwhile.

    A node looks what has become of a task, which ends; or a writer is in a commit, and its successor makes others, for
    which it takes a node that isn't stopped. A host has events to store, and another one has its sessions.
    """
    targets = chance.choice((_LOOKS_A_LIFE * ("node",), ("writer",))) + (("host",) if hosts > 1 else ())
    latest = round(life.length_ms * _STOPS_SHARE)
    stops = [_draw_stop(chance, target, chance.randrange(latest), store) for target in targets]
    disturbances = sorted([*life.disturbances, *stops], key=lambda each: each.at_ms)
    return replace(life, disturbances=tuple(disturbances))


def _draw_stop(chance: Random, target: str, at_ms: int, store: StorePlan) -> Disturbance:
    points = (_LOOKING_AT_TASK,) if target == "node" else _stop_points(target, store)
    return Disturbance(
        at_ms,
        "stop",
        target,
        for_ms=chance.randint(*((200, 500) if target == "node" else (300, 1000))),
        number=chance.randrange(1 << 30),
        point=chance.choice(points) if points else None,
        takeover=target != "node",
        passes=chance.randint(1, _PASSES_MAX),
    )
