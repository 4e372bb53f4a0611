"""Contract of the decisions of a supervisor: one rule of OTP's each. property/test_supervision.py mixes them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from turnkeeper.runtime.restart import RestartPolicy
from turnkeeper.runtime.supervision.child_spec import RestartKind, Strategy
from turnkeeper.runtime.supervision.deciding import (
    Add,
    EndAll,
    Ended,
    Event,
    Finish,
    Look,
    Ready,
    RestartOne,
    Start,
    Stop,
    StopOne,
    Verdict,
    begin,
    decide,
)

POLICY = RestartPolicy(intensity=3, period_seconds=10, backoff_first=1, backoff_max=4, jitter=0.5)


PERMANENT: list[RestartKind] = ["permanent"]


class Decisions:
    """A supervisor of children a, b, c, … whose events a test makes up; each call gives the actions, as words."""

    def __init__(
        self,
        *kinds: RestartKind,
        strategy: Strategy = "one_for_one",
        policy: RestartPolicy = POLICY,
        killed_policy: RestartPolicy | None = None,
        up: bool = True,
    ) -> None:
        self.now = 100.0
        self.state = begin(strategy, policy, zip("abcdef", kinds, strict=False), killed_policy)
        if up:
            self.look()
            for name in "abcdef"[: len(kinds)]:
                self.ready(name)

    def send(self, event: Event) -> list[str]:
        """Decide about an event."""
        self.state, actions = decide(self.state, event)
        words = {Start: "start", Stop: "stop", Finish: "finish"}
        return [f"{words[type(action)]} {getattr(action, 'name', '')}".strip() for action in actions]

    def look(self, after: float = 0.0) -> list[str]:
        """Let time pass."""
        self.now += after
        return self.send(Look(self.now))

    def ready(self, name: str) -> list[str]:
        """Report that a child is up."""
        return self.send(Ready(self.now, name))

    def end(self, name: str, *, normal: bool = False, chance: float = 0.0, killed: bool = False) -> list[str]:
        """Report that a child has ended, or could not be started."""
        return self.send(Ended(self.now, name, "it failed: Mishap", normal, chance, killed))

    def restarts(self) -> int:
        """Count the restarts that count against the intensity."""
        return sum(len(window.times) for window in self.state.windows.values())

    def statuses(self) -> dict[str, str]:
        """Give what each child is."""
        return {child.name: child.status for child in self.state.children}


# -- Starting


def test_children_are_started_one_after_another() -> None:
    """Each when the one before it is ready, also under one_for_one."""
    supervisor = Decisions("permanent", "permanent", up=False)
    assert supervisor.look() == ["start a"]
    assert supervisor.look() == []
    assert (supervisor.ready("a"), supervisor.state.phase) == (["start b"], "starting")
    assert (supervisor.ready("b"), supervisor.state.phase) == ([], "running")


def test_a_failed_start_stops_what_had_started_in_reverse() -> None:
    """The supervisor ends for it, and says for which child and why. (A3)"""
    supervisor = Decisions("permanent", "temporary", "transient", up=False)
    supervisor.look()
    supervisor.ready("a")
    supervisor.ready("b")
    assert supervisor.end("c") == ["stop b"]
    assert supervisor.end("b", normal=True) == ["stop a"]
    assert supervisor.end("a", normal=True) == ["finish"]
    assert supervisor.state.verdict == Verdict("c", "it failed: Mishap", is_failed_start=True)


def test_a_child_that_dies_while_later_ones_start_is_restarted_first() -> None:
    """Those behind it wait for it, whatever the strategy: they may need it from their start on."""
    supervisor = Decisions("permanent", "permanent", "permanent", up=False)
    supervisor.look()
    supervisor.ready("a")
    assert supervisor.end("a") == []
    assert supervisor.ready("b") == []
    assert supervisor.look(after=1) == ["start a"]
    assert supervisor.ready("a") == ["start c"]


def test_a_supervisor_without_children_runs() -> None:
    """Children may be added later."""
    supervisor = Decisions()
    assert (supervisor.look(), supervisor.state.phase) == ([], "running")
    assert supervisor.send(Add(supervisor.now, "late", "permanent")) == ["start late"]


# -- Restart types


@pytest.mark.parametrize(
    ("kind", "normal", "restarted"),
    [
        ("permanent", True, True),
        ("permanent", False, True),
        ("transient", True, False),
        ("transient", False, True),
        ("temporary", True, False),
        ("temporary", False, False),
    ],
)
def test_whether_a_child_is_restarted_is_for_its_type_and_its_end(
    kind: RestartKind, normal: bool, restarted: bool
) -> None:
    """Permanent always, transient unless the end was normal, temporary never; that one is forgotten. (A1)"""
    supervisor = Decisions(kind)
    supervisor.end("a", normal=normal)
    assert supervisor.look(after=1) == (["start a"] if restarted else [])
    assert ("a" in supervisor.statuses()) is (kind != "temporary")
    assert supervisor.state.next_due(supervisor.now) == math.inf


# -- Strategies


@pytest.mark.parametrize(
    ("strategy", "stopped", "started"),
    [("one_for_one", "", "b"), ("one_for_all", "dca", "abcd"), ("rest_for_one", "dc", "bcd")],
)
def test_a_strategy_names_who_is_restarted(strategy: Strategy, stopped: str, started: str) -> None:
    """They are stopped in reverse and started in order, each when the one before is ready. (A3)"""
    supervisor = Decisions(*PERMANENT * 4, strategy=strategy)
    done = supervisor.end("b")
    for name in stopped:
        assert done == [f"stop {name}"]
        done = supervisor.end(name, normal=True)
    assert done == []
    done = supervisor.look(after=1)
    for name in started:
        assert done == [f"start {name}"]
        done = supervisor.ready(name)
    assert done == []
    assert set(supervisor.statuses().values()) == {"up"}


def test_a_group_restart_forgets_temporary_children_and_starts_finished_ones() -> None:
    """As in OTP: temporary children are never started again, all others are; but not one that was stopped by name."""
    supervisor = Decisions("permanent", "temporary", "transient", "transient", strategy="one_for_all")
    supervisor.end("c", normal=True)
    supervisor.send(StopOne(supervisor.now, "d"))
    supervisor.end("d", normal=True)
    assert supervisor.end("a") == ["stop b"]
    supervisor.end("b", normal=True)
    assert supervisor.look(after=1) == ["start a"]
    assert supervisor.ready("a") == ["start c"]
    assert supervisor.ready("c") == []
    assert supervisor.statuses() == {"a": "up", "c": "up", "d": "down"}


def test_a_death_while_the_group_is_being_restarted_counts_once_it_was_started_again() -> None:
    """Whoever dies before its turn to be stopped is only down; whoever dies after its start makes a new restart."""
    supervisor = Decisions(*PERMANENT * 3, strategy="one_for_all")
    assert supervisor.end("a") == ["stop c"]
    assert supervisor.end("b") == []
    assert supervisor.restarts() == 1
    supervisor.end("c", normal=True)
    assert supervisor.look(after=1) == ["start a"]
    assert supervisor.ready("a") == ["start b"]
    assert supervisor.end("a") == ["stop b"]
    assert supervisor.restarts() == 2
    supervisor.end("b")
    assert supervisor.look(after=2) == ["start a"]


# -- Intensity


@pytest.mark.parametrize("intensity", [0, 1, 5])
def test_exactly_n_restarts_survive(intensity: int) -> None:
    """One more within the period ends the supervisor, and it says why; who died of its children doesn't matter. (A2)"""
    policy = RestartPolicy(intensity=intensity, period_seconds=10, backoff_first=0, backoff_max=0)
    supervisor = Decisions("permanent", "permanent", policy=policy)
    for number in range(intensity):
        name = "ab"[number % 2]
        assert supervisor.end(name) == [f"start {name}"]
        supervisor.ready(name)
    assert supervisor.end("a") == ["stop b"]
    assert supervisor.end("b") == ["finish"]
    times = f"{intensity} restart{'s' * (intensity != 1)}"
    reason = f"it failed: Mishap, and it ended again after {times} within 10 s"
    assert supervisor.state.verdict == Verdict("a", reason, is_failed_start=False)


