"""The benchmark of killed session actors on a small input: each kill is survived, and what it lost would be told."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.benchmarks.actors import actors
from turnkeeper.benchmarks.actors.kills import NAME, left_of_turns, measure_kills, run_of_kills
from turnkeeper.benchmarks.measuring.bounds import bounds_of
from turnkeeper.benchmarks.measuring.runs import Figures, Run
from turnkeeper.benchmarks.report.judging import judge
from turnkeeper.benchmarks.report.marks import MARKS
from turnkeeper.benchmarks.workplace import Workplace, run_alone

WHOLE: Figures = {"restarts": 100, "durable_events": 900, "lost_events": 0, "open_turns": 0}

Told = tuple[str, dict[str, Any]]


def begin(turn: int) -> Told:
    """Give a turn's beginning."""
    return "turn/start", {"turn": turn}


def end(turn: int) -> Told:
    """Give the end of a turn that was interrupted."""
    return "turn/end", {"turn": turn, "reason": "interrupted"}


def entry(turn: int, number: int) -> Told:
    """Give an event of a turn."""
    return "agent/entry", {"turn": turn, "number": number}


TWO_TURNS = [begin(1), entry(1, 0), entry(1, 1), end(1), begin(2), entry(2, 0), end(2)]
DURABLE = [(1, 0), (1, 1), (2, 0)]


def test_an_actor_is_killed_and_what_is_left_is_counted(tmp_path: Path) -> None:
    """Each kill is a restart, and what the actor knew to be durable is in the store; a plain program has its turns."""

    def measure(place: Workplace) -> list[Run]:
        return [measure_kills(2, place)]

    (run,) = run_alone("kills", measure, tmp_path)["runs"]
    assert (run["name"], run["params"]["kills"], run["params"]["rounds"]) == (NAME, 2, 2)
    figures, base = run["figures"], run["base"]
    assert (figures["restarts"], figures["lost_events"], figures["open_turns"]) == (2, 0, 0)
    assert figures["durable_events"] >= 3  # the first ones of all turns
    for taken, parts in [(figures, ("respawn_ms", "open_ms", "append_ms")), (base, ("respawn_ms", "append_ms"))]:
        assert all(0 < taken[part] < taken["p99_ms"] for part in parts)
        assert taken["p50_ms"] <= taken["p99_ms"]
    assert run["bounds"]["p50_ms"][0] < figures["p50_ms"] < run["bounds"]["p50_ms"][1]
    assert [path.name for path in tmp_path.iterdir()] == ["kills.json"]


def test_they_are_part_of_the_actors_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred kills in full, some in its quick form, and none where no number is said."""
    monkeypatch.setattr(actors, "_compare", lambda *arguments: [])
    monkeypatch.setattr(actors, "measure_kills", lambda kills, place: Run(NAME, {"kills": kills}, {}))
    told = []
    for sizes in (actors.FULL, actors.QUICK, replace(actors.QUICK, kills=0)):
        measure = partial(actors.measure, sizes, libraries=())
        told.append([run["params"]["kills"] for run in run_alone("actors", measure, tmp_path)["runs"]])
    assert told == [[100], [5], []]


def test_an_event_that_is_gone_or_there_twice_is_lost() -> None:
    """Of those that were known as durable; one that nobody knew of may be there, or not."""
    whole = {"durable_events": 3, "lost_events": 0, "open_turns": 0}
    assert left_of_turns(TWO_TURNS, DURABLE) == whole
    assert left_of_turns([*TWO_TURNS[:3], entry(1, 2), *TWO_TURNS[3:]], DURABLE) == whole
    for number, event in enumerate(TWO_TURNS):
        if event[0] == "agent/entry":
            without = TWO_TURNS[:number] + TWO_TURNS[number + 1 :]
            assert left_of_turns(without, DURABLE) == {**whole, "lost_events": 1}
            assert left_of_turns([*TWO_TURNS[:number], event, *TWO_TURNS[number:]], DURABLE) == {
                **whole,
                "lost_events": 1,
            }


def test_a_turn_that_has_no_end_before_the_next_one_or_the_last_event_is_open() -> None:
    """An end that comes later is the next one's."""
    for number, event in enumerate(TWO_TURNS):
        if event[0] == "turn/end":
            without = TWO_TURNS[:number] + TWO_TURNS[number + 1 :]
            assert left_of_turns(without, DURABLE)["open_turns"] == 1
    assert left_of_turns([begin(1), begin(2), begin(3), end(3)], [])["open_turns"] == 2


def test_percentiles_are_of_all_kills_and_bounds_of_rounds() -> None:
    """A hundred kills make ten rounds, and the slowest but one of them is their p99."""
    ours = [{"total_ms": float(each), "open_ms": 3.0} for each in range(1, 101)]
    run = run_of_kills(ours, [{"total_ms": each["total_ms"] / 2} for each in ours], WHOLE)
    assert (run.figures, run.base) == (
        {"p50_ms": 50, "p99_ms": 99, "open_ms": 3, **WHOLE},
        {"p50_ms": 25, "p99_ms": 49.5},
    )
    assert (run.ratio, run.params["rounds"]) == (2.0, 10)
    assert run.bounds["p50_ms"] == pytest.approx(bounds_of([float(each) for each in range(5, 100, 10)]), rel=1e-5)
    assert "p99_ms" not in run.bounds


@pytest.mark.parametrize(
    ("taken", "left", "verdicts"),
    [
        (300.0, {}, ["met", "met", "met"]),
        (301.0, {"lost_events": 1, "open_turns": 1}, ["missed", "missed", "missed"]),
    ],
)
def test_the_marks_are_those_of_a_hundred_kills(taken: float, left: Figures, verdicts: list[str]) -> None:
    """Soon enough, nothing lost, no turn left open; fewer kills are shown and not judged."""
    marks = [mark for mark in MARKS if mark.name == NAME]
    kills = [{"total_ms": taken}] * 100
    assert [each.verdict for each in judge([run_of_kills(kills, kills, WHOLE | left)], marks)] == verdicts
    few = run_of_kills(kills[:99], kills[:99], WHOLE)
    assert {each.verdict for each in judge([few], marks)} == {"another size"}
