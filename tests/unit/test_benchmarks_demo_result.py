"""Contract of the demo's result: what it calls a success, what it says was proven, and what a recovery is."""

from __future__ import annotations

from dataclasses import replace

from turnkeeper.benchmarks.demo import DemoResult
from turnkeeper.benchmarks.oracle import Verdict
from turnkeeper.benchmarks.replay.plan import make_plan
from turnkeeper.benchmarks.replay.progress import Column, Kill, Progress

GOOD = Verdict(sessions=8, events=10, acknowledged=10, found=10)


def result_of(found: Verdict) -> DemoResult:
    """Give the result of a demo with kills that the oracle judged so."""
    progress = Progress(seed=41, seconds=5.0)
    progress.store.kills = [Kill("writer", 11.0, replaced=11.0, served=11.3), Kill("node", 12.0)]
    progress.plain.kills = [Kill("agent", 11.0, replaced=11.0)]
    progress.plain.owners_let_in = progress.plain.torn_writes = 1
    plan = make_plan(41, 8, 5.0, [3], kill=True)
    plain = Verdict(unreadable=1, lost=2, repeated=9)
    return DemoResult(plan, progress, found, plain, file_system="ext4", elapsed=8.4)


def test_the_result_says_what_was_proven_and_what_not() -> None:
    """Death of processes, and not power loss."""
    proven = result_of(GOOD).proven
    assert "Proven: the death of processes (writer 1 x, node 1 x) lost nothing" in proven
    assert "Not proven: power loss" in proven
    assert "\n" not in proven


def test_the_plain_column_is_told_with_its_figures() -> None:
    """What was done on purpose is said to be, with what came of it."""
    text = " ".join(result_of(GOOD).about_plain)
    assert "unreadable 1" in text
    assert "what was appended behind: 2" in text
    assert "repeated 9" in text
    assert "these kills alone lose nothing" in text


def test_a_broken_promise_is_said_aloud() -> None:
    """One lost event makes the whole a failure, and so does a run in which nothing was acknowledged at all."""
    assert result_of(GOOD).is_clean
    for bad in (replace(GOOD, lost=1, found=9), replace(GOOD, disordered=1), replace(GOOD, acknowledged=0, found=0)):
        assert not result_of(bad).is_clean
        assert "a promise was broken" in result_of(bad).proven


def test_a_second_owner_who_was_let_in_is_a_broken_promise() -> None:
    """Also if nothing went wrong by it."""
    result = result_of(GOOD)
    result.progress.store.owners_let_in = 1
    assert not result.is_clean


def test_what_a_dying_node_s_writer_still_answered_is_no_recovery() -> None:
    """Only what the successor acknowledged counts, of what was appended after the kill."""
    column = Column("turnkeeper")
    kill = Kill("node", killed=20.0, replaced=20.4)
    column.take({"events": 1, "flushes": [(19.9, 20.001), (20.002, 20.005), (20.006, 20.7)]})
    assert column.recovery_ms(kill) == 700.0
    assert column.recovery_ms(Kill("node", killed=20.0)) is None
    assert column.serving_ms(kill) is None
