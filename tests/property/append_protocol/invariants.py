"""What has to hold in every world of the model. What breaks one is a defect of the rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from .journals import events_of, good_cells, lines_of, power_cuts, survivors
from .worlds import JOURNALS_REMEMBERED, Invariant, Journal, Phase, Run, Verdict, World


@lru_cache(JOURNALS_REMEMBERED)
def _exactly_once_in_order(cache: Journal) -> bool:
    events = events_of(cache)
    numbered = all(event.seq == seq for seq, event in enumerate(events))
    return numbered and len({event.line for event in events}) == len(events)


def _acknowledged_to_its_epoch(world: World) -> bool:
    missing = world.acknowledged - lines_of(world.cache)
    return not missing or not {line for _, line in missing} & {line for _, line in lines_of(world.cache)}


def _acknowledged_is_durable(world: World) -> bool:
    return world.acknowledged <= survivors(world.cache, world.disk, world.dirty)


@lru_cache(JOURNALS_REMEMBERED)
def _no_false_damage(cache: Journal, disk: Journal, dirty: frozenset[int]) -> bool:
    return not any(
        isinstance(cell, Run) for outcome in power_cuts(cache, disk, dirty) for cell in outcome[good_cells(outcome) :]
    )


def _acknowledged_is_readable(world: World) -> bool:
    return world.indexed is None or world.acknowledged <= lines_of(world.cache[: world.indexed.cells])


def _refused_is_not_stored(world: World) -> bool:
    stored = lines_of(world.cache)
    if not world.refused.isdisjoint(stored):
        return False
    return not any(
        (answer.epoch, line) in stored
        for writer in world.writers
        for answer in writer.answers
        if answer.verdict is Verdict.FULL
        for line in answer.lines[answer.stored :]
    )


def _fenced_stays_out(world: World) -> bool:
    return not any(
        event.epoch < epoch and event.seq >= head for epoch, head in world.granted for event in events_of(world.cache)
    )


@lru_cache(JOURNALS_REMEMBERED)
def _closed_once(cache: Journal) -> bool:
    return sum(event.line.startswith("closing") for event in events_of(cache)) <= 1


def _closed_as_shown(world: World) -> bool:
    shown = world.shown
    return shown is None or not any(
        event.seq == shown.seq and event.line.startswith("closing") and event.line != shown.line
        for event in events_of(world.cache)
    )


def _refused_for_a_reason(world: World) -> bool:
    return all(client.phase is not Phase.MISLED for client in world.clients)


INVARIANTS: Final[tuple[tuple[Invariant, Callable[[World], bool]], ...]] = (
    (Invariant.TURN_CLOSED_ONCE, lambda world: _closed_once(world.cache)),
    (Invariant.EXACTLY_ONCE_IN_ORDER, lambda world: _exactly_once_in_order(world.cache)),
    (Invariant.ACKNOWLEDGED_TO_ITS_EPOCH, _acknowledged_to_its_epoch),
    (Invariant.ACKNOWLEDGED_IS_DURABLE, _acknowledged_is_durable),
    (Invariant.NO_FALSE_DAMAGE, lambda world: _no_false_damage(world.cache, world.disk, world.dirty)),
    (Invariant.ACKNOWLEDGED_IS_READABLE, _acknowledged_is_readable),
    (Invariant.REFUSED_IS_NOT_STORED, _refused_is_not_stored),
    (Invariant.FENCED_STAYS_OUT, _fenced_stays_out),
    (Invariant.CLOSED_AS_SHOWN, _closed_as_shown),
    (Invariant.REFUSED_FOR_A_REASON, _refused_for_a_reason),
)
"""All but ``NEVER_STUCK``, which needs the rules, in the order in which a world that breaks several is blamed."""
