"""The recovery benchmark on a small input: real openings of really killed writers, real rebuilds, real verifies."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from turnkeeper.benchmarks import machine
from turnkeeper.benchmarks.recovery import Sizes, measure
from turnkeeper.benchmarks.workplace import run_alone

TINY = Sizes(small_events=200, large_events=3_000, openings=1, rebuilds=1)


def test_opening_and_rebuilding_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every opening found one batch to index, and every rebuild and verify all events, or it had failed."""
    # The machine's other caches are not this test's to drop.
    monkeypatch.setattr(machine, "SYSTEM_CACHES", tmp_path / "none" / "drop_caches")
    result = run_alone("recovery", partial(measure, TINY), tmp_path)
    warm, cold, *rebuilt = result["runs"]
    assert (warm["name"], warm["params"]["cache"], warm["params"]["dropped_by"]) == ("open", "warm", None)
    assert (cold["name"], cold["params"]["cache"], cold["params"]["dropped_by"]) == ("open", "cold", "posix_fadvise")
    for run in (warm, cold):
        assert run["ratio"] == pytest.approx(run["figures"]["open_ms"] / run["base"]["open_ms"], abs=0.001)
        assert run["figures"]["cpu_ms"] > 0
        assert run["base"]["open_ms"] > 0
        assert (run["params"]["events"], run["params"]["base_events"]) == (3_010, 200)
    assert [(run["name"], run["params"]["run_events"]) for run in rebuilt] == [
        ("rebuild per_second", 1),
        ("verify per_second", 1),
        ("rebuild per_second", 10),
        ("verify per_second", 10),
    ]
    for run in rebuilt:
        figures, base = run["figures"], run["base"]
        assert figures["per_second"] == pytest.approx(run["params"]["events"] / figures["seconds"], rel=0.01)
        assert run["ratio"] == pytest.approx(figures["per_second"] / base["per_second"], rel=0.01, abs=0.001)
    assert all(5 < run["figures"]["anonymous_mb"] < 500 for run in rebuilt if run["name"].startswith("rebuild"))
    assert [path.name for path in tmp_path.iterdir()] == ["recovery.json"]
