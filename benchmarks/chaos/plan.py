"""What is going to happen in a round of chaos: who works how, and what is done to whom when.

All of it follows from one seed (drawing.py). What somebody doesn't want, or a machine can't do, is taken out of a plan
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
from typing import Any, Literal, get_args

from turnkeeper.storage.store import BackendName

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
Cut = Literal["at any moment", "behind a write", "behind a successor's answers", "behind a roll"]
"""When the power is cut: behind a write that isn't synced yet; when a writer died there, and its successor has answered
what was sent again; when a new segment has its name, and its directory isn't synced yet.
"""

NOT_WANTED = "not wanted"
"""Why something is left out of a plan that the machine could do."""


@dataclass(frozen=True, slots=True)
class StorePlan:
    """What keeps the round's store.

    `part_bytes` is how long a segment becomes, or how much SQLite's log holds before it is moved into the database;
    None: as it is everywhere else, which is more than a round writes.
    """

    backend: BackendName = "journal"
    part_bytes: int | None = None

    @property
    def kind(self) -> str:
        """Say what kind of store it is, for people."""
        if self.backend == "sqlite":
            return "SQLite"
        return "journal" if self.part_bytes is None else "journal of small segments"

    @property
    def url(self) -> str:
        """Give what stands before the path of such a store."""
        return "" if self.backend == "journal" else f"{self.backend}:"


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

    Who is to be stopped at a `point` stops when it passes that place in its program so many times from then on
    (`passes`). With `takeover` somebody else is to do his work meanwhile: a stopped host's sessions are taken over, a
    stopped writer's node is killed.
    """

    at_ms: int
    kind: Fault
    target: str
    for_ms: int
    number: int
    point: str | None
    takeover: bool
    passes: int = 1


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
    store: StorePlan = StorePlan()
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


def narrowed(
    plan: RoundPlan, *, kills: Collection[str], faults: Collection[str], impossible: Mapping[str, str]
) -> RoundPlan:
    """Take out of a plan what isn't among the kills and faults that are wanted, or is impossible here, by its reason.

    Whatever else the plan has stays as it is. A life whose end would be a power cut ends by kills instead, and in order
    where nobody may be killed.
    """
    wanted = {*kills, *faults}
    not_wanted: dict[str, str] = {name: NOT_WANTED for name in (*ROLES, *FAULTS) if name not in wanted}
    return without(plan, {**dict(plan.left_out), **impossible, **not_wanted})


def without(plan: RoundPlan, out: Mapping[str, str]) -> RoundPlan:
    """Take out of a plan the kinds of kills and faults that are named, each with why, and say so in it."""
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
