"""Walks through the model's worlds, everywhere or along a trace, and what they find broken."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .invariants import INVARIANTS
from .steps import successors
from .worlds import Invariant, Phase, Rules, World


def violation(world: World, rules: Rules, ignored: frozenset[Invariant] = frozenset()) -> Invariant | None:
    """Return the first invariant that this world breaks and that isn't ignored, or None."""
    for invariant, holds in INVARIANTS:
        if not holds(world) and invariant not in ignored:
            return invariant
    return Invariant.NEVER_STUCK if _stuck(world, rules) and Invariant.NEVER_STUCK not in ignored else None


def _stuck(world: World, rules: Rules) -> bool:
    pending = any(client.waiting or client.unacknowledged or client.phase is Phase.ASKING for client in world.clients)
    return pending and not any(step.voluntary for step in successors(world, rules))


class CounterExample(NamedTuple):
    """A shortest way to a broken invariant."""

    invariant: Invariant
    trace: tuple[str, ...]
    world: World

    def __str__(self) -> str:
        steps = "\n".join(f"  {number:2} {label}" for number, label in enumerate(self.trace, 1))
        return f"broken: {self.invariant}\n{steps}\n{self.world}"


class Exploration(NamedTuple):
    """What a breadth-first walk saw. ``complete`` if there was nothing left to see."""

    worlds: dict[World, tuple[World, str] | None]
    complete: bool
    counter_example: CounterExample | None


def explore(first: World, rules: Rules, worlds_max: int, ignored: frozenset[Invariant] = frozenset()) -> Exploration:
    """Visit worlds breadth first until all are seen, ``worlds_max`` are, or an invariant that isn't ignored breaks."""
    worlds: dict[World, tuple[World, str] | None] = {first: None}
    ahead = deque([first])
    while ahead and len(worlds) < worlds_max:
        world = ahead.popleft()
        for step in successors(world, rules):
            if step.world in worlds:
                continue
            worlds[step.world] = (world, step.label)
            broken = violation(step.world, rules, ignored)
            if broken is not None:
                return Exploration(worlds, False, _counter_example(worlds, step.world, broken))
            ahead.append(step.world)
    return Exploration(worlds, not ahead, None)


def _counter_example(
    worlds: dict[World, tuple[World, str] | None], world: World, invariant: Invariant
) -> CounterExample:
    """Return the way that led to a world."""
    labels: list[str] = []
    here = world
    while (before := worlds[here]) is not None:
        here, label = before
        labels.append(label)
    return CounterExample(invariant, tuple(reversed(labels)), world)


def replay(first: World, trace: Iterable[str], rules: Rules) -> Iterator[World]:
    """Yield the worlds along a trace, the first one too.

    Raises:
        KeyError: a label of the trace names nothing that can happen there under these rules.
    """
    world = first
    yield world
    for label in trace:
        world = {step.label: step.world for step in successors(world, rules)}[label]
        yield world
