"""The memory benchmark on a small input: a real writer under load is watched."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from turnkeeper.benchmarks.driving.loads import Load
from turnkeeper.benchmarks.memory import Sizes, measure
from turnkeeper.benchmarks.workplace import run_alone


def test_the_writer_is_watched_while_sessions_append(tmp_path: Path) -> None:
    """The result has all samples, and of those behind the warm-up a slope with its bounds."""
    sizes = Sizes(Load(5, 1.2, per_second=100), warm_up_seconds=0.2, sample_seconds=0.01)
    result = run_alone("memory", partial(measure, sizes), tmp_path)
    (run,) = result["runs"]
    figures = run["figures"]
    assert run["name"] == "memory end over begin"
    low, high = run["bounds"]["slope_kib_a_minute"]
    assert low <= figures["slope_kib_a_minute"] <= high
    assert 5_000 < run["base"]["begin_kib"] < 200_000
    assert 0.5 < run["ratio"] < 2
    assert figures["per_second"] > 0
    assert run["params"]["samples"] == sum(seconds >= 0.2 for seconds, _ in run["series"]["writer_kib over seconds"])
    assert run["params"]["samples"] >= 20
    assert json.loads((tmp_path / "memory.json").read_text()) == result
    assert [path.name for path in tmp_path.iterdir()] == ["memory.json"]
