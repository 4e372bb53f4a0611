"""Contract of marks: bound to one run, judged at their size, and what stands in the way is said where one is missed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnkeeper.benchmarks.measuring.runs import Run
from turnkeeper.benchmarks.report.judging import Mark, judge
from turnkeeper.benchmarks.report.marks import MARKS

MARK = Mark("journal", "reading", "read ms", {"cache": "warm"}, at_most=2.0, size={"stored": 1000}, hindered="disks")


def read_run(ratio: float, **params: object) -> Run:
    """Give the run that the mark is bound to."""
    return Run("read ms", {"cache": "warm", "stored": 1000, **params}, {"ms": ratio * 10}, {"ms": 10.0}, ratio)


def test_a_mark_is_met_or_missed() -> None:
    """At most what it says; the run notes it, and only a missed one says what stands in the way."""
    run = read_run(2.0)
    (judged,) = judge([run], [MARK])
    assert (judged.verdict, judged.value, judged.hindered) == ("met", 2.0, "")
    assert run.marks == [{"of": "ratio", "at_most": 2.0, "met": True}]
    run.ratio = 2.1
    (judged,) = judge([run], [MARK])
    assert (judged.verdict, judged.value, judged.hindered) == ("missed", 2.1, "disks")
    assert run.marks == [{"of": "ratio", "at_most": 2.0, "met": False}]


def test_a_mark_may_be_of_a_figure_and_a_lower_bound() -> None:
    """Not only ratios are marked."""
    mark = Mark("journal", "reading", "read ms", figure="ms", at_least=20.0)
    assert [judge([read_run(ratio)], [mark])[0].verdict for ratio in (2.0, 1.9)] == ["met", "missed"]


def test_a_run_of_another_size_is_shown_and_not_judged() -> None:
    """What holds for a thousand events says nothing of ten; where there is a run of the size, that one counts."""
    small, large = read_run(5.0, stored=10), read_run(1.0)
    (judged,) = judge([small], [MARK])
    assert (judged.verdict, judged.value, small.marks) == ("another size", 5.0, [])
    (judged,) = judge([small, large], [MARK])
    assert (judged.verdict, judged.value) == ("met", 1.0)


def test_a_mark_without_its_run_was_not_measured() -> None:
    """Neither another name nor other parameters will do."""
    other = replace(read_run(1.0), name="read s")
    assert judge([other, read_run(1.0, cache="cold")], [MARK])[0].verdict == "not measured"


def test_a_verdict_says_whether_every_round_stands_as_the_median_does() -> None:
    """A sceptic sees that a result is narrow."""
    run = read_run(1.9)
    run.bounds = {"ratio": (1.5, 2.2)}
    assert judge([run], [MARK])[0].words == "met, by the median"
    run.bounds = {"ratio": (1.5, 2.0)}
    assert judge([run], [MARK])[0].words == "met"


def test_what_has_to_be_told_from_none_is_judged_by_its_low_bound() -> None:
    """A slope whose bounds have zero between them is none."""
    mark = Mark("journal", "growth", "memory", figure="slope", at_most=0, bound="low")
    run = Run("memory", {}, {"slope": 3.0}, bounds={"slope": (-1.0, 7.0)})
    assert judge([run], [mark])[0].words == "met"
    run.bounds = {"slope": (1.0, 7.0)}
    assert judge([run], [mark])[0].words == "missed"


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: f"{mark.work}: {mark.what}")
def test_every_mark_has_one_bound(mark: Mark) -> None:
    """It can be met and missed, and is words that a table can hold."""
    assert (mark.at_most is None) != (mark.at_least is None)
    assert mark.is_met_by(-1e12) != mark.is_met_by(1e12)
    assert mark.words.startswith(("≤ ", "≥ "))
