"""Contract of the demo's display: what people see while it runs and at its end, and nothing where nobody looks."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from turnkeeper.benchmarks.demo import DemoResult
from turnkeeper.benchmarks.demo_display import LiveDisplay, verdict
from turnkeeper.benchmarks.oracle import Verdict
from turnkeeper.benchmarks.replay.plan import make_plan
from turnkeeper.benchmarks.replay.progress import Kill, Progress


def progress_with_kills() -> Progress:
    """Give the progress of a demo in which one writer came back and a node hasn't yet."""
    progress = Progress(seed=41, seconds=5.0, phase="replaying")
    progress.store.take({"events": 1234, "flushes": [(10.0, 10.002), (11.001, 11.321)]})
    progress.store.kills = [Kill("writer", 11.0, replaced=11.0, served=11.3), Kill("node", 12.0)]
    progress.store.owners_refused = 1
    progress.plain.owners_let_in = 1
    return progress


def result_of(found: Verdict) -> DemoResult:
    """Give the result of a demo that the oracle judged so."""
    plan = make_plan(41, 8, 5.0, [3], kill=True)
    return DemoResult(plan, progress_with_kills(), found, Verdict(unreadable=1), file_system="ext4", elapsed=8.4)


def shown(result: DemoResult) -> str:
    """Give the end of the demo as plain text."""
    console = Console(file=io.StringIO(), width=120)
    console.print(verdict(result))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_terminal_shows_events_latency_and_kills_while_it_goes() -> None:
    """Both columns, each kill with the time until it was served again, and how long one has been down."""
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with LiveDisplay(console) as display:
        display.show(progress_with_kills())
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for part in ("turnkeeper", "plain JSONL", "1,234", "writer, back in 321 ms", "node killed", "refused", "let in"):
        assert part in text


def test_a_pipe_shows_nothing_while_it_goes() -> None:
    """A file or a pipe gets the result alone."""
    console = Console(file=io.StringIO(), force_terminal=False)
    with LiveDisplay(console) as display:
        display.show(progress_with_kills())
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == ""


def test_the_end_says_what_was_proven_and_what_not() -> None:
    """Death of processes, and not power loss; and what the plain column means."""
    good = Verdict(sessions=8, events=10, acknowledged=10, found=10)
    text = " ".join(shown(result_of(good)).split())
    assert "Proven: the death of processes (writer 1 x, node 1 x) lost nothing" in text
    assert "Not proven: power loss" in text
    assert "seed 41" in text
    assert "on ext4" in text
    assert "both went on with the same numbers" in text


def test_a_broken_promise_is_said_aloud() -> None:
    """One lost event makes the whole a failure, also where nothing was acknowledged at all."""
    good = Verdict(sessions=8, events=10, acknowledged=10, found=10)
    assert result_of(good).is_clean
    for bad in (replace(good, lost=1, found=9), replace(good, disordered=1), replace(good, acknowledged=0, found=0)):
        assert not result_of(bad).is_clean
        assert "a promise was broken" in shown(result_of(bad))


def test_what_a_dying_node_s_writer_still_answered_is_no_recovery() -> None:
    """Only what the successor acknowledged counts, of what was appended after the kill."""
    column = progress_with_kills().store
    kill = Kill("node", killed=20.0, replaced=20.4)
    column.take({"events": 1, "flushes": [(19.9, 20.001), (20.002, 20.005), (20.006, 20.7)]})
    assert column.recovery_ms(kill) == 700.0
    assert column.recovery_ms(Kill("node", killed=20.0)) is None
    assert column.serving_ms(kill) is None