def test_restarts_count_for_their_period() -> None:
    """Deaths that are spread over more time are survived for ever."""
    policy = RestartPolicy(intensity=1, period_seconds=10, backoff_first=0, backoff_max=0)
    supervisor = Decisions("permanent", policy=policy)
    for _ in range(20):
        assert supervisor.look(after=10.01) == []
        assert supervisor.end("a") == ["start a"]
        supervisor.ready("a")


def test_a_restart_that_fails_is_one_more_death() -> None:
    """It counts against the intensity, and waits longer."""
    supervisor = Decisions("permanent")
    supervisor.end("a")
    assert supervisor.look(after=1) == ["start a"]
    assert supervisor.end("a") == []
    assert (supervisor.look(after=1.99), supervisor.look(after=0.01)) == ([], ["start a"])
    supervisor.end("a")
    assert supervisor.look(after=4) == ["start a"]
    assert supervisor.end("a") == ["finish"]


# -- Killed children

KILLED_POLICY = RestartPolicy(intensity=4, period_seconds=5, backoff_first=0, backoff_max=0)


def test_who_was_killed_has_a_policy_of_its_own() -> None:
    """It counts nothing against the children's own deaths, has its own delay, and its own end of patience."""
    supervisor = Decisions("permanent", "permanent", killed_policy=KILLED_POLICY)
    for name in "abab":
        assert supervisor.end(name, killed=True) == [f"start {name}"]
        supervisor.ready(name)
    assert supervisor.end("a") == []
    assert supervisor.look(after=1) == ["start a"]
    supervisor.ready("a")
    assert supervisor.end("b", killed=True) == ["stop a"]
    assert supervisor.state.verdict is not None
    assert supervisor.state.verdict.reason.endswith("it ended again after 4 restarts within 5 s")


