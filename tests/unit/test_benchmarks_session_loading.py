"""The load benchmark on a small input: real readings through the client, and of the same bytes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from turnkeeper.benchmarks.measuring import machine
from turnkeeper.benchmarks.peers.catalogue import JSON_LINES
from turnkeeper.benchmarks.reading import peer_openings
from turnkeeper.benchmarks.reading.session_loading import Sizes, measure
from turnkeeper.benchmarks.workplace import run_alone

SIZES = Sizes(6_000, rounds=1, warm_reads=3, openings=peer_openings.Sizes(30, reads=2, rounds=1, peers=(JSON_LINES,)))


def test_the_last_events_and_a_whole_session_are_compared_with_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reading gave all the events that it was to give, or it had failed."""
    # The machine's other caches are not this test's to drop.
    monkeypatch.setattr(machine, "SYSTEM_CACHES", tmp_path / "none" / "drop_caches")
    result = run_alone("load", partial(measure, SIZES), tmp_path)
    last, whole, opened = result["runs"]
    assert (last["name"], last["params"]["cache"]) == ("load last p50_ms", "warm")
    assert (last["params"]["session_events"], last["params"]["read"]) == (60, 50)
    assert 0 < last["base"]["p50_ms"] <= last["base"]["p99_ms"]
    assert 0 < last["figures"]["p50_ms"] <= last["figures"]["p99_ms"]
    assert last["ratio"] == pytest.approx(last["figures"]["p50_ms"] / last["base"]["p50_ms"], rel=0.05)
    assert (whole["name"], whole["params"]["cache"]) == ("load whole ms", "cold")
    assert (whole["params"]["dropped_by"], whole["params"]["read"]) == ("posix_fadvise", 20)
    assert whole["ratio"] == pytest.approx(whole["figures"]["ms"] / whole["base"]["ms"], rel=0.05)
    assert (opened["params"]["session_events"], opened["params"]["against"]) == (30, "a JSONL file")
    assert opened["ratio"] == pytest.approx(opened["figures"]["p50_ms"] / opened["base"]["p50_ms"], rel=0.05)
    assert [path.name for path in tmp_path.iterdir()] == ["load.json"]
