"""Contract of comparisons: a difference is told only where rounds show it, and what doesn't correspond is listed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest

from turnkeeper.benchmarks.measuring.runs import Measured, Run, run_of
from turnkeeper.benchmarks.report.comparing import Row, compare
from turnkeeper.benchmarks.report.results import Result

from ..bench_results import MACHINE, flush_runs, result_of

STEADY = [1.00, 1.01, 0.99, 1.02, 0.98]


def timed(values: Sequence[float], name: str = "read ms", compared: str = "ms", **params: object) -> Run:
    """Give a run of rounds without a base."""
    return run_of(name, params, [{compared: value} for value in values], compared=compared)


def row_of(before: Run, after: Run, machine: dict[str, object] | None = None) -> Row:
    """Compare two runs, which must correspond."""
    later = Result(machine or MACHINE, [Measured("load", 1.0, [after])])
    (row,) = compare(result_of(before, suite="load"), later).rows
    return row


def scaled(values: Sequence[float], by: float) -> list[float]:
    """Give all values times a number."""
    return [value * by for value in values]


@pytest.mark.parametrize(
    ("by", "compared", "verdict"),
    [
        (0.8, "ms", "better"),
        (1.25, "ms", "worse"),
        (1.005, "ms", "no difference told"),
        (1.25, "per_second", "better"),
        (0.8, "per_second", "worse"),
    ],
)
def test_a_difference_is_told_where_all_rounds_show_it(by: float, compared: str, verdict: str) -> None:
    """Less time is better, more a second is; what rounds differ by among themselves is no difference."""
    row = row_of(timed(STEADY, compared=compared), timed(scaled(STEADY, by), compared=compared))
    assert (row.verdict, row.of) == (verdict, compared)
    assert row.change is not None
    assert row.change == pytest.approx(by - 1, abs=0.001)
    assert row.bounds is not None
    assert row.bounds[0] <= row.change <= row.bounds[1]


def test_a_ratio_is_compared_before_the_time() -> None:
    """A machine that is twice as slow at both is no news."""

    def run(seconds: float) -> Run:
        ours, base = ([{"ms": value * factor * seconds} for value in STEADY] for factor in (2, 1))
        return run_of("read ms", {}, ours, base, compared="ms")

    row = row_of(run(1.0), run(2.0))
    assert (row.of, row.before, row.after, row.verdict) == ("ratio", 2.0, 2.0, "no difference told")


def test_one_round_shows_nothing_and_few_show_much_less() -> None:
    """However far apart they are: nothing says how much rounds differ."""
    row = row_of(timed(STEADY[:1]), timed(scaled(STEADY[:1], 5)))
    assert (row.verdict, row.bounds, row.is_within, row.why) == ("no difference told", None, None, "measured once")
    assert row.change == pytest.approx(4)
    assert row_of(timed(STEADY[:2]), timed(scaled(STEADY[:2], 1.18))).verdict == "no difference told"
    assert row_of(timed(STEADY), timed(scaled(STEADY, 1.18))).verdict == "worse"


def test_a_count_that_differs_is_another_count() -> None:
    """Rounds that are all the same have no noise: any change of them was made."""
    row = row_of(timed([760.0] * 3), timed([761.0] * 3))
    assert (row.verdict, row.is_within) == ("worse", False)
    assert row_of(timed([760.0] * 3), timed([760.0] * 3)).is_within


def test_times_of_two_machines_are_not_compared_but_ratios_are() -> None:
    """The rows say so, and the comparison names what differs."""
    slow = {**MACHINE, "cores": 1}
    assert row_of(timed(STEADY), timed(scaled(STEADY, 5)), slow).why == "times of two machines"
    comparison = compare(result_of(*flush_runs(0.2)), Result(slow, [Measured("flush", 1.0, flush_runs(0.4))]))
    assert comparison.machine == {"cores": [2, 1]}
    assert [row.verdict for row in comparison.rows] == ["worse"] * 4


@pytest.mark.parametrize("values", [[0.0] * 5, [-3.0, 2.0, 1.0, 4.0, 5.0], [0.0, 1.0, 1.0, 1.0, 1.0]])
def test_nothing_is_no_base_of_a_change(values: list[float]) -> None:
    """Zombies, or the slope of memory: no ratio is made of them, and nothing breaks."""
    row = row_of(timed(values), timed(STEADY))
    assert (row.verdict, row.why) == ("no difference told", "no relation to nothing")


def test_the_same_result_differs_in_nothing() -> None:
    """Compared with itself, all medians lie where they were."""
    comparison = compare(result_of(*flush_runs()), result_of(*flush_runs()))
    assert [row.verdict for row in comparison.rows] == ["no difference told"] * 4
    assert comparison.within == (4, 4)
    assert comparison.only_before == comparison.only_after == []


def test_chance_alone_is_seldom_told_as_a_difference() -> None:
    """Of a hundred pairs that measure the same, with noise of ten percent, about one differs, and no more than four."""
    draw = random.Random(7)

    def runs() -> list[Run]:
        return [timed([draw.lognormvariate(0, 0.1) for _ in range(7)], part=number) for number in range(100)]

    comparison = compare(result_of(*runs()), result_of(*runs()))
    assert len(comparison.rows) - comparison.count("no difference told") <= 4


def test_what_does_not_correspond_is_listed_with_what_differs() -> None:
    """A run of another size is no partner; what a run only finds, as versions, doesn't part two."""
    before = result_of(timed(STEADY, stored=10, installed="x 1"), timed(STEADY, "old ms"), suite="load")
    after = result_of(timed(STEADY, stored=20, installed="x 2"), timed(STEADY, "new ms"), suite="load")
    comparison = compare(before, after)
    assert comparison.rows == []
    assert [(each.name, each.why) for each in comparison.only_before] == [
        ("read ms", "other stored"),
        ("old ms", "not measured there"),
    ]
    assert [each.name for each in comparison.only_after] == ["read ms", "new ms"]
    same = compare(before, result_of(timed(STEADY, stored=10, installed="x 2"), suite="load"))
    assert [row.name for row in same.rows] == ["read ms"]


def test_a_comparison_is_plain_values_and_the_same_each_time() -> None:
    """Scripts read it as JSON."""
    found = [compare(result_of(*flush_runs(0.2)), result_of(*flush_runs(0.21))).as_map() for _ in range(2)]
    assert json.loads(json.dumps(found[0])) == json.loads(json.dumps(found[1]))
    assert found[0]["rows"][0]["of"] == "ratio"