def test_own_deaths_are_as_many_whoever_was_killed_between() -> None:
    """Being killed neither uses up what the others may, nor begins their delay anew."""
    supervisor = Decisions("permanent", killed_policy=KILLED_POLICY)
    for delay in (1, 2, 4):
        assert supervisor.end("a", killed=True) == ["start a"]
        supervisor.ready("a")
        supervisor.end("a")
        assert (supervisor.look(after=delay - 0.01), supervisor.look(after=0.01)) == ([], ["start a"])
        supervisor.ready("a")
    assert supervisor.end("a") == ["finish"]


def test_without_a_policy_for_it_being_killed_is_a_death_as_any_other() -> None:
    """One intensity and one delay for all."""
    supervisor = Decisions("permanent")
    for number, delay in enumerate((1, 2, 4)):
        supervisor.end("a", killed=number % 2 == 0)
        assert (supervisor.look(after=delay - 0.01), supervisor.look(after=0.01)) == ([], ["start a"])
        supervisor.ready("a")
    assert supervisor.end("a", killed=True) == ["finish"]


def test_the_delay_of_killed_children_grows_and_begins_anew_by_its_own_policy() -> None:
    """Its first delay, its bound, its period."""
    policy = RestartPolicy(intensity=100, period_seconds=5, backoff_first=3, backoff_max=6)
    supervisor = Decisions("permanent", killed_policy=policy)
    delays = []
    for up_seconds, killed in [(0, True), (0, True), (4.9, False), (0, True), (5, True), (0, False)]:
        supervisor.look(after=up_seconds)
        supervisor.end("a", killed=killed)
        delays.append(supervisor.state.next_due(supervisor.now) - supervisor.now)
        supervisor.look(after=delays[-1])
        supervisor.ready("a")
    assert delays == [3, 6, 1, 6, 3, 2]


@pytest.mark.parametrize(("kind", "started"), [("permanent", True), ("transient", True), ("temporary", False)])
def test_being_killed_is_no_normal_end(kind: RestartKind, started: bool) -> None:
    """Whether a killed child is restarted is for its type, as after any crash."""
    supervisor = Decisions(kind, killed_policy=KILLED_POLICY)
    assert supervisor.end("a", killed=True) == ["start a"] * started


# -- Delays


