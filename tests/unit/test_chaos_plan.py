"""Plans of rounds of chaos: what a seed gives, how a plan is narrowed, and that it can be written down."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pytest

from turnkeeper.actors.failpoints import OF_ANY_WRITER, OF_ROLLING, OF_SQLITE, POINTS
from turnkeeper.benchmarks.chaos.drawing import JOURNAL_FAULTS, NO_JOURNAL, PARTS_BYTES, make_plan
from turnkeeper.benchmarks.chaos.plan import (
    FAULTS,
    HABITS,
    ROLES,
    Cut,
    RoundPlan,
    StorePlan,
    agent_from_map,
    host_from_map,
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
        (("store", "backend"), "clay tablets"),
        (("store", "part_bytes"), "few"),
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


def points_of(plan: RoundPlan) -> set[str]:
    """Name the failpoints that the writer of a plan is struck at."""
    kills = {each.point for life in plan.lives for each in life.kills}
    stops = {each.point for life in plan.lives for each in life.disturbances}
    return {point for point in kills | stops if point is not None} & set(POINTS["writer"])


def test_stores_are_journals_of_few_or_many_segments_and_databases() -> None:
    """Each as often as it is worth; and a plan from before there was a choice is one of a journal."""
    stores = Counter(make_plan(seed).store for seed in SEEDS)
    assert {store.backend for store in stores} == {"journal", "sqlite"}
    assert {store.part_bytes for store in stores} == {None, *PARTS_BYTES}
    assert all(count > 5 for count in stores.values())
    values = make_plan(1).as_map()
    del values["store"]
    assert RoundPlan.from_map(values).store == StorePlan("journal", None)


def test_a_writer_is_struck_where_its_store_lets_it_come() -> None:
    """Only a journal of small segments is rolled, and only a database has transactions; the power is cut likewise."""
    passed: dict[str, set[str]] = {"rolling": set(), "journal": set(), "sqlite": set()}
    for seed in range(2000):
        plan = make_plan(seed)
        rolls = plan.store.backend == "journal" and plan.store.part_bytes is not None
        passed["rolling" if rolls else plan.store.backend] |= points_of(plan)
        assert rolls or all(life.cut != "behind a roll" for life in plan.lives)
    assert passed["sqlite"] == {*OF_ANY_WRITER, *OF_SQLITE}
    assert passed["journal"] == set(POINTS["writer"]) - {*OF_SQLITE, *OF_ROLLING}
    assert passed["rolling"] == set(POINTS["writer"]) - {*OF_SQLITE}


def test_what_only_a_journal_can_suffer_is_left_out_of_a_database() -> None:
    """The plan says so, whatever else is left out of it."""
    for plan in filter(lambda plan: plan.store.backend == "sqlite", map(make_plan, SEEDS)):
        assert kinds_in(plan).isdisjoint(JOURNAL_FAULTS)
        assert dict(plan.left_out) == dict.fromkeys(JOURNAL_FAULTS, NO_JOURNAL)
        less = narrowed(plan, kills=ROLES, faults=("flip", "stop", "clock"), impossible={"clock": "no library"})
        said = dict(less.left_out)
        assert (said["flip"], said["tail"], said["clock"]) == (NO_JOURNAL, "not wanted", "no library")
        assert less.store == plan.store


def test_strikes_come_in_order_and_in_their_life() -> None:
    """A moment lies within its life, and the list is sorted by it."""
    for seed in SEEDS:
        for life in make_plan(seed).lives:
            for moments in ([each.at_ms for each in life.kills], [each.at_ms for each in life.disturbances]):
                assert moments == sorted(moments)
                assert all(0 <= moment < life.length_ms for moment in moments)


def test_three_rounds_in_a_row_have_the_cuts_that_hurt_most() -> None:
    """One of them cuts the power behind a write that isn't synced, another one behind a successor's answers."""
    ends = [{life.cut for life in make_plan(seed).lives if life.ending == "power cut"} for seed in SEEDS]
    for three in zip(ends, ends[1:], ends[2:], strict=False):
        assert set().union(*three) >= {"behind a write", "behind a successor's answers"}


def test_each_life_has_stops_where_they_hurt() -> None:
    """A node while it looks at tasks, again and again, or a writer in a commit; a host, and another one takes over."""
    struck = set()
    for seed in SEEDS:
        plan = make_plan(seed)
        for life in plan.lives:
            stops = [each for each in life.disturbances if each.kind == "stop" and each.at_ms < 0.7 * life.length_ms]
            looks = sum(each.point == "node-asks-for-lock-of-task" for each in stops)
            taken_over = {each.target for each in stops if each.takeover and (each.target == "host" or each.point)}
            assert looks >= 5 or "writer" in taken_over
            assert "host" in taken_over or len(plan.hosts) == 1
            struck.add("node" if looks >= 5 else "writer")
    assert struck == {"node", "writer"}


@pytest.mark.parametrize("unwanted", [*ROLES, *FAULTS])
def test_leaving_something_out_changes_nothing_else(unwanted: str) -> None:
    """Hosts, moments and all other strikes of the same seed stay, and the plan says what isn't in it."""
    for seed in SEEDS:
        plan = make_plan(seed)
        kills = tuple(role for role in ROLES if role != unwanted)
        faults = tuple(fault for fault in FAULTS if fault != unwanted)
        less = narrowed(plan, kills=kills, faults=faults, impossible={})
        assert unwanted not in kinds_in(less)
        assert dict(less.left_out) == {**dict(plan.left_out), unwanted: "not wanted"}
        assert (less.seed, less.hosts, less.store) == (plan.seed, plan.hosts, plan.store)
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
