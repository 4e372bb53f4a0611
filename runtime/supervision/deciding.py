"""Decide what a supervisor does: OTP's rules as one pure function from a state and an event to a state and actions.

Time and chance come with the events, and the actions are somebody else's to carry out (supervisor.py), who reports how
each came out by another event. So all that can happen to a supervisor, in any order, can be tried without one.

Each child has a `status`, what it is now, and a `goal`, what is to become of it. An event changes these alone; the
actions follow from them in one place (`_advance`): what has to end is stopped, the last first and one after another;
then what has to run is started, the first first and one after another. Only under one_for_one, once all were up, no
child waits for another one's start.

A child that somebody killed may be judged by a policy of its own: that says nothing of what the child does, so it is
neither counted with its own failures nor delayed for them, nor they for it.

Invariants: a child is started only when it is down, and stopped only when it is not, so there never are two of one.
After `EndAll`, or a restart too many, nothing is started. `Finish` comes once, last, when every child is down.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from ..restart import Backoff, GiveUp, RestartPolicy, RestartWindow
from .child_spec import RestartKind, Strategy

Status: TypeAlias = Literal["down", "starting", "up", "stopping"]

Goal: TypeAlias = Literal["up", "again", "done", "down", "gone"]
"""To be up; to be stopped and started again; to rest, as it ended in order; to stay down; to be forgotten once down."""

Cause: TypeAlias = Literal["boot", "new", "request", "restart"]
"""Why it is started. If it fails the supervisor ends; the child is forgotten; it stays down; it counts as a death."""

Death: TypeAlias = Literal["own", "killed"]
"""What a child died of, for the policy: of itself, or of somebody who killed it."""

Phase: TypeAlias = Literal["starting", "running", "ending", "ended"]


@dataclass(frozen=True, slots=True)
class ChildState:
    """A child as the decisions know it. `due` is when it may be started, in seconds on the clock of the events.

    `backoffs` has those deaths that it died.
    """

    name: str
    restart: RestartKind
    status: Status = "down"
    goal: Goal = "up"
    cause: Cause = "boot"
    due: float = -math.inf
    backoffs: Mapping[Death, Backoff] = field(default_factory=dict)

    @property
    def has_to_end(self) -> bool:
        """Whether it has to be stopped."""
        return self.status in ("starting", "up") and self.goal != "up"

    @property
    def has_to_start(self) -> bool:
        """Whether it has to be started, now or when it is due."""
        return self.status == "down" and self.goal == "up"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a supervisor ends without being asked: the first start of a child failed, or it died too often."""

    child: str
    reason: str
    is_failed_start: bool


@dataclass(frozen=True, slots=True)
class SupervisorState:
    """A supervisor as the decisions know it; `verdict` is there if it gave up. `by_name` is in start order.

    Of `policies` the one for killed children may be missing: then they are judged as all others.
    """

    strategy: Strategy
    policies: Mapping[Death, RestartPolicy]
    by_name: Mapping[str, ChildState]
    phase: Phase = "starting"
    windows: Mapping[Death, RestartWindow] = field(default_factory=dict)
    verdict: Verdict | None = None

    def next_due(self, decided: float) -> float:
        """Say when to send a `Look` if nothing else happens: a child is due then; infinity if none will be.

        `decided` is the time of the last event: whoever was due by then and isn't started waits for another child.
        """
        dues = [child.due for child in self.children if child.has_to_start and child.due > decided]
        return min(dues, default=math.inf) if self.phase in ("starting", "running") else math.inf

    def child(self, name: str) -> ChildState | None:
        """Find a child."""
        return self.by_name.get(name)

    @property
    def children(self) -> Collection[ChildState]:
        """The children, in start order."""
        return self.by_name.values()


# -- Events. `now` is in seconds on a clock that never steps back, `chance` from 0 to below 1


@dataclass(frozen=True, slots=True)
class Look:
    """Nothing but the time: the first event, and whenever a child may be due."""

    now: float


