"""The flush benchmark on a small input, and its parts: what is compared keeps its events, and loads measure fairly."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import pytest

from turnkeeper.benchmarks.driving.baselines import (
    DATABASE,
    AppendedFile,
    FilledFile,
    Flushed,
    MakeBaseline,
    SessionFiles,
    SqliteRows,
)
from turnkeeper.benchmarks.driving.loads import Lines, Load, drive_baseline, drive_sessions
from turnkeeper.benchmarks.flushing import peer_flushes
from turnkeeper.benchmarks.flushing.flush import Sizes, measure
from turnkeeper.benchmarks.measuring.durability import POWER_LOSS, PROCESS_DEATH, Durability
from turnkeeper.benchmarks.stores.contents import EVENT_BYTES
from turnkeeper.benchmarks.workplace import run_alone

TINY = Sizes(
    stored=200,
    alone=Load(1, 0.02),
    closed=Load(3, 0.02),
    paced=Load(3, 0.05, per_second=200),
    turns=Load(3, 0.02, events=10),
    persisted=20,
    rounds=1,
    warm_up_seconds=0.01,
    peers=peer_flushes.Sizes((Load(1, 0.02),), rounds=1, warm_up_seconds=0.01, peers=()),
)


def test_every_load_compares_ours_with_every_baseline(tmp_path: Path) -> None:
    """Through real nodes and writers, on stores that hold events; each run's ratio is of the figure that it names."""
    result = run_alone("flush", partial(measure, TINY), tmp_path)
    runs = [run for run in result["runs"] if run["name"].startswith("flush ")]
    for run in runs:
        compared = run["name"].removeprefix("flush ")
        assert run["figures"].keys() == run["base"].keys() == {"p50_ms", "p99_ms", "p999_ms", "most_ms", "per_second"}
        assert 0 < run["figures"]["p50_ms"] <= run["figures"]["p99_ms"]
        assert run["ratio"] == pytest.approx(run["figures"][compared] / run["base"][compared], rel=0.01, abs=0.001)
        assert run["params"]["stored"] == 200
        unsynced = run["params"]["against"] == "files, never synced"
        assert run["params"]["survives"] == (PROCESS_DEATH if unsynced else POWER_LOSS)
        assert run["params"]["base_stored"] == (200 if run["params"]["against"] == "turnkeeper on SQLite" else 0)
    alone = [run for run in runs if run["params"]["sessions"] == 1]
    assert [(run["name"], run["params"]["loop"]) for run in alone if run["params"]["against"] == "append"] == [
        ("flush p50_ms", "trio"),
        ("flush p99_ms", "trio"),
        ("flush p50_ms", "asyncio"),
        ("flush p99_ms", "asyncio"),
    ]
    assert [run["name"] for run in runs[len(alone) :]] == ["flush per_second"] * 9 + ["flush p99_ms"] * 9 + [
        "flush per_second"
    ]
    assert runs[-1]["params"]["events_a_flush"] == 10
    persisted = result["runs"][len(runs) :]
    assert [(run["name"], run["params"]["against"]) for run in persisted] == [
        (f"persist {what} per_second", other)
        for what in ("pipelined", "one_by_one", "recovered")
        for other in ("append", "sqlite")
    ]
    for run in persisted:
        assert run["params"]["events"] == 20
        assert run["figures"]["per_second"] == pytest.approx(20 / run["figures"]["seconds"], rel=0.01)
        assert run["base"]["per_second"] == pytest.approx(20 / run["base"]["seconds"], rel=0.01)
    assert json.loads((tmp_path / "flush.json").read_text()) == result
    assert [path.name for path in tmp_path.iterdir()] == ["flush.json"]


def test_an_event_has_the_length_that_the_result_says() -> None:
    """Within a few bytes, which its numbers take."""
    assert len(Lines(1).event(0).line) == pytest.approx(EVENT_BYTES, abs=10)


def written_lines(directory: Path, session: int) -> list[bytes]:
    """Give what any of the baselines holds of a session."""
    if (directory / DATABASE).exists():
        with sqlite3.connect(directory / DATABASE) as database:
            rows = database.execute("SELECT line FROM events WHERE session = ? ORDER BY seq", (session,)).fetchall()
        database.close()
        return [line for (line,) in rows]
    contents = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
    prefix = b'{"stream":"session-%08d"' % session
    return [line + b"\n" for line in contents.split(b"\n") if line.startswith(prefix)]


@pytest.mark.parametrize(
    "make",
    [AppendedFile, FilledFile, SqliteRows, SessionFiles, partial(SessionFiles, threads=2, synced=False)],
    ids=str,
)
def test_a_baseline_keeps_every_event_in_order(tmp_path: Path, make: MakeBaseline) -> None:
    """What it is compared by is real: every event that it was given is there, one by one and in groups."""
    lines, baseline = Lines(2), make(tmp_path, 2)
    given = [[lines.event(0)], [lines.event(0), lines.event(1)], [lines.event(1)]]
    for batch in given:
        baseline.flush(batch)
    baseline.close()
    for session in (0, 1):
        expected = [each.line for batch in given for each in batch if each.session == session]
        assert written_lines(tmp_path, session) == expected


class Slow:
    """A baseline that takes its time, and counts."""

    durability = Durability(PROCESS_DEATH, "nothing")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.batches: list[int] = []

    def flush(self, batch: Sequence[Flushed]) -> None:
        """Take the time."""
        time.sleep(self.seconds)
        self.batches.append(len(batch))

    def close(self) -> None:
        """Do nothing."""


def test_a_paced_load_counts_from_the_planned_moment() -> None:
    """Whoever takes twice the pace falls behind, and the wait before its turn counts."""
    figures = drive_baseline(Slow(0.01), Lines(2), Load(2, 0.2, per_second=200), grouped=False)
    assert figures["per_second"] < 110
    assert figures["p99_ms"] > 80


def test_a_group_takes_all_that_waits() -> None:
    """So a slow disk makes greater groups and no longer queue."""
    slow = Slow(0.01)
    figures = drive_baseline(slow, Lines(20), Load(20, 0.2, per_second=1_000), grouped=True)
    assert max(slow.batches) > 5
    assert figures["p50_ms"] < 40


def test_a_closed_load_flushes_each_session_in_turn() -> None:
    """One at a time, each session waits for all the others."""
    slow = Slow(0.005)
    figures = drive_baseline(slow, Lines(4), Load(4, 0.2), grouped=False)
    assert set(slow.batches) == {1}
    assert figures["p50_ms"] > 4 * 5


def test_a_flush_of_many_events_counts_them_all() -> None:
    """What is told is events a second, whatever a flush holds."""
    slow = Slow(0.01)
    figures = drive_baseline(slow, Lines(2), Load(2, 0.2, events=10), grouped=True)
    assert set(slow.batches) == {20}
    assert figures["per_second"] == pytest.approx(20 / 0.01, rel=0.3)


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
@pytest.mark.parametrize("load", [Load(3, 0.1), Load(3, 0.1, per_second=300)], ids=["closed", "paced"])
def test_every_session_of_a_load_flushes(load: Load, loop: str) -> None:
    """Sessions run side by side, each in its own task, on either loop."""
    seen: list[int] = []

    async def flush_one(session: int) -> None:
        await anyio.sleep(0.01)
        seen.append(session)

    figures = anyio.run(drive_sessions, flush_one, load, backend=loop)
    assert set(seen) == {0, 1, 2}
    assert figures["p50_ms"] >= 10
    assert figures["per_second"] > 100
