"""What is going to happen in a round of chaos: who works how, and what is done to whom when. All of it from one seed.

The same seed gives the same plan, on any machine. What somebody doesn't want, or a machine can't do, is taken out of it
afterwards (`narrowed`), so that all the rest stays as it was; and a plan is read back from its plain values as it was
written (`as_map`, `from_map`), so that a shortened one can be kept and played again.

A round is a row of *lives* of one store. In a life hosts run, each with some agents and followers, and strikes and
faults come at their moments; at its end everything is closed in order, killed, or loses its power. Between two lives
the index may be deleted or damaged. Behind the last one the whole is judged, and after it damaged copies of the store.

Pure: knows no process, no file and no clock. Times are milliseconds from the beginning of a life.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, get_args

from turnkeeper.actors.failpoints import POINTS

Role = Literal["host", "node", "writer", "spawner", "shim", "worker"]
ROLES: tuple[Role, ...] = get_args(Role)

Fault = Literal[
    "stop",
    "eio",
    "enospc",
    "slow",
    "short",
    "socket",
    "clock",
    "power",
    "index-deleted",
    "index-damaged",
    "tail",
    "flip",
]
"""stop: SIGSTOP, and SIGCONT later. eio, enospc, slow, short: what a disk answers to the writer. socket: a socket is
removed. clock: it is set back. power: it is cut. tail, flip: of a copy the end is cut off, bytes are flipped.
"""
FAULTS: tuple[Fault, ...] = get_args(Fault)

Loop = Literal["trio", "asyncio"]
Habit = Literal["blobs", "tokens", "tools", "sends", "accepts", "forks", "deletes", "rewinds", "tasks"]
HABITS: tuple[Habit, ...] = get_args(Habit)

Ending = Literal["in order", "killed", "power cut"]
Index = Literal["kept", "index-deleted", "index-damaged"]
Cut = Literal["at any moment", "behind a write", "behind a successor's answers"]
"""When the power is cut: behind a write that isn't synced yet; when a writer died there, and its successor has answered
what was sent again.
"""

NOT_WANTED = "not wanted"
"""Why something is left out of a plan that the machine could do."""

LIFE_MS = (2500, 4500)
"""How long a life is, beside its start and its end."""

LATEST_SHARE = 0.85
"""No strike comes later in a life than this share of it: what follows it is to be seen."""


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """An agent, which owns one session: it takes a step every `pace_ms`, drawn by its own seed from its habits."""

    name: str
    seed: int
    pace_ms: int
    habits: tuple[Habit, ...]
    in_worker: bool

    def as_map(self) -> dict[str, Any]:
        """Give it as plain values."""
        plain: dict[str, Any] = _as_plain(dataclasses.asdict(self))
        return plain


@dataclass(frozen=True, slots=True)
class FollowerPlan:
    """Somebody who follows everything from the first event on, and takes `pace_ms` for each event that it is given."""

    name: str
    pace_ms: int


@dataclass(frozen=True, slots=True)
class HostPlan:
    """A program with its agents and followers, on trio or on asyncio."""

    name: str
    loop: Loop
    agents: tuple[AgentPlan, ...]
    followers: tuple[FollowerPlan, ...]

    def as_map(self) -> dict[str, Any]:
        """Give it as plain values."""
        plain: dict[str, Any] = _as_plain(dataclasses.asdict(self))
        return plain


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL for one process or more, one right behind the other.

    Of hosts, shims and workers only some are hit, drawn by `draw`. With a `point`, the one process of `roles` kills
    itself when it passes that place in its program for the next time.
    """

    at_ms: int
    roles: tuple[Role, ...]
    point: str | None
    draw: int


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault, for `for_ms`. `target` is whom it hits, `number` is drawn, and what it counts the fault knows.

    Who is to be stopped at a `point` stops when it passes that place in its program for the next time. With `takeover`
    somebody else is to do his work meanwhile: a stopped host's sessions are taken over, a stopped writer's node is
    killed.
    """

    at_ms: int
    kind: Fault
    target: str
    for_ms: int
    number: int
    point: str | None
    takeover: bool


@dataclass(frozen=True, slots=True)
class Life:
    """What happens from an opening of the store until all are gone; `index` is what becomes of the index then.

    `cut` says at which moment the power is cut, if that is how it ends.
    """

    length_ms: int
    kills: tuple[Kill, ...]
    disturbances: tuple[Disturbance, ...]
    ending: Ending
    cut: Cut
    index: Index


@dataclass(frozen=True, slots=True)
class Copying:
    """A copy of the store in which bytes are flipped (`flip`), or whose journal's end is cut off (`tail`)."""

    kind: Fault
    number: int


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """All that happens in a round. `left_out` says which kinds of strikes and faults are not in it, and why."""

    seed: int
    hosts: tuple[HostPlan, ...]
    lives: tuple[Life, ...]
    copies: tuple[Copying, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def has_power_cut(self) -> bool:
        """Say whether it needs a disk of its own."""
        return any(life.ending == "power cut" for life in self.lives)

    @property
    def has_clock(self) -> bool:
        """Say whether it needs a clock of its own."""
        return any(each.kind == "clock" for life in self.lives for each in life.disturbances)

    def as_map(self) -> dict[str, Any]:
        """Give the plan as plain values."""
        plain: dict[str, Any] = _as_plain(dataclasses.asdict(self))
        return plain

    @classmethod
    def from_map(cls, values: Mapping[str, Any]) -> RoundPlan:
        """Read back what `as_map` gave, also after a journey through JSON.

        Raises TypeError, ValueError, AttributeError for what is no plan.
        """
        plan: RoundPlan = _from_plain(cls, values)
        return plan


def make_plan(seed: int) -> RoundPlan:
    """Plan the round of this seed, with everything that there is."""
    load, chance = Random(f"{seed} load"), Random(f"{seed} strikes")
    lives = tuple(_draw_life(chance) for _ in range(load.choice((1, 2, 2))))
    copies = [Copying(kind, chance.randrange(1 << 30)) for kind in ("tail", "flip", "flip") if chance.random() < 0.4]
    return RoundPlan(seed, tuple(_draw_hosts(load)), lives, tuple(copies))


def narrowed(
    plan: RoundPlan, *, kills: Collection[str], faults: Collection[str], impossible: Mapping[str, str]
) -> RoundPlan:
    """Take out of a plan what isn't among the kills and faults that are wanted, or is impossible here, by its reason.

    Whatever else the plan has stays as it is. A life whose end would be a power cut ends by kills instead, and in order
    where nobody may be killed.
    """
    out: dict[str, str] = dict(impossible)
    for name in (*ROLES, *FAULTS):
        if name not in (*kills, *faults):
            out[name] = NOT_WANTED
    lives = tuple(_narrowed_life(life, out) for life in plan.lives)
    copies = tuple(each for each in plan.copies if each.kind not in out)
    said = tuple((name, out[name]) for name in (*ROLES, *FAULTS) if name in out)
    return dataclasses.replace(plan, lives=lives, copies=copies, left_out=said)


def _narrowed_life(life: Life, out: Collection[str]) -> Life:
    kills = []
    for kill in life.kills:
        roles = tuple(role for role in kill.roles if role not in out)
        if roles:
            kills.append(dataclasses.replace(kill, roles=roles))
    ending = life.ending
    if ending == "power cut" and "power" in out:
        ending = "killed"
    if ending == "killed" and any(role in out for role in ("host", "node", "writer")):
        ending = "in order"
    return dataclasses.replace(
        life,
        kills=tuple(kills),
        disturbances=tuple(each for each in life.disturbances if each.kind not in out),
        ending=ending,
        index="kept" if life.index in out else life.index,
    )


# -- load


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
    habits = tuple(habit for habit in HABITS if load.random() < 0.55)
    seed, pace_ms = load.randrange(1 << 30), load.choice((1, 5, 20, 60))
    return AgentPlan(name, seed, pace_ms, habits, in_worker=load.random() < 0.3)


# -- strikes


def _draw_life(chance: Random) -> Life:
    length = chance.randint(*LIFE_MS)

    def moment() -> int:
        return chance.randrange(round(length * LATEST_SHARE))

    kills = [_draw_kill(chance, moment()) for _ in range(chance.choice((1, 2, 3, 4)))]
    disturbances = [_draw_disturbance(chance, moment()) for _ in range(chance.choice((0, 1, 1, 2)))]
    endings: tuple[Ending, ...] = ("in order", "killed", "power cut")
    (ending,) = chance.choices(endings, (5, 2, 3))
    cut = chance.choice(get_args(Cut))
    (index,) = chance.choices(get_args(Index), (6, 2, 2))
    return Life(
        length,
        tuple(sorted(kills, key=lambda kill: kill.at_ms)),
        tuple(sorted(disturbances, key=lambda each: each.at_ms)),
        ending,
        cut,
        index,
    )


def _draw_kill(chance: Random, at_ms: int) -> Kill:
    draw = chance.randrange(1 << 30)
    how = chance.random()
    if how < 0.35:
        role: Role = chance.choice(tuple(POINTS))  # type: ignore[arg-type]
        return Kill(at_ms, (role,), chance.choice(POINTS[role]), draw)
    if how < 0.75:
        return Kill(at_ms, (chance.choice(ROLES),), None, draw)
    if how < 0.9:
        return Kill(at_ms, tuple(role for role in ROLES if chance.random() < 0.5) or ("node", "writer"), None, draw)
    return Kill(at_ms, ROLES, None, draw)


_STOPPED = ("writer", "writer", "node", "host", "host")
_STOP_POINTS: Mapping[str, tuple[str, ...]] = {
    "writer": ("writer-took-requests", "writer-writes", "writer-wrote", "writer-synced", "writer-indexes"),
    "node": POINTS["node"],
}
"""Where a stop hurts: in the middle of a commit, which is gone on with when somebody else has taken over."""

_TIMED: tuple[Fault, ...] = ("stop", "eio", "enospc", "slow", "short", "socket", "clock")
_WEIGHTS = (8, 3, 3, 3, 2, 3, 2)


def _draw_disturbance(chance: Random, at_ms: int) -> Disturbance:
    (kind,) = chance.choices(_TIMED, _WEIGHTS)
    stopped, socket = chance.choice(_STOPPED), chance.choice(("node.sock", "writer.sock"))
    target = {"stop": stopped, "socket": socket}.get(kind, "writer")
    for_ms, number, takeover = chance.randint(200, 1500), chance.randrange(1 << 30), chance.random() < 0.7
    points = _STOP_POINTS.get(target, ()) if kind == "stop" and chance.random() < 0.75 else ()
    point = chance.choice(points) if points else None
    return Disturbance(at_ms, kind, target, for_ms, number, point, takeover)


# -- plain values


def agent_from_map(values: Mapping[str, Any]) -> AgentPlan:
    """Read back an agent's plan."""
    agent: AgentPlan = _from_plain(AgentPlan, values)
    return agent


def host_from_map(values: Mapping[str, Any]) -> HostPlan:
    """Read back a host's plan."""
    host: HostPlan = _from_plain(HostPlan, values)
    return host


def _as_plain(value: Any) -> Any:
    """Make lists of tuples, as JSON will."""
    if isinstance(value, dict):
        return {name: _as_plain(each) for name, each in value.items()}
    return [_as_plain(each) for each in value] if isinstance(value, tuple | list) else value


def _from_plain(kind: Any, value: Any) -> Any:
    """Read a value of the kind that an annotation names: a dataclass, a tuple, or what it is already.

    Raises TypeError, ValueError, AttributeError for what can't be one.
    """
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _from_plain(hints.get(name, object), each) for name, each in value.items()})  # type: ignore[operator]
    if typing.get_origin(kind) is tuple:
        first, *_ = get_args(kind)
        return tuple(_from_plain(first, each) for each in value)
    if typing.get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(f"{value!r} is none of {', '.join(get_args(kind))}")
    elif not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {getattr(kind, '__name__', kind)}")
    return value
