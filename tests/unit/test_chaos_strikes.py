"""When strikes come and end: moments on a busy machine, stops with a takeover, who is stopped before a power cut."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from turnkeeper.benchmarks.chaos import power_cut, strikes
from turnkeeper.benchmarks.chaos.plan import AgentPlan, Disturbance, HostPlan, Kill, Life
from turnkeeper.benchmarks.chaos.round import STRETCH_MAX, USUAL_START_SECONDS, stretch_for
from turnkeeper.benchmarks.chaos.stage import Stage
from turnkeeper.benchmarks.chaos.strikes import SUCCESSOR_SECONDS, Strikes

STOPPED, SUCCESSOR = 11, 12
STOP = Disturbance(0, "stop", "writer", 400, 0, "writer-writes", takeover=True)
STATES = {STOPPED: "T", SUCCESSOR: "S"}


class Clock:
    """A timeline whose time is what the test says; `pass_time` does what is due meanwhile."""

    def __init__(self) -> None:
        self.now = 0.0
        self._deeds: list[tuple[float, Callable[[], None]]] = []

    def at(self, seconds: float, deed: Callable[[], None]) -> None:
        """Do something at a moment."""
        self._deeds.append((seconds, deed))

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass, deed by deed."""
        until = self.now + seconds
        while due := [each for each in self._deeds if each[0] <= until]:
            at, deed = min(due, key=lambda each: each[0])
            self._deeds.remove((at, deed))
            self.now = max(self.now, at)
            deed()
        self.now = until


class Ending:
    """A fault that counts when it ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at: float | None = None

    def end(self) -> None:
        """Take note of the first end."""
        self.at = self._clock.now if self.at is None else self.at


@pytest.fixture
def clock() -> Clock:
    """The timeline."""
    return Clock()


@pytest.fixture
def writers() -> list[int]:
    """The writers that live: the stopped one, and whom the test adds."""
    return [STOPPED]


@pytest.fixture
def struck(clock: Clock, writers: list[int], monkeypatch: pytest.MonkeyPatch) -> Strikes:
    """Strikes at a stage that has these writers and this clock."""
    monkeypatch.setattr(strikes, "state_of", STATES.__getitem__)
    plan = SimpleNamespace(left_out=())
    return Strikes(cast("Stage", SimpleNamespace(plan=plan, timeline=clock, find=lambda: {"writer": writers})))


def test_a_stopped_writer_goes_on_when_its_successor_has_worked(
    struck: Strikes, clock: Clock, writers: list[int]
) -> None:
    """The successor may be late; then it has the same time as one that came soon."""
    ending = Ending(clock)
    struck._end_in_time(STOP, cast("Any", ending))
    clock.pass_time(1.0)
    writers.append(SUCCESSOR)
    clock.pass_time(0.3)
    assert ending.at is None
    clock.pass_time(0.3)
    assert ending.at is not None


def test_a_stopped_writer_goes_on_where_no_successor_comes(struck: Strikes, clock: Clock) -> None:
    """The stopped one holds the lock, so nobody does; the others have waited long enough then."""
    ending = Ending(clock)
    struck._end_in_time(STOP, cast("Any", ending))
    clock.pass_time(STOP.for_ms / 1000 + SUCCESSOR_SECONDS - 0.1)
    assert ending.at is None
    clock.pass_time(0.2)
    assert ending.at is not None


@pytest.mark.parametrize(("usual_starts", "stretch"), [(0.1, 1.0), (1.0, 1.0), (1.5, 1.5), (100.0, STRETCH_MAX)])
def test_a_life_lasts_longer_on_a_busy_machine(usual_starts: float, stretch: float) -> None:
    """As much longer as its hosts took to start, up to a limit; never shorter than planned."""
    assert stretch_for(usual_starts * USUAL_START_SECONDS) == stretch


def test_strikes_come_later_in_a_life_that_lasts_longer(struck: Strikes, clock: Clock) -> None:
    """A kill in the middle of a life is in its middle whatever its length."""
    made: list[float] = []
    struck._kill = lambda kill: made.append(clock.now)  # type: ignore[method-assign]
    life = Life(3000, (Kill(1500, ("node",), None, 0),), (), "in order", "at any moment", "kept")
    struck.plan(life, 2.0)
    clock.pass_time(6.0)
    assert made == [3.0]


def host(pid: int, in_loop: int, in_workers: int) -> Any:
    """Make a host that lives, with so many agents."""
    agents = tuple(AgentPlan(f"{pid}-{n}", n, 1, (), in_worker=n >= in_loop) for n in range(in_loop + in_workers))
    return SimpleNamespace(pid=pid, has_ended=False, plan=HostPlan(f"host-{pid}", "trio", agents, ()))


@pytest.mark.parametrize(
    ("hosts", "workers", "kept"),
    [
        ([host(1, 3, 0), host(2, 1, 0)], [], 2),
        ([host(1, 3, 0), host(2, 2, 1)], [7], 7),
        ([host(1, 0, 2), host(2, 2, 0)], [], 2),
        ([host(1, 0, 2)], [], None),
    ],
)
def test_one_goes_on_before_the_power_is_cut(hosts: list[Any], workers: list[int], kept: int | None) -> None:
    """It is the one with the fewest agents that has any: what it sends again comes alone."""
    stage = SimpleNamespace(hosts={each.plan.name: each for each in hosts}, find=lambda: {"worker": workers})
    others = {each.pid for each in hosts} | {*workers}
    assert set(power_cut._all_but_one(cast("Stage", stage))) == others - {kept}
