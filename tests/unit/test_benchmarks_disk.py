"""The disk benchmark on a small input: what segments really hold is counted, and filling isn't."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from turnkeeper.benchmarks.disk import EVENT_BYTES, measure, used_bytes
from turnkeeper.benchmarks.workplace import run_alone
from turnkeeper.storage.limits import FILLING_AHEAD_BYTES


def test_each_batch_is_compared_with_its_lines(tmp_path: Path) -> None:
    """A header shared by many lines costs each of them less, and nothing costs less than its line."""
    result = run_alone("disk", partial(measure, 300), tmp_path)
    one, ten, single = result["runs"]
    assert [run["params"]["batch"] for run in (one, ten, single)] == [
        "10 events of 1 session",
        "10 events of 10 sessions",
        "a single event",
    ]
    assert 1 < one["ratio"] < ten["ratio"] < single["ratio"] < 2
    for run in (one, ten, single):
        assert run["base"]["bytes_an_event"] == pytest.approx(EVENT_BYTES, abs=10)
        assert run["ratio"] == pytest.approx(
            run["figures"]["bytes_an_event"] / run["base"]["bytes_an_event"], abs=0.001
        )
    assert [path.name for path in tmp_path.iterdir()] == ["disk.json"]


@pytest.mark.parametrize("filling", [0, 1, 1000, FILLING_AHEAD_BYTES])
def test_filling_is_no_content(tmp_path: Path, filling: int) -> None:
    """Newlines behind the last line are there for the next ones."""
    (tmp_path / "segment").write_bytes(b"{}\n" * 1000 + b"\n" * filling)
    assert used_bytes(tmp_path / "segment") == 3000
