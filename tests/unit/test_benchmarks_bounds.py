"""Contract of bounds: another run's median lies in them as often as they say; a change is told as seldom by chance."""

from __future__ import annotations

import random
import statistics

import pytest

from turnkeeper.benchmarks.measuring.bounds import BETWEEN_RUNS, EXPECTED, SURE, bounds_of, change_bounds, student_t

PAIRS = 1_000


def a_run(draw: random.Random, rounds: int, noise: float, between: float = BETWEEN_RUNS) -> list[float]:
    """Give rounds that differ by `noise`, of a run that differs from others by `between`."""
    of_run = draw.gauss(3.0, between)
    return [draw.lognormvariate(of_run, noise) for _ in range(rounds)]


@pytest.mark.parametrize("noise", [0.002, 0.05, 0.5])
@pytest.mark.parametrize("rounds", [3, 5, 7, 11])
def test_another_runs_median_lies_in_the_bounds_as_often_as_they_say(rounds: int, noise: float) -> None:
    """19 times of 20, whether rounds differ more than runs or less; three rounds know too little for quite as much."""
    draw = random.Random(rounds)
    within = 0
    for _ in range(PAIRS):
        low, high = bounds_of(a_run(draw, rounds, noise))
        within += low <= statistics.median(a_run(draw, rounds, noise)) <= high
    assert EXPECTED - (0.06 if rounds == 3 else 0.02) <= within / PAIRS <= EXPECTED + 0.04


@pytest.mark.parametrize("rounds", [3, 7])
def test_of_runs_that_measure_the_same_a_change_is_told_once_in_a_hundred_times(rounds: int) -> None:
    """And a change of half as much again nearly always."""
    draw = random.Random(rounds)
    told = found = 0
    for _ in range(PAIRS):
        before, after = (a_run(draw, rounds, 0.03) for _ in range(2))
        low, high = change_bounds(before, after)
        told += not low <= 0 <= high
        found += change_bounds(before, [value * 1.5 for value in after])[0] > 0
    assert told / PAIRS <= 1 - SURE + 0.01
    assert found / PAIRS >= 0.97


def test_the_bounds_lie_around_the_median_and_are_those_of_the_formula() -> None:
    """Worked out by hand: s of the logarithms 0, 0.1, 0.2 is 0.1, t is 4.303."""
    low, high = bounds_of([1.0, 1.105171, 1.221403])
    assert (low, high) == pytest.approx((0.701818, 1.740342), rel=1e-4)
    assert low * high == pytest.approx(1.105171**2)


def test_one_slow_round_moves_the_upper_bound_alone() -> None:
    """It says nothing of how fast others may be."""
    steady, disturbed = bounds_of([1.0, 1.01, 1.02, 1.03, 1.04]), bounds_of([1.0, 1.01, 1.02, 1.03, 5.0])
    assert steady[0] == disturbed[0]
    assert steady[1] < 1.2 < 2.0 < disturbed[1]


def test_where_no_logarithm_is_the_values_themselves_are_taken() -> None:
    """Zombies, or a slope."""
    low, high = bounds_of([-1.0, 0.0, 1.0])
    assert low == -high == pytest.approx(-4.4033, rel=1e-4)


def test_what_never_differs_is_a_count_and_has_no_other_value() -> None:
    """Nothing is added to it."""
    assert bounds_of([760.0] * 5) == (760.0, 760.0)
    assert change_bounds([760.0] * 5, [760.0] * 3) == (0.0, 0.0)
    assert change_bounds([100.0, 100.0], [150.0, 150.0]) == (0.5, 0.5)


def test_more_rounds_than_the_table_has_are_taken_for_as_many_as_it_has() -> None:
    """Which is wider than it had to be, by little."""
    assert student_t(EXPECTED, 1) == 12.706
    assert student_t(EXPECTED, 20) == student_t(EXPECTED, 1_000) == 2.086
    assert student_t(SURE, 5) == 4.032
