"""Contract of the report of chaos: what it counts over rounds, and the names that scripts read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from turnkeeper.benchmarks.chaos import report as reports
from turnkeeper.benchmarks.chaos.checker.violations import Violation

from ..chaos_reports import COURSE, FIGURES, report_of, round_report, violation

NAMES_OF_THE_DEMO = {
    "sessions", "events", "acknowledged", "found", "lost", "repeated", "holes", "open_turns", "tasks", "wrong_exits",
    "orphans", "kills", "flush_ms", "recovery_ms",
}  # fmt: skip
OWN_NAMES = {
    "seed", "rounds", "elapsed_seconds", "messages", "followed", "faults", "missed", "left_out", "broken",
    "broken_seeds", "violations", "kept", "plan", "stores",
}  # fmt: skip


def test_scripts_find_the_demo_s_names_and_some_more() -> None:
    """They are a promise: a name that goes, or means something else, breaks who reads it."""
    told = report_of(round_report(7), round_report(8, violation())).as_map()
    assert told.keys() == NAMES_OF_THE_DEMO | OWN_NAMES
    assert json.loads(json.dumps(told)) == told
    assert told["recovery_ms"].keys() == {"times", "p50", "p99", "max", "after", "histogram"}
    assert told["recovery_ms"]["histogram"][0] == {"from_ms": 100, "below_ms": 200, "times": 2}


def test_a_report_without_rounds_has_all_names_too() -> None:
    """As one that was interrupted at once would have."""
    told = report_of().as_map()
    assert told.keys() == NAMES_OF_THE_DEMO | OWN_NAMES
    assert told["recovery_ms"] == {"times": 0, "p50": None, "p99": None, "max": None, "after": {}, "histogram": []}
    assert told["flush_ms"] == {"p50": None, "p99": None}
    assert told["plan"] is None


def test_rounds_are_counted_by_the_kind_of_their_store() -> None:
    """As their plans have it; the first ones said nothing of it."""
    plans: list[dict[str, Any]] = [{}, {"store": {"backend": "journal", "part_bytes": 16384}}]
    plans += 2 * [{"store": {"backend": "sqlite", "part_bytes": part_bytes}} for part_bytes in (None, 16384)]
    report = report_of(*(replace(round_report(number), plan=plan) for number, plan in enumerate(plans)))
    assert report.as_map()["stores"] == {"journal": 1, "journal of small segments": 1, "SQLite": 4}
    assert report.stores_text == "4 SQLite, 1 journal, 1 journal of small segments"


def test_rounds_add_up() -> None:
    """Kills count processes, faults those that were done, recoveries stand by whom was killed."""
    told = report_of(round_report(7), round_report(8)).as_map()
    assert (told["seed"], told["rounds"], told["elapsed_seconds"]) == (7, 2, 61.0)
    assert {name: told[name] for name in FIGURES} == {name: 2 * count for name, count in FIGURES.items()}
    assert told["kills"] == {"writer": 4, "host": 2, "node": 2, "shim": 6}
    assert told["faults"] == {"slow": 2, "index-damaged": 2}
    assert told["missed"] == {"eio": 2}
    assert told["left_out"] == {"clock": "libfaketime is not installed"}
    assert told["recovery_ms"]["after"] == {
        "writer": {"times": 4, "p50": 181.0, "p99": 1420.0, "max": 1420.0},
        "node": {"times": 2, "p50": 1420.0, "p99": 1420.0, "max": 1420.0},
    }
    assert told["flush_ms"]["p50"] == pytest.approx(2.0, rel=0.01)
    assert told["flush_ms"]["p99"] == pytest.approx(4.0, rel=0.01)
    assert {name: told["recovery_ms"][name] for name in ("times", "p50", "max")} == {
        "times": 6,
        "p50": 1420.0,
        "max": 1420.0,
    }


def test_what_is_not_found_is_lost() -> None:
    """Of what was acknowledged."""
    round = replace(round_report(7), figures={**FIGURES, "acknowledged": 4003})
    assert report_of(round).as_map()["lost"] == 3


@pytest.mark.parametrize(
    ("promise", "name"),
    [
        ("found is sent", "repeated"),
        ("sent once", "repeated"),
        ("accepted once", "repeated"),
        ("numbers", "holes"),
        ("turns", "open_turns"),
        ("one task", "wrong_exits"),
        ("task ends", "wrong_exits"),
        ("task runs", "wrong_exits"),
        ("nothing is left", "orphans"),
        ("followers", None),
    ],
)
def test_a_broken_promise_counts_under_the_demo_s_name_of_it(promise: str, name: str | None) -> None:
    """And under none, where the demo has none; it is a broken promise all the same."""
    report = report_of(round_report(7, violation(promise=promise)))
    told = report.as_map()
    counted = {each for each in ("repeated", "holes", "open_turns", "wrong_exits", "orphans") if told[each]}
    assert counted == ({name} if name else set())
    assert told["broken"] == {promise: 1}
    assert not report.is_clean


def test_each_violation_says_in_which_round_it_was() -> None:
    """With all that the checker says of it: so it is found in what was kept, and played again."""
    checked = Violation(
        "turns", "brave-otter", "turn 3 is open", 9, {"file": "a", "line": 3, "at": 1.5, "what": "turn"}, ("j",), ("n",)
    )
    told = report_of(round_report(7), round_report(8, checked.as_map()), round_report(9)).as_map()
    assert told["violations"] == [
        {
            "seed": 8,
            "promise": "turns",
            "subject": "brave-otter",
            "says": "turn 3 is open",
            "seq": 9,
            "file": "a",
            "line": 3,
            "at": 1.5,
            "journal": ["j"],
            "notes": ["n"],
        }
    ]
    assert told["broken_seeds"] == [8]
    assert told["kept"] == ["/tmp/turnkeeper-chaos/round-8"]


def test_the_plan_is_the_one_to_look_at() -> None:
    """The shortest that breaks a promise, else the first that did, else that of the first round."""
    report = report_of(round_report(7), round_report(8))
    assert report.as_map()["plan"]["seed"] == 7
    report.take(round_report(9, violation()))
    report.take(round_report(10, violation()))
    assert report.as_map()["plan"]["seed"] == 9
    report.shortest = {"seed": 9, "lives": [], "shorter": True}
    assert report.as_map()["plan"] == report.shortest


def test_a_long_run_keeps_some_rounds_and_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first clean ones, and the first broken ones however late they come."""
    monkeypatch.setattr(reports, "ROUNDS_SHOWN_MAX", 2)
    report = report_of(
        *(round_report(seed) for seed in range(5)), *(round_report(seed, violation()) for seed in (5, 6, 7))
    )
    assert [each.seed for each in report.shown] == [0, 1, 5, 6]
    assert report.rounds == 8
    assert report.broken_seeds == [5, 6, 7]
    assert report.figures["events"] == 8 * FIGURES["events"]
    assert report.kills["shim"] == 8 * COURSE.kills["shim"]
    assert report.broken == {"acknowledged is found": 3}


def test_faults_are_told_with_those_that_were_not_done() -> None:
    """Each once: how often it was done, how often it hit nobody, why it was left out."""
    assert report_of(round_report(7)).fault_rows == [
        ("slow", 1, 0, ""),
        ("index-damaged", 1, 0, ""),
        ("eio", 0, 1, ""),
        ("clock", 0, 0, "libfaketime is not installed"),
    ]