def test_the_delay_grows_and_jitters_and_begins_anew() -> None:
    """It doubles up to its bound, less a random share, and starts over once the child stayed up for a period. (A4)"""
    policy = RestartPolicy(intensity=100, period_seconds=10, backoff_first=1, backoff_max=4, jitter=0.5)
    supervisor = Decisions("permanent", policy=policy)
    delays = []
    for up_seconds, chance in [(0, 0), (1, 0), (9.9, 0), (9.9, 0), (10, 0), (0, 0.5)]:
        supervisor.look(after=up_seconds)
        supervisor.end("a", chance=chance)
        delays.append(round(supervisor.state.next_due(supervisor.now) - supervisor.now, 6))
        supervisor.look(after=delays[-1])
        supervisor.ready("a")
    assert delays == [1, 2, 4, 4, 1, 1.5]


def test_each_child_has_its_own_delay() -> None:
    """One that dies often doesn't slow down the others."""
    supervisor = Decisions("permanent", "permanent")
    supervisor.end("a")
    supervisor.look(after=1)
    supervisor.ready("a")
    supervisor.end("a")
    supervisor.end("b")
    assert supervisor.look(after=1) == ["start b"]
    assert supervisor.look(after=1) == ["start a"]


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
def test_a_stop_during_the_delay_ends_it(strategy: Strategy) -> None:
    """Nothing is started again, neither the child that is stopped nor any if all are. (A4)"""
    supervisor = Decisions("permanent", strategy=strategy)
    supervisor.end("a")
    assert supervisor.send(StopOne(supervisor.now, "a")) == []
    assert (supervisor.look(after=100), supervisor.statuses()) == ([], {"a": "down"})
    ending = Decisions("permanent", strategy=strategy)
    ending.end("a")
    assert ending.send(EndAll(ending.now)) == ["finish"]
    assert (ending.look(after=100), ending.state.next_due(0)) == ([], math.inf)


# -- By request


def test_a_child_is_stopped_and_restarted_by_name() -> None:
    """That is nobody's death: the others live on whatever the strategy, and nothing counts."""
    supervisor = Decisions("permanent", "permanent", strategy="one_for_all")
    assert supervisor.send(StopOne(supervisor.now, "a")) == ["stop a"]
    assert supervisor.end("a") == []
    assert supervisor.look(after=100) == []
    assert supervisor.send(RestartOne(supervisor.now, "a")) == ["start a"]
    supervisor.ready("a")
    assert supervisor.send(RestartOne(supervisor.now, "b")) == ["stop b"]
    assert supervisor.end("b", normal=True) == ["start b"]
    assert supervisor.restarts() == 0


def test_a_restart_by_name_does_not_wait_for_the_delay() -> None:
    """Whoever asks for it knows that it is time."""
    supervisor = Decisions("permanent")
    supervisor.end("a")
    assert supervisor.send(RestartOne(supervisor.now, "a")) == ["start a"]


def test_a_start_that_was_asked_for_and_fails_is_not_repeated() -> None:
    """It is for the one who asked: a known child stays down, a new one is forgotten."""
    supervisor = Decisions("permanent")
    supervisor.send(RestartOne(supervisor.now, "a"))
    supervisor.end("a", normal=True)
    supervisor.send(Add(supervisor.now, "new", "permanent"))
    assert (supervisor.end("a"), supervisor.end("new")) == ([], [])
    assert (supervisor.look(after=100), supervisor.statuses()) == ([], {"a": "down"})


def test_a_child_that_is_starting_can_be_stopped() -> None:
    """Its start is given up; whether it came up meanwhile doesn't matter."""
    supervisor = Decisions("permanent", up=False)
    supervisor.look()
    assert supervisor.send(StopOne(supervisor.now, "a")) == ["stop a"]
    assert supervisor.ready("a") == []
    assert supervisor.end("a") == []
    assert supervisor.statuses() == {"a": "down"}


