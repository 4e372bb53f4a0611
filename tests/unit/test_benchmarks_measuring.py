"""Contract of measuring: whose turn it is, what a percentile is, where it is measured and what is left there."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.benchmarks.measuring import (
    Run,
    describe_machine,
    drop_caches,
    file_system,
    interleaved,
    measured_directory,
    medians,
    percentile,
    report,
    save,
)


def test_each_round_begins_with_the_next_subject() -> None:
    """Nobody is always measured first, and everybody once a round."""
    order: list[str] = []
    measured = interleaved(3, {name: partial(order.append, name) for name in "abc"})
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert {name: len(rounds) for name, rounds in measured.items()} == {"a": 3, "b": 3, "c": 3}


@given(st.lists(st.integers(), min_size=1), st.integers(1, 100))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(values: list[int], percent: int) -> None:
    """It is one of the values; fewer would be too few, and no smaller value would do."""
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


def test_a_percentile_of_nothing_is_refused() -> None:
    """No figure is made up where nothing was measured."""
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_a_median_is_taken_of_each_figure() -> None:
    """Rounds are joined figure by figure."""
    assert medians([{"a": 1, "b": 9}, {"a": 5, "b": 8}, {"a": 2, "b": 7}]) == {"a": 2, "b": 8}


def test_the_measured_directory_lies_where_it_was_asked_for_and_goes_away(tmp_path: Path) -> None:
    """What is filled lies on the disk under test, and nothing of it stays, whatever happened."""

    def fail_halfway() -> None:
        with measured_directory(tmp_path / "new") as directory:
            assert directory.parent == tmp_path / "new"
            (directory / "file").write_bytes(b"1")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert list((tmp_path / "new").iterdir()) == []


def test_the_machine_says_on_which_file_system_it_was_measured(tmp_path: Path) -> None:
    """A tmpfs, where syncs cost nothing, can't pass for a disk."""
    assert describe_machine(tmp_path)["file_system"] == file_system(tmp_path)
    shared_memory = Path("/dev/shm")
    if shared_memory.is_mount():
        assert file_system(shared_memory) == "tmpfs"


def test_caches_are_dropped_without_changing_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root only the directory's own pages go, and it says so."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (tmp_path / "file").write_bytes(b"kept")
    os.mkfifo(tmp_path / "left behind, as a node's socket is")
    assert drop_caches(tmp_path) == "posix_fadvise"
    assert (tmp_path / "file").read_bytes() == b"kept"


def test_a_result_is_kept_as_it_was_reported(tmp_path: Path) -> None:
    """The file that --out leaves holds the same as what is printed."""
    result = report({"cores": 2}, [Run("open", {"cache": "warm"}, {"open_ms": 2.0}, {"open_ms": 1.0}, 2.0)])
    save(result, "recovery", None)
    save(result, "recovery", tmp_path)
    assert json.loads((tmp_path / "recovery.json").read_text()) == result
    assert result["runs"][0]["ratio"] == 2.0
