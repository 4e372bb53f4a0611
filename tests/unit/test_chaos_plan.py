"""Plans of rounds of chaos: what a seed gives, how a plan is narrowed, and that it can be written down."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pytest

from turnkeeper.benchmarks.chaos.plan import (
    FAULTS,
    HABITS,
    ROLES,
    Cut,
    RoundPlan,
    agent_from_map,
    host_from_map,
    make_plan,
    narrowed,
)

SEEDS = range(300)


def kinds_in(plan: RoundPlan) -> set[str]:
    """Name everything that is done to somebody in a plan."""
    found: set[str] = {each.kind for each in plan.copies}
    for life in plan.lives:
        found |= {role for kill in life.kills for role in kill.roles}
        found |= {each.kind for each in life.disturbances}
        found |= {life.index} if life.index != "kept" else set()
        found |= {"power"} if life.ending == "power cut" else set()
    return found


def test_the_same_seed_gives_the_same_plan() -> None:
    """Nothing but the seed decides; and no two of many seeds give the same."""
    plans = [make_plan(seed) for seed in SEEDS]
    assert plans == [make_plan(seed) for seed in SEEDS]
    assert len({replace(plan, seed=0) for plan in plans}) == len(plans)


def test_a_plan_comes_back_from_json_as_it_was() -> None:
    """A plan that was written down can be played again, whole or a host's part of it."""
    for seed in SEEDS:
        plan = narrowed(make_plan(seed), kills=ROLES, faults=FAULTS, impossible={"clock": "no library"})
        assert RoundPlan.from_map(json.loads(json.dumps(plan.as_map()))) == plan
        for host in plan.hosts:
            assert host_from_map(json.loads(json.dumps(host.as_map()))) == host
            for agent in host.agents:
                assert agent_from_map(json.loads(json.dumps(agent.as_map()))) == agent


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("hosts",), 7),
        (("hosts", 0, "loop"), "curio"),
        (("hosts", 0, "agents", 0, "pace_ms"), "quick"),
        (("lives", 0, "kills"), [7]),
        (("lives", 0, "ending"), None),
        (("lives", 0, "weather"), "fine"),
        (("seed",), "seven"),
    ],
)
def test_what_is_no_plan_is_refused(path: tuple[str | int, ...], value: object) -> None:
    """A part that is of another kind, or that no plan has, is an error before anything is begun."""
    values = make_plan(1).as_map()
    part: Any = values
    for each in path[:-1]:
        part = part[each]
    part[path[-1]] = value
    with pytest.raises((TypeError, ValueError, AttributeError)):
        RoundPlan.from_map(values)


def test_everything_occurs() -> None:
    """Over some hundred seeds each role is killed, each fault made, and each habit, loop and end of a life there."""
    plans = [make_plan(seed) for seed in SEEDS]
    lives = [life for plan in plans for life in plan.lives]
    hosts = [host for plan in plans for host in plan.hosts]
    assert set().union(*map(kinds_in, plans)) == {*ROLES, *FAULTS}
    assert {life.ending for life in lives} == {"in order", "killed", "power cut"}
    assert {life.cut for life in lives} == set(get_args(Cut))
    stops = [each for life in lives for each in life.disturbances if each.kind == "stop"]
    assert {(stop.target, stop.takeover) for stop in stops} == set(product(("host", "node", "writer"), (True, False)))
    assert {stop.point is None for stop in stops if stop.target != "host"} == {True, False}
    assert {host.loop for host in hosts} == {"trio", "asyncio"}
    assert {habit for host in hosts for agent in host.agents for habit in agent.habits} == set(HABITS)
    assert {agent.in_worker for host in hosts for agent in host.agents} == {True, False}
    assert {len(plan.lives) for plan in plans} == {1, 2}
    assert any(set(kill.roles) == set(ROLES) for life in lives for kill in life.kills)
    points = {kill.point for life in lives for kill in life.kills}
    assert len(points) > 25
    assert None in points


def test_strikes_come_in_order_and_in_their_life() -> None:
    """A moment lies within its life, and the list is sorted by it."""
    for seed in SEEDS:
        for life in make_plan(seed).lives:
            for moments in ([each.at_ms for each in life.kills], [each.at_ms for each in life.disturbances]):
                assert moments == sorted(moments)
                assert all(0 <= moment < life.length_ms for moment in moments)


@pytest.mark.parametrize("unwanted", [*ROLES, *FAULTS])
def test_leaving_something_out_changes_nothing_else(unwanted: str) -> None:
    """Hosts, moments and all other strikes of the same seed stay, and the plan says what isn't in it."""
    for seed in SEEDS:
        plan = make_plan(seed)
        kills = tuple(role for role in ROLES if role != unwanted)
        faults = tuple(fault for fault in FAULTS if fault != unwanted)
        less = narrowed(plan, kills=kills, faults=faults, impossible={})
        assert unwanted not in kinds_in(less)
        assert less.left_out == ((unwanted, "not wanted"),)
        assert (less.seed, less.hosts) == (plan.seed, plan.hosts)
        assert less.copies == tuple(each for each in plan.copies if each.kind != unwanted)
        for life, its in zip(plan.lives, less.lives, strict=True):
            assert its.disturbances == tuple(each for each in life.disturbances if each.kind != unwanted)
            left = [(kill, [role for role in kill.roles if role != unwanted]) for kill in life.kills]
            assert its.kills == tuple(replace(kill, roles=tuple(roles)) for kill, roles in left if roles)
            assert its.ending == life.ending or unwanted in ("power", "host", "node", "writer")
            assert its.index == life.index or life.index == unwanted


def test_what_a_machine_cannot_do_is_left_out_with_its_reason() -> None:
    """A reason that lies in the machine is said, unless it wasn't wanted anyway."""
    plan = narrowed(
        make_plan(1), kills=ROLES, faults=("slow", "power"), impossible={"power": "no root", "clock": "no lib"}
    )
    said = dict(plan.left_out)
    assert said["power"] == "no root"
    assert said["clock"] == "not wanted"
    assert "slow" not in said


def test_nobody_is_killed_at_the_end_of_a_life_if_nobody_may_be() -> None:
    """Without kills and without power cuts each life ends in order."""
    for seed in SEEDS:
        plan = narrowed(make_plan(seed), kills=(), faults=(), impossible={})
        assert kinds_in(plan) == set()
        assert {life.ending for life in plan.lives} == {"in order"}
