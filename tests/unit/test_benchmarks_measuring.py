"""Contract of measuring: whose turn it is, what a percentile is, and how rounds become one result."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.benchmarks.measuring.bounds import bounds_of
from turnkeeper.benchmarks.measuring.runs import Rounds, in_blocks, interleaved, medians, percentile, run_of


def test_every_other_round_goes_the_other_way_about() -> None:
    """What grows evenly burdens all alike, and everybody is measured once a round."""
    order: list[str] = []
    measured = interleaved(3, {name: partial(order.append, name) for name in "abc"})
    assert order == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]
    assert {name: len(rounds) for name, rounds in measured.items()} == {"a": 3, "b": 3, "c": 3}


@given(st.lists(st.integers(), min_size=1), st.integers(1, 100))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(values: list[int], percent: int) -> None:
    """It is one of the values; fewer would be too few, and no smaller value would do."""
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


def test_a_percentile_of_nothing_is_refused() -> None:
    """No figure is made up where nothing was measured."""
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_a_median_is_taken_of_each_figure() -> None:
    """Rounds are joined figure by figure."""
    assert medians([{"a": 1, "b": 9}, {"a": 5, "b": 8}, {"a": 2, "b": 7}]) == {"a": 2, "b": 8}


def test_a_ratio_is_the_median_of_the_pairs() -> None:
    """One slow moment that both rounds of a pair share doesn't move it; its bounds are those of the pairs' ratios."""
    ours = [{"ms": 2.0, "mb": 5.0}, {"ms": 40.0, "mb": 6.0}, {"ms": 3.0, "mb": 7.0}]
    run = run_of("read ms", {"cache": "warm"}, ours, [{"ms": 1.0}, {"ms": 10.0}, {"ms": 2.0}], compared="ms")
    assert (run.figures, run.base, run.ratio) == ({"ms": 3.0, "mb": 6.0}, {"ms": 2.0}, 2.0)
    assert run.bounds.keys() == {"ms", "mb", "ratio"}
    assert run.bounds["mb"] == pytest.approx(bounds_of([5.0, 6.0, 7.0]), rel=1e-5)
    assert run.bounds["ratio"] == pytest.approx(bounds_of([2.0, 4.0, 1.5]), rel=1e-5)
    assert run.rounds == Rounds(
        {"ms": [2.0, 40.0, 3.0], "mb": [5.0, 6.0, 7.0]}, {"ms": [1.0, 10.0, 2.0]}, [2.0, 4.0, 1.5]
    )
    assert run.params == {"cache": "warm", "rounds": 3}


def test_one_round_has_no_bounds() -> None:
    """How far rounds differ isn't known then, and nothing is made up; nor is a ratio without a base."""
    run = run_of("disk", {}, [{"mb": 1.0}])
    assert (run.figures, run.ratio, run.bounds) == ({"mb": 1.0}, None, {})


def test_rounds_without_partners_are_refused() -> None:
    """A ratio of rounds that didn't take turns would say nothing."""
    with pytest.raises(ValueError, match="2 rounds of ours can't be compared with 1"):
        run_of("read ms", {}, [{"ms": 1.0}] * 2, [{"ms": 1.0}], compared="ms")


@given(st.lists(st.integers(), min_size=1, max_size=50), st.integers(1, 50))
def test_blocks_hold_every_value_once_and_in_order(values: list[int], count: int) -> None:
    """None is left out, and no block is longer than another by more than one."""
    if count > len(values):
        with pytest.raises(ValueError, match="can't make"):
            in_blocks(values, count)
        return
    blocks = in_blocks(values, count)
    assert [each for block in blocks for each in block] == values
    assert len(blocks) == count
    assert max(map(len, blocks)) - min(map(len, blocks)) <= 1