@pytest.mark.parametrize(("kind", "forget"), [("temporary", False), ("permanent", True)])
def test_a_child_is_forgotten_when_it_was_stopped(kind: RestartKind, forget: bool) -> None:
    """A temporary one always, any other where that is wished; then its name is free."""
    supervisor = Decisions(kind)
    supervisor.send(StopOne(supervisor.now, "a", forget))
    assert supervisor.statuses() == {"a": "stopping"}
    supervisor.end("a", normal=True)
    assert supervisor.statuses() == {}
    assert supervisor.send(Add(supervisor.now, "a", "permanent")) == ["start a"]


def test_a_sibling_that_cannot_be_restarted_is_one_more_death() -> None:
    """Its first start went well, so the supervisor doesn't end for it."""
    supervisor = Decisions(*PERMANENT * 2, strategy="one_for_all")
    assert supervisor.end("a") == ["stop b"]
    supervisor.end("b")
    assert supervisor.look(after=1) == ["start a"]
    assert supervisor.ready("a") == ["start b"]
    assert supervisor.end("b") == ["stop a"]
    assert (supervisor.restarts(), supervisor.state.verdict) == (2, None)


def test_a_group_is_started_only_when_all_of_it_has_ended() -> None:
    """Also without a delay: what is started first may need what is still being stopped."""
    policy = RestartPolicy(intensity=3, period_seconds=10, backoff_first=0, backoff_max=0)
    supervisor = Decisions(*PERMANENT * 3, strategy="one_for_all", policy=policy)
    assert supervisor.end("a") == ["stop c"]
    assert supervisor.end("c") == ["stop b"]
    assert supervisor.end("b") == ["start a"]


def test_a_child_that_waits_for_another_needs_no_look() -> None:
    """Its time is over, and it is started when the one before it is up: nobody has to look at the clock for it."""
    supervisor = Decisions(*PERMANENT * 2, strategy="one_for_all")
    supervisor.end("a")
    supervisor.end("b")
    assert supervisor.look(after=1) == ["start a"]
    assert supervisor.state.next_due(supervisor.now) == math.inf
    assert supervisor.ready("a") == ["start b"]


def test_a_known_name_is_not_added() -> None:
    """It names one child only."""
    supervisor = Decisions("permanent")
    assert supervisor.send(Add(supervisor.now, "a", "temporary")) == []
    assert len(supervisor.state.children) == 1


def test_a_temporary_child_whose_restart_fails_is_forgotten() -> None:
    """It is down, and a temporary child that is down is none."""
    supervisor = Decisions("temporary")
    supervisor.send(RestartOne(supervisor.now, "a"))
    assert supervisor.end("a", normal=True) == ["start a"]
    assert (supervisor.end("a"), supervisor.statuses()) == ([], {})


def test_the_first_reason_to_end_is_kept() -> None:
    """Whoever ends a supervisor that has given up is told so."""
    policy = RestartPolicy(intensity=0)
    supervisor = Decisions("permanent", "permanent", policy=policy)
    supervisor.end("a")
    supervisor.send(EndAll(supervisor.now))
    supervisor.end("b")
    assert supervisor.state.verdict is not None


@pytest.mark.parametrize("event", [Ready, RestartOne, StopOne, lambda now, name: Ended(now, name, "late")])
def test_what_is_said_of_unknown_children_is_ignored(event: Any) -> None:
    """They were forgotten while it was on its way."""
    supervisor = Decisions("permanent")
    before = supervisor.state
    assert supervisor.send(event(supervisor.now, "gone")) == []
    assert supervisor.state == before


def test_ending_stops_all_in_reverse_and_starts_nothing() -> None:
    """Whatever happens meanwhile, and finishes once."""
    supervisor = Decisions(*PERMANENT * 3)
    supervisor.end("b")
    assert supervisor.send(EndAll(supervisor.now)) == ["stop c"]
    assert supervisor.send(RestartOne(supervisor.now, "b")) == []
    assert supervisor.send(Add(supervisor.now, "new", "permanent")) == []
    assert supervisor.look(after=100) == []
    assert supervisor.end("c") == ["stop a"]
    assert supervisor.send(EndAll(supervisor.now)) == []
    assert supervisor.end("a") == ["finish"]
    assert supervisor.end("a") == []
    assert supervisor.state.verdict is None
