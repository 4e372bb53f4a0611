"""Contract of the demo's result: what it calls a success, what it says was proven, and what a recovery is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnkeeper.benchmarks.demonstration.demo import DemoResult
from turnkeeper.benchmarks.demonstration.oracle import Verdict
from turnkeeper.benchmarks.demonstration.plan import make_plan
from turnkeeper.benchmarks.demonstration.progress import Column, Kill, Progress
from turnkeeper.benchmarks.demonstration.task_oracle import TaskVerdict

GOOD = Verdict(sessions=8, events=10, acknowledged=10, found=10)
GOOD_TASKS = TaskVerdict(tasks=40)


def result_of(found: Verdict, tasks: TaskVerdict = GOOD_TASKS) -> DemoResult:
    """Give the result of a demo with kills that the oracle judged so."""
    progress = Progress(seed=41, seconds=5.0)
    progress.store.kills = [Kill("writer", 11.0, replaced=11.0, served=11.3), Kill("node", 12.0)]
    progress.plain.kills = [Kill("agent", 11.0, replaced=11.0)]
    progress.plain.owners_let_in = progress.plain.torn_writes = 1
    plan = make_plan(41, 8, 5.0, [3], kill=True)
    plain, plain_tasks = Verdict(unreadable=1, lost=2, repeated=9), TaskVerdict(tasks=40, wrong_exits=5, orphans=3)
    return DemoResult(plan, progress, found, plain, tasks, plain_tasks, file_system="ext4", elapsed=8.4)


def test_the_result_says_what_was_proven_and_what_not() -> None:
    """Death of processes, and not power loss."""
    proven = result_of(GOOD).proven
    assert "Proven: the death of processes (writer 1 x, node 1 x) lost nothing" in proven
    assert "all 40 tasks ended as they had to, and left nothing behind" in proven
    assert "Not proven: power loss" in proven
    assert "\n" not in proven


def test_the_plain_column_is_told_with_its_figures() -> None:
    """What was done on purpose is said to be, with what came of it."""
    text = " ".join(result_of(GOOD).about_plain)
    assert "unreadable 1" in text
    assert "what was appended behind: 2" in text
    assert "repeated 9" in text
    assert "these kills alone lose nothing" in text
    assert "of 40 tasks, 5 ended and nobody knows how" in text
    assert "Processes that nobody would have stopped: 3" in text


def test_a_broken_promise_is_said_aloud() -> None:
    """One lost event makes the whole a failure, and so does a run in which nothing was acknowledged at all."""
    assert result_of(GOOD).is_clean
    for bad in (replace(GOOD, lost=1, found=9), replace(GOOD, disordered=1), replace(GOOD, acknowledged=0, found=0)):
        assert not result_of(bad).is_clean
        assert "a promise was broken" in result_of(bad).proven


@pytest.mark.parametrize("kind", ["wrong_exits", "wrong_runs", "wrong_outputs", "wrong_notices", "orphans"])
def test_one_task_that_went_wrong_is_a_broken_promise(kind: str) -> None:
    """Whatever it is: its end, its run, its output, its notice, or a process that it left."""
    result = result_of(GOOD, replace(GOOD_TASKS, **{kind: 1}, violations=("task a",)))
    assert not result.is_clean
    assert "a promise was broken" in result.proven
    assert result.as_map()[kind] == 1
    assert result.as_map()["violations"] == ["task a"]
    assert not result_of(GOOD, TaskVerdict()).is_clean


def test_a_second_owner_who_was_let_in_is_a_broken_promise() -> None:
    """Also if nothing went wrong by it."""
    result = result_of(GOOD)
    result.progress.store.owners_let_in = 1
    assert not result.is_clean


def test_what_a_dying_node_s_writer_still_answered_is_no_recovery() -> None:
    """Only what the successor acknowledged counts, of what was appended after the kill."""
    column = Column("turnkeeper")
    kill = Kill("node", killed=20.0, replaced=20.4)
    flushes = [(19.9, 20.001), (20.002, 20.005), (20.006, 20.7)]
    column.take({"events": 1, "flushes": flushes, "starts": [(19.8, 20.05), (20.1, 20.15)]})
    assert column.recovery_ms(kill) == 700.0
    assert column.recovery_ms(Kill("spawner", killed=20.0, replaced=20.0)) == 150.0
    assert column.recovery_ms(Kill("node", killed=20.0)) is None
    assert column.serving_ms(kill) is None
