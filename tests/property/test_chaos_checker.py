"""Property: whatever clean history a round has, the oracle of chaos says nothing; whatever is changed in it is found.

Two forms: with readers, who have seen everything, any change of an event is found. Without them, any change of what was
acknowledged is; what nobody was told of may be lost, and nobody could tell.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ..chaos_histories import MadeRound, MadeRun, made_round

SEEDS = st.integers(0, 10**9)


class Place(NamedTuple):
    """Where an event stands: the place of its run, and its place in that."""

    run: int
    line: int


Change = Callable[[MadeRound, Place], None]


# -- Changes


def shift(made: MadeRound, stream: str, behind: int, by: int) -> None:
    """Give other numbers to what stands in a stream behind a run."""
    for run in made.runs[behind + 1 :]:
        if run.stream == stream:
            run.seq += by
            run.lines[:] = [(seq + by, type, data) for seq, type, data in run.lines]


def close_up(run: MadeRun) -> None:
    """Number a run's lines one by one."""
    run.lines[:] = [(run.seq + place, type, data) for place, (_, type, data) in enumerate(run.lines)]


def lose(made: MadeRound, place: Place) -> None:
    """Lose an event; what is behind it closes up."""
    run = made.runs[place.run]
    del run.lines[place.line]
    close_up(run)
    shift(made, run.stream, place.run, -1)


def leave_a_hole(made: MadeRound, place: Place) -> None:
    """Lose an event; what is behind it keeps its number."""
    del made.runs[place.run].lines[place.line]


def repeat(made: MadeRound, place: Place) -> None:
    """Store an event twice, the second time under the next number."""
    run = made.runs[place.run]
    run.lines.insert(place.line, run.lines[place.line])
    close_up(run)
    shift(made, run.stream, place.run, 1)


def repeat_number(made: MadeRound, place: Place) -> None:
    """Store an event twice, under one number."""
    run = made.runs[place.run]
    run.lines.insert(place.line, run.lines[place.line])


def alter(made: MadeRound, place: Place) -> None:
    """Store another content."""
    run = made.runs[place.run]
    seq, type, data = run.lines[place.line]
    run.lines[place.line] = (seq, type, {**data, "$altered": "0" * 32})


def retype(made: MadeRound, place: Place) -> None:
    """Store an event under another type."""
    run = made.runs[place.run]
    seq, _, data = run.lines[place.line]
    run.lines[place.line] = (seq, "my/other", data)


def store_under_a_former_epoch(made: MadeRound, place: Place) -> None:
    """Store a run under the epoch before its own."""
    made.runs[place.run].epoch -= 1


def store_under_a_later_epoch(made: MadeRound, place: Place) -> None:
    """Store a run under an epoch that nobody was granted."""
    made.runs[place.run].epoch += 1


ANY: list[Change] = [lose, leave_a_hole, repeat, repeat_number, alter, retype]
OF_OWNED: list[Change] = [*ANY, store_under_a_former_epoch, store_under_a_later_epoch]


def swap(made: MadeRound, one: Place, other: Place) -> None:
    """Give two events each other's place."""
    lines, others = made.runs[one.run].lines, made.runs[other.run].lines
    first, second = lines[one.line], others[other.line]
    lines[one.line], others[other.line] = (first[0], *second[1:]), (second[0], *first[1:])


# -- Places


def all_events(made: MadeRound) -> list[Place]:
    """Give the places of all events."""
    return [Place(run, line) for run, each in enumerate(made.runs) for line in range(len(each.lines))]


def acknowledged_events(made: MadeRound) -> list[Place]:
    """Give the places of events that were sent and acknowledged."""
    told: set[tuple[str, int]] = set()
    for outcome in made.evidence().outcomes:
        due = max((each.items for each in outcome.opening.acknowledgements), default=0)
        pairs = list(zip(outcome.opening.items, outcome.seqs, strict=True))[:due]
        told |= {(outcome.opening.session, seq) for item, seq in pairs if seq is not None and item.type is not None}
    return [place for place in all_events(made) if _number(made, place) in told]


def _number(made: MadeRound, place: Place) -> tuple[str, int]:
    run = made.runs[place.run]
    return run.stream, run.lines[place.line][0]


def read_by_all(made: MadeRound) -> MadeRound:
    """Have a round read and followed to its end."""
    made.read_all()
    made.follow("all")
    return made


# -- Properties


@settings(max_examples=35)
@given(SEEDS)
def test_a_clean_history_never_gives_a_violation(seed: int) -> None:
    """With readers and without."""
    made = made_round(seed)
    assert made.broken() == {}
    made.follow("some", after=seed % 7, count=5)
    assert read_by_all(made).broken() == {}


@pytest.mark.parametrize("change", ANY)
@settings(max_examples=35)
@given(seed=SEEDS)
def test_any_change_of_an_event_that_readers_saw_is_found(change: Change, seed: int) -> None:
    """Of sessions, forks, inboxes and tasks alike."""
    made = read_by_all(made_round(seed))
    change(made, random.Random(seed).choice(all_events(made)))
    assert made.broken()


@pytest.mark.parametrize("change", OF_OWNED)
@settings(max_examples=35)
@given(seed=SEEDS)
def test_any_change_of_an_acknowledged_event_is_found(change: Change, seed: int) -> None:
    """By what its agent noted, and by what the journal says of epochs, without any reader."""
    made = made_round(seed)
    change(made, random.Random(seed).choice(acknowledged_events(made)))
    assert made.broken()


@settings(max_examples=35)
@given(SEEDS)
def test_events_of_a_session_in_another_order_are_found(seed: int) -> None:
    """Any two that were sent, by the same opening or by two of them."""
    made, rng = made_round(seed), random.Random(seed)
    places = acknowledged_events(made)
    one = rng.choice(places)
    others = [each for each in places if each != one and made.runs[each.run].stream == made.runs[one.run].stream]
    if others:
        swap(made, one, rng.choice(others))
        assert made.broken()


@settings(max_examples=35)
@given(SEEDS)
def test_a_missing_grant_is_found(seed: int) -> None:
    """Whoever works under an epoch was granted it."""
    made, rng = made_round(seed), random.Random(seed)
    grants = [run for run in made.runs if run.patch.get("owner") and not run.lines]
    if grants:
        made.runs.remove(rng.choice(grants))
        assert made.broken()
