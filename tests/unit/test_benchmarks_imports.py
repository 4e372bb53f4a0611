"""The import benchmark on a small input: the command itself imports files that hold what they should."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from turnkeeper.actors.importing import ImportReport, read_sessions
from turnkeeper.benchmarks import imports
from turnkeeper.benchmarks.imports import Sizes, measure
from turnkeeper.benchmarks.stores.session_files import write_large, write_many
from turnkeeper.benchmarks.workplace import run_alone

TINY = Sizes(large_bytes=40_000, files=2, rounds=1)


def test_a_large_session_and_many_small_ones_are_imported(tmp_path: Path) -> None:
    """Whole, by the command, beside parsing and copying the same bytes; memory is that of all its processes."""
    runs = run_alone("import", partial(measure, TINY), tmp_path)["runs"]
    assert [(run["name"], run["params"]["files"], run["params"]["against"]) for run in runs] == [
        ("import large seconds", 1, "orjson alone"),
        ("import large seconds", 1, "cp and fsync"),
        ("import many seconds", 2, "orjson alone"),
        ("import many seconds", 2, "cp and fsync"),
    ]
    for run in runs:
        figures = run["figures"]
        assert figures["mb_per_second"] == pytest.approx(run["params"]["bytes"] / figures["seconds"] / 1e6, rel=1e-3)
        assert figures["events_per_second"] * figures["seconds"] > 20
        assert 20 < figures["memory_mb"] < 500
    assert [path.name for path in tmp_path.iterdir()] == ["import.json"]


def test_an_import_that_fails_is_no_figure(tmp_path: Path) -> None:
    """What the command said is what is raised, and nothing goes on."""
    with pytest.raises(RuntimeError, match="no such file"):
        imports._run_import(tmp_path / "missing", tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_session_files_hold_whole_sessions(tmp_path: Path) -> None:
    """Of the size that was wanted, each call with its result, nothing damaged and nothing twice."""
    size = write_large(tmp_path / "large.jsonl", 300_000)
    many = write_many(tmp_path / "many", 9)
    assert (tmp_path / "large.jsonl").stat().st_size == size >= 300_000
    assert sum(file.stat().st_size for file in (tmp_path / "many").iterdir()) == many
    for path, expected in ((tmp_path / "large.jsonl", 1), (tmp_path / "many", 9)):
        report = ImportReport()
        sessions = [list(session.events()) for session in read_sessions(path, report)]
        assert len(sessions) == expected
        assert report.problems == []
        for events in sessions:
            assert len({event.key for event in events}) == len(events)
            calls = [event.data["id"] for event in events if event.type == "tool/started"]
            assert calls == [event.data["id"] for event in events if event.type == "tool/finished"] != []
