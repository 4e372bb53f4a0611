"""The opening loop's decisions, with a clock and a chance of the test's own."""

from __future__ import annotations

import pytest

from turnkeeper.actors.client.opening_loop import (
    HELD_SECONDS,
    RETURN_SECONDS,
    OpeningLoop,
    OutOfPatience,
    Pause,
    StartCandidate,
)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock that stands."""
    return Clock()


def opening(clock: Clock, *, first: bool, chance: float = 0.5) -> OpeningLoop:
    """Begin an opening with a patience of ten seconds."""
    return OpeningLoop(first=first, patience=10.0, clock=clock, chance=lambda: chance)


def test_the_first_to_open_a_free_store_starts_a_candidate_at_once(clock: Clock) -> None:
    """Opening costs no pause where nobody else is about."""
    assert opening(clock, first=True).next_step(is_held=False) == StartCandidate()


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_who_comes_back_pauses_and_looks_again_before_it_starts_one(clock: Clock, chance: float) -> None:
    """All clients of a node that died find the lock free at once; few of them need to do anything about it."""
    loop = opening(clock, first=False, chance=chance)
    step = loop.next_step(is_held=False)
    assert isinstance(step, Pause)
    assert RETURN_SECONDS[0] <= step.seconds <= RETURN_SECONDS[1]
    assert loop.next_step(is_held=False) == StartCandidate()
    assert isinstance(loop.next_step(is_held=False), Pause)


def test_somebody_elses_lock_in_between_means_pausing_again(clock: Clock) -> None:
    """Free, held, free: that was another node's whole life, and again many find it gone."""
    loop = opening(clock, first=False)
    loop.next_step(is_held=False)
    loop.next_step(is_held=True)
    assert isinstance(loop.next_step(is_held=False), Pause)


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_a_held_lock_is_only_waited_for(clock: Clock, chance: float) -> None:
    """Whoever holds it starts, ends or is stuck; nothing is started beside it."""
    loop = opening(clock, first=True, chance=chance)
    for _ in range(100):
        step = loop.next_step(is_held=True)
        assert isinstance(step, Pause)
        assert HELD_SECONDS[0] <= step.seconds <= HELD_SECONDS[1]


def test_the_first_is_one_of_many_once_it_has_seen_another(clock: Clock) -> None:
    """Fifty that open at once, and whose node dies, come back like everybody else."""
    held = opening(clock, first=True)
    held.next_step(is_held=True)
    assert isinstance(held.next_step(is_held=False), Pause)
    met = opening(clock, first=True)
    met.see_others()
    assert isinstance(met.next_step(is_held=False), Pause)
    busy = opening(clock, first=True)
    assert busy.next_step(is_held=False) == StartCandidate()
    assert isinstance(busy.next_step(is_held=False), Pause)


def test_patience_ends_unless_the_node_is_heard(clock: Clock) -> None:
    """Ten seconds from the beginning, or from the last word of a node that is opening the store."""
    loop = opening(clock, first=True)
    clock.now += 9.0
    assert loop.remaining() == 1.0
    loop.hear()
    clock.now += 9.0
    assert isinstance(loop.next_step(is_held=True), Pause)
    clock.now += 1.0
    assert loop.next_step(is_held=True) == OutOfPatience()
    assert loop.next_step(is_held=False) == OutOfPatience()
    assert loop.remaining() == 0.0
