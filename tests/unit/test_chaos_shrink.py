"""Making a plan that breaks a promise shorter."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest

from turnkeeper.benchmarks.chaos.drawing import make_plan
from turnkeeper.benchmarks.chaos.plan import RoundPlan
from turnkeeper.benchmarks.chaos.shrink import shorter_plans, shrunk

SECONDS = 60.0


def size(plan: RoundPlan) -> int:
    """Count what there is in a plan."""
    lives = sum(
        1 + len(life.disturbances) + sum(len(kill.roles) for kill in life.kills) + (life.ending != "in order")
        for life in plan.lives
    )
    indexes = sum(life.index != "kept" for life in plan.lives)
    hosts = sum(1 + len(host.followers) + sum(1 + len(agent.habits) for agent in host.agents) for host in plan.hosts)
    return lives + indexes + hosts + len(plan.copies) + (plan.store.part_bytes is not None)


def test_each_shorter_plan_has_less_and_is_one_that_can_be_played() -> None:
    """A life, a host and an agent in it are always left; and whatever is left can be made shorter again."""
    for seed in range(20):
        plan = make_plan(seed)
        while found := list(shorter_plans(plan)):
            assert all(size(shorter) < size(plan) for shorter in found)
            assert all(shorter.lives and shorter.hosts for shorter in found)
            assert all(host.agents for shorter in found for host in shorter.hosts)
            plan = found[0]
        (life,), (host,) = plan.lives, plan.hosts
        assert (len(host.agents), host.agents[0].habits, host.followers) == (1, (), ())
        assert (life.disturbances, life.ending, life.index, plan.copies) == ((), "in order", "kept", ())
        assert (life.kills, plan.store.part_bytes) == ((), None)


def has_writer_killed(plan: RoundPlan) -> bool:
    """Break a promise if somewhere a writer is killed while an agent of a certain habit works."""
    kills = any("writer" in kill.roles for life in plan.lives for kill in life.kills)
    return kills and any("tokens" in agent.habits for host in plan.hosts for agent in host.agents)


def test_what_is_left_is_what_it_takes() -> None:
    """Everything goes that a promise is broken without."""
    seed = next(seed for seed in itertools.count() if has_writer_killed(make_plan(seed)))
    short = shrunk(make_plan(seed), has_writer_killed, SECONDS)
    (life,), (host,) = short.lives, short.hosts
    (kill,), (agent,) = life.kills, host.agents
    assert (kill.roles, agent.habits) == (("writer",), ("tokens",))
    assert size(short) == 5


def test_a_plan_whose_parts_are_all_needed_stays() -> None:
    """If no shorter one breaks a promise it is returned as it was."""
    plan = make_plan(3)
    assert shrunk(plan, lambda shorter: False, SECONDS) == plan


def test_nothing_more_is_played_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest plan that was found until then is the answer."""
    clock = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    played: list[RoundPlan] = []

    def is_broken(plan: RoundPlan) -> bool:
        played.append(plan)
        return True

    checked: Callable[[RoundPlan], bool] = is_broken
    short = shrunk(make_plan(3), checked, 3.0)
    assert len(played) == 3
    assert short == played[-1]
