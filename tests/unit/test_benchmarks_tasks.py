"""The tasks benchmark on a small input: real tasks are measured, and none of them outlives its part."""

from __future__ import annotations

import errno
import json
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from turnkeeper.benchmarks.measuring.inhabitants import inhabitants
from turnkeeper.benchmarks.measuring.runs import be_quiet
from turnkeeper.benchmarks.tasks import idle_tasks, short_tasks, supervised_programs, tasks, trees
from turnkeeper.benchmarks.tasks.hosts import measure_part
from turnkeeper.benchmarks.workplace import run_alone
from turnkeeper.runtime.tasks.tree import process_of

SIZES = tasks.Sizes(
    idle_tasks.Sizes(live=4, starts=3, quiet_seconds=0.1, ends=3, apart_seconds=0.02, runs_seconds=0.05),
    short_tasks.Sizes(tasks=30, timetable_seconds=0.5, per_minute=1_200),
    output_bytes=5_000_000,
    stops=trees.Sizes(trees=4, rounds=1),
    supervised=supervised_programs.Sizes(starts=2, ends=2, trees=2, rounds=1),
)

# What a host runs is pickled by its module's name, and this module has none that another process knows.
MODULE = "failing_part"
PART = """
from turnkeeper.benchmarks.measuring.inhabitants import inhabitants
from turnkeeper.benchmarks.tasks.hosts import IDLE_COMMAND

async def fail(place, path):
    ids = await place.start_many([IDLE_COMMAND] * 3)
    pids = [(await place.runtime.task(id).state()).pid for id in ids]
    with open(path, "w") as file:
        print(*pids, file=file)
    raise OSError(28, "no room", "there")
"""


def test_each_question_gets_a_run(tmp_path: Path) -> None:
    """Everything that is measured is there and can be true, nothing is left of the tasks, and the files are removed."""
    result = run_alone("tasks", partial(tasks.measure, SIZES), tmp_path)
    idle, start, wake, memory, timetable, output, stop, *_ = result["runs"]
    assert 500 < idle["figures"]["pss_kb"] < 20_000
    assert idle["figures"]["tasks_cpu_percent"] < 100
    for run in (start, wake):
        assert 0 < run["figures"]["p50_ms"] <= run["figures"]["p99_ms"] <= run["figures"]["most_ms"]
        assert run["base"]["p50_ms"] > 0
    for run, compared in ((start, "p50_ms"), (wake, "p99_ms")):
        ours, theirs = run["rounds"]["figures"][compared], run["rounds"]["base"][compared]
        assert run["rounds"]["ratio"] == pytest.approx([a / b for a, b in zip(ours, theirs, strict=True)], abs=0.01)
    low, high = memory["bounds"]["kb_a_task"]
    assert low <= memory["figures"]["kb_a_task"] <= high
    assert len(memory["series"]["node_kb over tasks"]) == 30
    assert 5_000 < memory["base"]["begin_kb"] < 200_000
    assert timetable["figures"]["ended_well"] == timetable["base"]["planned"] == 10
    assert timetable["figures"]["zombies"] == timetable["figures"]["shims"] == 0
    assert output["params"]["output_bytes"] == SIZES.output_bytes
    assert output["figures"]["missing_bytes"] == 0
    assert all(output["base"][f"{name}_begin_kb"] > 1_000 for name in ("node", "shim", "follower"))
    assert stop["figures"]["left"] == 0
    assert stop["figures"]["stop_s"] > 0
    assert stop["base"]["stop_s"] > 0
    assert json.loads((tmp_path / "tasks.json").read_text()) == result
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.json"]


def test_without_room_for_the_output_the_rest_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run says why it is left out, and what to do."""
    monkeypatch.setattr(tasks, "measure_part", lambda *arguments: [])
    monkeypatch.setattr(tasks, "find_supervisord", lambda: None)
    fields = [*os.statvfs(tmp_path)]
    fields[4] = (1 << 30) // fields[1]  # a GiB is free
    monkeypatch.setattr("os.statvfs", lambda path: os.statvfs_result(fields))
    run, beside = run_alone("tasks", partial(tasks.measure, tasks.FULL))["runs"]
    assert run["params"]["output_bytes"] == 10_000_000_000
    assert "GB of disk and 1.1 GB are free; make space" in run["params"]["left_out"]
    assert run["figures"] == beside["figures"] == {}
    assert beside["params"]["left_out"] == "pip install 'turnkeeper[peers]', or apt install supervisor"


def test_a_part_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it raised is raised, its tasks have ended, and its store is gone with all that served it."""
    (tmp_path / f"{MODULE}.py").write_text(PART)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(OSError, match="no room") as raised:
        measure_part(tmp_path / "store", be_quiet, __import__(MODULE).fail, str(tmp_path / "pids"))
    assert raised.value.errno == errno.ENOSPC
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 3
    assert not any(found.is_alive for pid in pids if (found := process_of(pid)) is not None)
    assert inhabitants(tmp_path) == []
    assert not (tmp_path / "store").exists()
