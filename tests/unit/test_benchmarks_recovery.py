"""The recovery benchmark on a small input: real openings of really killed writers."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnkeeper.benchmarks.measuring import be_quiet
from turnkeeper.benchmarks.recovery import Sizes, measure

TINY = Sizes(small_sessions=100, large_sessions=200, small_events=100, large_events=400, rounds=1)


def test_opening_is_compared_warm_and_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run holds both stores' times and their ratio; every opening found one batch to index, or it had failed."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)  # the machine's other caches are not this test's to drop
    result = measure(TINY, tmp_path, be_quiet)
    warm, cold = result["runs"]
    assert (warm["name"], warm["params"]["cache"], warm["params"]["dropped_by"]) == ("open", "warm", None)
    assert (cold["name"], cold["params"]["cache"], cold["params"]["dropped_by"]) == ("open", "cold", "posix_fadvise")
    for run in (warm, cold):
        assert run["ratio"] == pytest.approx(run["figures"]["open_ms"] / run["base"]["open_ms"], abs=0.001)
        assert run["figures"]["cpu_ms"] > 0
        assert run["base"]["open_ms"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["recovery.json"]
