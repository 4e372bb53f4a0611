"""The decisions of a supervisor against OTP's rules: any deaths, requests and times, with any children and strategy.

`Otp` is written from the rules alone: it does one thing after another, as OTP's supervisor does, and shares no code and
no idea of a state with what it judges. `World` carries the decisions out at once, on a clock of its own, so that both
can be compared by what they start and stop, and when. What happens in the middle of an action, which the rules in OTP's
words say nothing about, is tried apart: there invariants are held.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from turnkeeper.runtime.restart import RestartPolicy
from turnkeeper.runtime.supervision.child_spec import RestartKind, Strategy
from turnkeeper.runtime.supervision.deciding import (
    Action,
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
    SupervisorState,
    begin,
    decide,
)

KINDS = st.sampled_from(["permanent", "transient", "temporary"])
CHILDREN = st.lists(KINDS, max_size=5)
STRATEGIES = st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"])
Named: TypeAlias = Mapping[str, RestartKind]


def policy_of(intensity: int, period: float = 16, first: float = 1) -> RestartPolicy:
    """Give a policy whose times are whole numbers."""
    return RestartPolicy(
        intensity=intensity, period_seconds=period, backoff_first=first, backoff_max=4 * first, jitter=0
    )


KILLED_POLICIES = st.none() | st.builds(policy_of, st.integers(0, 4), st.just(6), st.sampled_from([0, 2]))
"""What those are judged by that somebody kills; None as all others."""


class Patience:
    """How often and how soon children may be started again for one kind of death."""

    def __init__(self, policy: RestartPolicy) -> None:
        self.intensity, self.period, first = policy.intensity, policy.period_seconds, policy.backoff_first
        self.delays = (first, 2 * first, 4 * first, 4 * first)
        self.in_a_row: Counter[str] = Counter()
        self.up_since: dict[str, float] = {}
        self.restarts: list[float] = []

    def delay(self, name: str, now: float) -> float | None:
        """Give the seconds to wait, more each time until it stayed up for a period; None after one death too many."""
        self.restarts = [time for time in self.restarts if now - time <= self.period]
        if len(self.restarts) >= self.intensity:
            return None
        self.restarts.append(now)
        if name in self.up_since and now - self.up_since.pop(name) >= self.period:
            self.in_a_row[name] = 0
        self.in_a_row[name] += 1
        return self.delays[min(self.in_a_row[name], 4) - 1]

    def forget(self, name: str) -> None:
        """Know nothing of it."""
        self.in_a_row.pop(name, None)
        self.up_since.pop(name, None)


class Otp:
    """What the rules say: children in order, each up, waiting for its start, or at rest; `log` is all that is done."""

    def __init__(
        self,
        strategy: str,
        intensity: int,
        kinds: dict[str, str],
        failing: Counter[str],
        killed_policy: RestartPolicy | None,
    ) -> None:
        self.strategy, self.kinds, self.failing = strategy, dict(kinds), failing
        self.patience = Patience(policy_of(intensity))
        # Who is killed is judged apart, or as all others are.
        self.for_killed = self.patience if killed_policy is None else Patience(killed_policy)
        self.up: list[str] = []
        self.stopped: set[str] = set()
        self.waiting: dict[str, float] = {}
        self.log: list[str] = []
        self.is_over = False

    def boot(self, now: float) -> None:
        """Start all in order; if one fails, stop in reverse those that had started."""
        for name in self.kinds:
            if not self.comes_up(name, now):
                self.end()
                return

    def death(self, name: str, how: str, now: float) -> None:
        """Permanent: always restarted. Transient: only after an abnormal end. Temporary: never, and forgotten."""
        self.up.remove(name)
        if self.kinds[name] == "temporary":
            self.forget(name)
        elif self.kinds[name] == "permanent" or how != "normal":
            self.restart(name, self.for_killed if how == "killed" else self.patience, now)
            self.pass_time(now)

    def restart(self, name: str, patience: Patience, now: float) -> None:
        """End if there were too many restarts in the period; else stop whom the strategy names, in reverse."""
        delay = patience.delay(name, now)
        if delay is None:
            self.end()
            return
        due = now + delay
        names = list(self.kinds)
        first = 0 if self.strategy == "one_for_all" else names.index(name)
        group = [name] if self.strategy == "one_for_one" else names[first:]
        for other in reversed(group):
            if other in self.up:
                self.stop(other)
            if self.kinds[other] == "temporary":
                self.forget(other)
            elif other not in self.stopped:
                self.waiting[other] = max(due, self.waiting.get(other, 0))

    def pass_time(self, now: float) -> None:
        """Start in order those whose time has come. Only under one_for_one nobody waits for those before him."""
        while True:
            due = [name for name in self.kinds if self.waiting.get(name, now + 1) <= now]
            if self.strategy != "one_for_one":
                due = due[:1] if due and due[0] == next(iter(filter(self.waiting.__contains__, self.kinds))) else []
            if not due:
                return
            for name in due:
                del self.waiting[name]
                self.log.append(f"start {name}")
                self.up.append(name)
            for name in due:
                if self.fails(name):
                    if not self.is_over:
                        self.up.remove(name)
                        self.restart(name, self.patience, now)
                else:
                    self.is_up(name, now)

    def stop_by_name(self, name: str, forget: bool) -> None:
        """It is down until it is started by name."""
        if name in self.up:
            self.stop(name)
        self.waiting.pop(name, None)
        self.stopped.add(name)
        if forget or self.kinds[name] == "temporary":
            self.forget(name)

    def start_by_name(self, name: str, now: float) -> None:
        """Stop it if it is up, and start it; if that fails it is down, or forgotten if it is temporary."""
        if name in self.up:
            self.stop(name)
        self.waiting.pop(name, None)
        self.stopped.discard(name)
        if not self.comes_up(name, now):
            self.stopped.add(name)
            if self.kinds[name] == "temporary":
                self.forget(name)

    def add(self, name: str, kind: str, now: float) -> None:
        """Start one more; if that fails it was never there."""
        self.kinds[name] = kind
        if not self.comes_up(name, now):
            self.forget(name)

    def end(self) -> None:
        """Stop all in reverse, and start nothing more."""
        for name in reversed(list(self.kinds)):
            if name in self.up:
                self.stop(name)
        self.waiting.clear()
        self.is_over = True

    def stop(self, name: str) -> None:
        """Stop a child."""
        self.up.remove(name)
        self.log.append(f"stop {name}")

    def comes_up(self, name: str, now: float) -> bool:
        """Start a child."""
        self.log.append(f"start {name}")
        if self.fails(name):
            return False
        self.up.append(name)
        self.is_up(name, now)
        return True

    def is_up(self, name: str, now: float) -> None:
        """From now on it may stay up for a period."""
        self.patience.up_since[name] = self.for_killed.up_since[name] = now

    def fails(self, name: str) -> bool:
        """Whether its start fails now."""
        self.failing[name] -= 1
        return self.failing[name] >= 0

    def forget(self, name: str) -> None:
        """Know nothing of it."""
        del self.kinds[name]
        self.patience.forget(name)
        self.for_killed.forget(name)
        self.stopped.discard(name)


class World:
    """Carries out each action at once and reports how it came out."""

    def __init__(
        self,
        strategy: Strategy,
        intensity: int,
        kinds: Named,
        failing: Counter[str],
        killed_policy: RestartPolicy | None,
    ) -> None:
        self.state = begin(strategy, policy_of(intensity), kinds.items(), killed_policy)
        self.failing = failing
        self.log: list[str] = []
        self.is_over = False

    def happens(self, event: Event) -> None:
        """Decide about it, and do what follows, until nothing does."""
        todo: deque[Action] = deque()

        def decided(event: Event) -> None:
            self.state, actions = decide(self.state, event)
            todo.extend(actions)

        decided(event)
        while todo:
            action = todo.popleft()
            assert not self.is_over
            match action:
                case Start():
                    self.log.append(f"start {action.name}")
                    self.failing[action.name] -= 1
                    failed = self.failing[action.name] >= 0
                    decided(Ended(event.now, action.name, "no start") if failed else Ready(event.now, action.name))
                case Stop():
                    self.log.append(f"stop {action.name}")
                    decided(Ended(event.now, action.name, "stopped", normal=True))
                case Finish():
                    self.is_over = True


class Comparison(RuleBasedStateMachine):
    """Anything happens to both, and both do the same."""

    @initialize(
        strategy=STRATEGIES,
        intensity=st.integers(0, 4),
        kinds=CHILDREN,
        late=st.integers(-1, 9),
        killed_policy=KILLED_POLICIES,
    )
    def boot(
        self,
        strategy: Strategy,
        intensity: int,
        kinds: list[RestartKind],
        late: int,
        killed_policy: RestartPolicy | None,
    ) -> None:
        """Start a supervisor, one of whose children may not come up."""
        self.now = 1000.0
        named = dict(zip("abcde", kinds, strict=False))
        failing = Counter({"abcde"[late]: 1} if 0 <= late < len(kinds) else {})
        self.otp, self.world = (
            Otp(strategy, intensity, dict(named), failing, killed_policy),
            World(strategy, intensity, named, Counter(failing), killed_policy),
        )
        self.added = 0
        self.otp.boot(self.now)
        self.world.happens(Look(self.now))

    def is_running(self) -> bool:
        """Whether anything is left to happen."""
        return not self.otp.is_over

    def is_up(self) -> bool:
        """Whether a child can die."""
        return bool(self.otp.up)

    @precondition(is_up)
    @rule(data=st.data(), how=st.sampled_from(["normal", "failed", "killed"]))
    def die(self, data: st.DataObject, how: str) -> None:
        """A child ends by itself, or somebody kills it."""
        name = data.draw(st.sampled_from(sorted(self.otp.up)))
        self.otp.death(name, how, self.now)
        self.world.happens(Ended(self.now, name, "died", normal=how == "normal", killed=how == "killed"))

    @rule(seconds=st.sampled_from([0.5, 1, 2, 4, 15.5, 16, 16.5]))
    def pass_time(self, seconds: float) -> None:
        """Wait; the supervisor looks whenever it wished to."""
        until = self.now + seconds
        while not self.world.is_over and (due := self.world.state.next_due(self.now)) <= until:
            self.now = due
            self.otp.pass_time(self.now)
            self.world.happens(Look(self.now))
        self.now = until

    @precondition(is_running)
    @rule(data=st.data(), times=st.integers(1, 3))
    def let_starts_fail(self, data: st.DataObject, times: int) -> None:
        """The next starts of a child fail."""
        if self.otp.kinds:
            name = data.draw(st.sampled_from(sorted(self.otp.kinds)))
            for failing in (self.otp.failing, self.world.failing):
                failing[name] = times

    @precondition(is_running)
    @rule(data=st.data(), what=st.sampled_from(["stop", "forget", "restart"]))
    def request(self, data: st.DataObject, what: str) -> None:
        """Somebody asks for one child."""
        if not self.otp.kinds:
            return
        name = data.draw(st.sampled_from(sorted(self.otp.kinds)))
        if what == "restart":
            # In the middle of a group's restart it waits for its turn, which the next test looks at.
            if self.otp.waiting and self.otp.strategy != "one_for_one":
                return
            self.otp.start_by_name(name, self.now)
            self.world.happens(RestartOne(self.now, name))
        else:
            self.otp.stop_by_name(name, what == "forget")
            self.otp.pass_time(self.now)
            self.world.happens(StopOne(self.now, name, what == "forget"))

    @precondition(is_running)
    @rule(kind=KINDS, fails=st.booleans())
    def add(self, kind: RestartKind, fails: bool) -> None:
        """Somebody adds a child."""
        if self.otp.waiting and self.otp.strategy != "one_for_one":
            return
        self.added += 1
        name = f"new {self.added}"
        for failing in (self.otp.failing, self.world.failing):
            failing[name] = int(fails)
        self.otp.add(name, kind, self.now)
        self.world.happens(Add(self.now, name, kind))

    @precondition(is_running)
    @rule()
    def end(self) -> None:
        """Somebody ends the supervisor."""
        self.otp.end()
        self.world.happens(EndAll(self.now))

    @invariant()
    def both_did_the_same(self) -> None:
        """They started and stopped the same children in the same order, and wait for the same."""
        if not hasattr(self, "otp"):
            return
        assert self.world.log == self.otp.log
        assert self.world.is_over == self.otp.is_over
        state = self.world.state
        assert {child.name for child in state.children if child.status == "up"} == set(self.otp.up)
        if not self.otp.is_over:
            assert {child.name: child.restart for child in state.children} == self.otp.kinds
            assert {child.name for child in state.children if child.has_to_start} == set(self.otp.waiting)
        assert not {child.status for child in state.children} & {"starting", "stopping"}


TestComparison = Comparison.TestCase
TestComparison.settings = settings(max_examples=80, stateful_step_count=30)


class Juggler:
    """Carries actions out in its own time; between, anything happens."""

    def __init__(
        self, strategy: Strategy, intensity: int, kinds: list[RestartKind], killed_policy: RestartPolicy | None
    ) -> None:
        self.now = 1000.0
        self.state = begin(strategy, policy_of(intensity), zip("abcde", kinds, strict=False), killed_policy)
        self.running: dict[str, str] = {}
        self.ordered_stops: list[str] = []
        self.added = 0
        self.finished = 0
        self.send(Look(self.now))

    def send(self, event: Event) -> None:
        """Decide, and hold what must be true of every decision."""
        before = self.state
        self.state, actions = decide(before, event)
        for action in actions:
            assert not self.finished
            match action:
                case Start(name):
                    assert name not in self.running, "two of one child"
                    assert self.state.phase in ("starting", "running"), "started at the end"
                    self.running[name] = "starting"
                case Stop(name):
                    assert not self.ordered_stops, "one after another"
                    assert name in self.running
                    if self.state.phase == "ending":
                        names = [child.name for child in self.state.children]
                        assert name == max(self.running, key=names.index), "in reverse"
                    self.ordered_stops.append(name)
                case Finish():
                    assert not self.running
                    self.finished += 1
        self.hold_windows(before)

    def hold_windows(self, before: SupervisorState) -> None:
        """No more restarts within a period than each policy allows, and no more than one at once."""
        news = 0
        for death, window in self.state.windows.items():
            times, policy = window.times, self.state.policies[death]
            assert len([time for time in times if times[-1] - time <= policy.period_seconds]) <= policy.intensity
            had = before.windows.get(death)
            news += had is None or had.times != times
        assert news <= 1

    def come_up(self, name: str) -> None:
        """A start succeeds."""
        self.running[name] = "up"
        self.send(Ready(self.now, name))

    def end(self, name: str, normal: bool = False, killed: bool = False) -> None:
        """A child ends, or its start fails, or it was stopped."""
        del self.running[name]
        if name in self.ordered_stops:
            self.ordered_stops.remove(name)
        self.send(Ended(self.now, name, "it ended", normal, killed=killed))

    def settle(self) -> None:
        """Let all come out well, until nothing is left to be done."""
        for _ in range(1000):
            if self.ordered_stops:
                self.end(self.ordered_stops[0], normal=True)
            elif starting := [name for name, status in self.running.items() if status == "starting"]:
                self.come_up(starting[0])
            elif (due := self.state.next_due(self.now)) < math.inf:
                self.now = due
                self.send(Look(self.now))
            else:
                return
        raise AssertionError("it never comes to rest")


def step(juggler: Juggler, data: st.DataObject, stopped: set[str]) -> None:
    """Let one thing happen; note in `stopped` who is to be down then."""
    draw: Any = data.draw
    running = sorted(juggler.running)
    what = draw(st.sampled_from(["up", "end", "stop", "restart", "add", "time", *["end all"] * (len(running) > 3)]))
    known = [child.name for child in juggler.state.children]
    name = draw(st.sampled_from([*known, "nobody"]))
    if what == "up" and (starting := [each for each in running if juggler.running[each] == "starting"]):
        juggler.come_up(draw(st.sampled_from(starting)))
    elif what == "end" and running:
        juggler.end(draw(st.sampled_from(running)), draw(st.booleans()), draw(st.booleans()))
    elif what == "stop":
        stopped.add(name)
        juggler.send(StopOne(juggler.now, name, draw(st.booleans())))
    elif what == "restart":
        stopped.discard(name)
        juggler.send(RestartOne(juggler.now, name))
    elif what == "add":
        juggler.added += 1
        juggler.send(Add(juggler.now, f"new {juggler.added}", draw(KINDS)))
    elif what == "time":
        juggler.now += draw(st.sampled_from([0.5, 1, 4, 17]))
        juggler.send(Look(juggler.now))
    elif what == "end all":
        juggler.send(EndAll(juggler.now))


@settings(max_examples=160)
@given(STRATEGIES, st.integers(0, 6), CHILDREN, KILLED_POLICIES, st.integers(0, 25), st.data())
def test_whatever_happens_in_the_middle_all_comes_to_rest(
    strategy: Strategy,
    intensity: int,
    kinds: list[RestartKind],
    killed_policy: RestartPolicy | None,
    steps: int,
    data: st.DataObject,
) -> None:
    """Never two of a child, nothing started at the end, stops one by one; at last each is what it is to be."""
    juggler = Juggler(strategy, intensity, kinds, killed_policy)
    stopped: set[str] = set()
    for _ in range(steps):
        step(juggler, data, stopped)
    juggler.settle()
    assert juggler.finished == (juggler.state.phase == "ended")
    for child in juggler.state.children:
        assert juggler.running.get(child.name, "down") == child.status
        if juggler.finished or child.name in stopped:
            assert child.status == "down"
        elif child.restart == "permanent" and child.goal != "down":
            assert child.status == "up"
    juggler.send(EndAll(juggler.now))
    juggler.settle()
    assert (juggler.running, juggler.finished) == ({}, 1)