@dataclass(frozen=True, slots=True)
class Ready:
    """A child that was to be started is up."""

    now: float
    name: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A child has ended, by itself or stopped; or could not be started. `how` is one line, as in "it failed: …".

    It was `killed` if somebody else did that, and not what it does.
    """

    now: float
    name: str
    how: str
    normal: bool = False
    chance: float = 0.0
    killed: bool = False


@dataclass(frozen=True, slots=True)
class Add:
    """Somebody wants a further child, which becomes the last one."""

    now: float
    name: str
    restart: RestartKind


@dataclass(frozen=True, slots=True)
class StopOne:
    """Somebody wants a child to be down, and to stay so; a temporary one, or any with `forget`, is then forgotten."""

    now: float
    name: str
    forget: bool = False


@dataclass(frozen=True, slots=True)
class RestartOne:
    """Somebody wants a child to be started, after stopping it if it is up. That counts for no intensity."""

    now: float
    name: str


@dataclass(frozen=True, slots=True)
class EndAll:
    """Somebody wants the supervisor to end."""

    now: float


Event: TypeAlias = Look | Ready | Ended | Add | StopOne | RestartOne | EndAll


# -- Actions


@dataclass(frozen=True, slots=True)
class Start:
    """Start the child, and report `Ready`, or `Ended` if that fails."""

    name: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the child, or its start, and report `Ended`; it may have ended by itself, and been reported, already."""

    name: str


@dataclass(frozen=True, slots=True)
class Finish:
    """All is over."""


Action: TypeAlias = Start | Stop | Finish


def begin(
    strategy: Strategy,
    policy: RestartPolicy,
    children: Iterable[tuple[str, RestartKind]],
    killed_policy: RestartPolicy | None = None,
) -> SupervisorState:
    """Give the state of a supervisor that has not started its children, by name and kind; a `Look` makes it begin."""
    policies: dict[Death, RestartPolicy] = {"own": policy}
    if killed_policy is not None:
        policies["killed"] = killed_policy
    return SupervisorState(strategy, policies, {name: ChildState(name, restart) for name, restart in children})


def decide(state: SupervisorState, event: Event) -> tuple[SupervisorState, list[Action]]:
    """Give the state after an event, and what is to be done now, in this order.

    Of a child that isn't known nothing is decided: it was forgotten while the event was on its way.
    """
    if state.phase == "ended":
        return state, []
    return _advance(_apply(state, event), event.now)


# -- What an event changes


def _apply(state: SupervisorState, event: Event) -> SupervisorState:
    match event:
        case Look():
            return state
        case EndAll():
            return _end(state, None)
        case Add():
            added = ChildState(event.name, event.restart, cause="new")
            runs = state.phase in ("starting", "running") and state.child(event.name) is None
            return _put(state, added) if runs else state
    child = state.child(event.name)
    if child is None:
        return state
    match event:
        case Ready():
            if child.status != "starting":
                return state  # its stop is on the way
            backoffs = {death: backoff.came_up(event.now) for death, backoff in child.backoffs.items()}
            return _put(state, replace(child, status="up", backoffs=backoffs))
        case Ended():
            return _take_end(state, child, event)
        case StopOne():
            goal: Goal = "gone" if event.forget or child.restart == "temporary" else "down"
            return _settle(state, replace(child, goal=goal))
        case RestartOne():
            return _restart_by_request(state, child)


def _take_end(state: SupervisorState, child: ChildState, event: Ended) -> SupervisorState:
    was_starting = child.status == "starting"
    child = replace(child, status="down")
    if child.goal != "up":
        return _settle(state, child)
    if was_starting and child.cause != "restart":
        if child.cause == "boot":
            return _end(_put(state, child), Verdict(child.name, event.how, is_failed_start=True))
        is_new = child.cause == "new" or child.restart == "temporary"
        return _settle(state, replace(child, goal="gone" if is_new else "down"))
    if child.restart == "temporary":
        return _settle(state, replace(child, goal="gone"))
    if child.restart == "transient" and event.normal:
        return _settle(state, replace(child, goal="done"))
    return _restart(_put(state, child), child, event)


