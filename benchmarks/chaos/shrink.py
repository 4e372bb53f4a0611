"""Make a plan that breaks a promise shorter: leave parts out, one after another, as long as it still does.

The processes of a round run as the machine lets them, so a plan that broke a promise may not do so again: what is left
out is what the promise is broken without, not all that it could be broken without.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from .plan import HostPlan, Life, RoundPlan

Part = TypeVar("Part")


def shrunk(plan: RoundPlan, is_broken: Callable[[RoundPlan], bool], seconds: float) -> RoundPlan:
    """Look for a shorter plan by which a promise is broken; after so many seconds begin nothing more.

    `is_broken` plays a plan. What is left out in the order of how much: lives, copies, small parts of the store, hosts,
    strikes, agents, habits.
    """
    deadline = time.monotonic() + seconds
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for shorter in shorter_plans(plan):
            if time.monotonic() > deadline:
                return plan
            if is_broken(shorter):
                plan, is_shorter = shorter, True
                break
    return plan


def shorter_plans(plan: RoundPlan) -> Iterator[RoundPlan]:
    """Give each plan that has one thing less."""
    if len(plan.lives) > 1:
        yield from (replace(plan, lives=each) for each in _without_one(plan.lives))
    yield from (replace(plan, copies=each) for each in _without_one(plan.copies))
    if plan.store.part_bytes is not None:
        yield replace(plan, store=replace(plan.store, part_bytes=None))
    if len(plan.hosts) > 1:
        yield from (replace(plan, hosts=each) for each in _without_one(plan.hosts))
    for place, life in enumerate(plan.lives):
        yield from (replace(plan, lives=_with(plan.lives, place, each)) for each in _shorter_lives(life))
    for place, host in enumerate(plan.hosts):
        yield from (replace(plan, hosts=_with(plan.hosts, place, each)) for each in _shorter_hosts(host))


def _shorter_lives(life: Life) -> Iterator[Life]:
    if life.ending != "in order":
        yield replace(life, ending="in order")
    if life.index != "kept":
        yield replace(life, index="kept")
    yield from (replace(life, disturbances=each) for each in _without_one(life.disturbances))
    yield from (replace(life, kills=each) for each in _without_one(life.kills))
    for place, kill in enumerate(life.kills):
        if len(kill.roles) > 1:
            for roles in _without_one(kill.roles):
                yield replace(life, kills=_with(life.kills, place, replace(kill, roles=roles)))


def _shorter_hosts(host: HostPlan) -> Iterator[HostPlan]:
    yield from (replace(host, followers=each) for each in _without_one(host.followers))
    if len(host.agents) > 1:
        yield from (replace(host, agents=each) for each in _without_one(host.agents))
    for place, agent in enumerate(host.agents):
        for habits in _without_one(agent.habits):
            yield replace(host, agents=_with(host.agents, place, replace(agent, habits=habits)))


def _without_one(parts: tuple[Part, ...]) -> Iterator[tuple[Part, ...]]:
    for place in range(len(parts)):
        yield parts[:place] + parts[place + 1 :]


def _with(parts: tuple[Part, ...], place: int, part: Part) -> tuple[Part, ...]:
    return (*parts[:place], part, *parts[place + 1 :])
