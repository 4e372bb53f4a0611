"""Contract of all suites in one run: one result, stores filled once, and one that fails keeps none from its turn."""

from __future__ import annotations

import errno
import json
from functools import partial
from pathlib import Path

import pytest

from turnkeeper.benchmarks import suites
from turnkeeper.benchmarks.measuring.runs import Run
from turnkeeper.benchmarks.stores.filled import Filling
from turnkeeper.benchmarks.workplace import Measure, Workplace


def given(monkeypatch: pytest.MonkeyPatch, measures: dict[str, Measure]) -> None:
    """Let these be all suites."""
    monkeypatch.setattr(suites, "SUITES", dict.fromkeys(measures, "a module"))
    monkeypatch.setattr(suites, "measure_of", lambda name, quick: measures[name])


def read(place: Workplace, *, seen: list[Path]) -> list[Run]:
    """Measure in a filled store."""
    seen += place.stores.read(Filling(100))
    return [Run("read", {}, {"ms": 1.0})]


def test_suites_share_what_they_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same filling is made once, every run says of which suite it is, and only the result stays."""
    seen: list[Path] = []
    given(monkeypatch, {"list": partial(read, seen=seen), "load": partial(read, seen=seen)})
    told: list[str] = []
    result = suites.run_all(True, tmp_path, tell=told.append)
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert [run["suite"] for run in result["runs"]] == ["list", "load"]
    assert [(each["name"], each["left_out"]) for each in result["suites"]] == [("list", None), ("load", None)]
    assert json.loads((tmp_path / "report.json").read_text()) == result
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    assert told[0] == "1 of 2, list: starting"
    assert any(line.startswith("1 of 2, list: filling") for line in told)
    assert not any(line.startswith("2 of 2, load: filling") for line in told)


def test_a_suite_that_fails_is_left_out_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result says why, in one line; what it had filled is gone before the next one begins."""

    def fail(place: Workplace) -> list[Run]:
        (place.directory / "filled").write_bytes(b"1")
        place.stores.take(Filling(100))
        raise OSError(errno.ENOSPC, "this takes 9 GB of disk and 1 GB are free", str(place.directory))

    def break_down(place: Workplace) -> list[Run]:
        raise RuntimeError("a measured process\nended")

    def look(place: Workplace) -> list[Run]:
        return [Run("found", {}, {"files": len(list(place.directory.parent.rglob("*"))) - 1})]

    given(monkeypatch, {"flush": fail, "tasks": break_down, "disk": look})
    result = suites.run_all(True, tmp_path)
    assert [each["left_out"] for each in result["suites"]] == [
        "this takes 9 GB of disk and 1 GB are free",
        "RuntimeError: a measured process ended",
        None,
    ]
    assert [run["figures"] for run in result["runs"]] == [{"files": 0}]


def test_ctrl_c_ends_all_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no failure of a suite that the others would be measured after."""

    def interrupt(place: Workplace) -> list[Run]:
        place.stores.read(Filling(100))
        raise KeyboardInterrupt

    given(monkeypatch, {"flush": interrupt, "disk": interrupt})
    with pytest.raises(KeyboardInterrupt):
        suites.run_all(True, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", suites.SUITES)
def test_every_suite_has_both_sizes(name: str) -> None:
    """A line in the table is all that it takes to be measured with the others."""
    quick, full = (suites.measure_of(name, quick) for quick in (True, False))
    assert isinstance(quick, partial)
    assert isinstance(full, partial)
    assert quick.args != full.args