def _restart(state: SupervisorState, dead: ChildState, event: Ended) -> SupervisorState:
    """Have a child started again, and with it whom the strategy names."""
    death: Death = "killed" if event.killed and "killed" in state.policies else "own"
    policy = state.policies[death]
    window = state.windows.get(death, RestartWindow()).admit(policy, event.now)
    if isinstance(window, GiveUp):
        return _end(state, Verdict(dead.name, f"{event.how}, and {window.reason}", is_failed_start=False))
    delay, backoff = dead.backoffs.get(death, Backoff()).after_death(policy, event.now, event.chance)
    due = event.now + delay
    state = _put(state, replace(dead, cause="restart", due=due, backoffs={**dead.backoffs, death: backoff}))
    for child in _named_with(state, dead):
        state = _settle(state, _restarted_with(child, due))
    return replace(state, windows={**state.windows, death: window})


def _named_with(state: SupervisorState, dead: ChildState) -> list[ChildState]:
    """Give the others that are restarted with a child."""
    if state.strategy == "one_for_one":
        return []
    others = [child for child in state.children if child.name != dead.name]
    return others if state.strategy == "one_for_all" else others[list(state.by_name).index(dead.name) :]


def _restarted_with(child: ChildState, due: float) -> ChildState:
    if child.goal in ("down", "gone"):
        return child
    if child.restart == "temporary":
        return replace(child, goal="gone")
    goal: Goal = "up" if child.status == "down" else "again"
    return replace(child, goal=goal, cause="restart", due=max(due, child.due))


def _restart_by_request(state: SupervisorState, child: ChildState) -> SupervisorState:
    goal: Goal = "up" if child.status == "down" else "again"
    return _put(state, replace(child, goal=goal, cause="request", due=-math.inf))


def _end(state: SupervisorState, verdict: Verdict | None) -> SupervisorState:
    if state.phase == "ending":
        return state
    children = {child.name: replace(child, goal="down") for child in state.children}
    return replace(state, by_name=children, phase="ending", verdict=verdict)


def _settle(state: SupervisorState, child: ChildState) -> SupervisorState:
    """Put a child; if it is down, it begins anew or is forgotten, as its goal says."""
    if child.status != "down":
        return _put(state, child)
    if child.goal == "gone":
        return replace(state, by_name={name: each for name, each in state.by_name.items() if name != child.name})
    return _put(state, replace(child, goal="up") if child.goal == "again" else child)


def _put(state: SupervisorState, child: ChildState) -> SupervisorState:
    return replace(state, by_name={**state.by_name, child.name: child})


# -- What follows from it


def _advance(state: SupervisorState, now: float) -> tuple[SupervisorState, list[Action]]:
    """Give what can be done now, and mark it as being done."""
    actions: list[Action] = []
    if stopped := _next_to_end(state):
        state = _put(state, replace(stopped, status="stopping"))
        actions.append(Stop(stopped.name))
    if state.phase == "ending":
        if all(child.status == "down" for child in state.children):
            return replace(state, phase="ended"), [*actions, Finish()]
        return state, actions
    if state.phase == "starting" and all(_is_at_rest(child) for child in state.children):
        state = replace(state, phase="running")
    for child in _next_to_start(state, now):
        state = _put(state, replace(child, status="starting"))
        actions.append(Start(child.name))
    return state, actions


def _next_to_end(state: SupervisorState) -> ChildState | None:
    """Give the last child that has to end, unless one is being stopped."""
    if any(child.status == "stopping" for child in state.children):
        return None
    return next((child for child in reversed(list(state.children)) if child.has_to_end), None)


def _next_to_start(state: SupervisorState, now: float) -> list[ChildState]:
    """Give the children whose turn it is to be started."""
    due = [child for child in state.children if child.has_to_start and child.due <= now]
    if state.strategy == "one_for_one" and state.phase == "running":
        return due
    if any(child.has_to_end or child.status == "stopping" for child in state.children):
        return []
    first = next((child for child in state.children if not _is_at_rest(child)), None)
    return [child for child in due if child is first]


def _is_at_rest(child: ChildState) -> bool:
    """Whether it is as it is to be."""
    return (child.status == "up" and child.goal == "up") or (child.status == "down" and child.goal in ("done", "down"))
