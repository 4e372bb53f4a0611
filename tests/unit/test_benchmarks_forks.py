"""The fork benchmark on a small input: real forks and resumes, beside copies that hold what they should."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from turnkeeper.benchmarks.reading.forks import Sizes, measure
from turnkeeper.benchmarks.reading.long_sessions import LongFile, LongTable, session_of
from turnkeeper.benchmarks.reading.resuming import BEHIND
from turnkeeper.benchmarks.stores.filled import SessionLines
from turnkeeper.benchmarks.workplace import run_alone

TINY = Sizes(lengths=(100, 2_005), forks=2, rounds=2)


def test_forks_and_resumes_are_compared_with_copies_and_readings(tmp_path: Path) -> None:
    """Through a real node; a fork costs the journal some hundred bytes, however much a copy takes."""
    runs = run_alone("fork", partial(measure, TINY), tmp_path)["runs"]
    forks = [run for run in runs if run["name"].startswith("fork")]
    assert {run["params"]["against"] for run in forks} >= {"a file copied", "sqlite"}
    for run in forks:
        at = {"fork head p50_ms": 2_005, "fork middle p50_ms": 1_002}[run["name"]]
        assert run["params"]["at"] == at
        assert run["base"]["bytes"] == len(SessionLines(session_of(2_005)).lines(0, at))
        assert 0 < run["figures"]["bytes"] < 2_000
        assert 0 < run["figures"]["p50_ms"] <= run["figures"]["p99_ms"]
    resumes = [run for run in runs if run["name"] == "resume p50_ms"]
    assert [(run["params"]["events"], run["params"]["against"]) for run in resumes] == [
        (100, "reading all of it"),
        (100, "parsing a file"),
        (2_005, "reading all of it"),
        (2_005, "parsing a file"),
    ]
    assert {run["params"]["events_behind"] for run in resumes} == {BEHIND}
    assert [sorted(run["series"]) for run in resumes] == [
        [],
        [],
        ["reading all of it ms over events", "resumed ms over events"],
        ["parsing a file ms over events", "resumed ms over events"],
    ]
    assert resumes[2]["series"]["resumed ms over events"] == [
        [run["params"]["events"], run["figures"]["p50_ms"]] for run in (resumes[0], resumes[2])
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["fork.json"]


@pytest.mark.parametrize("events", [0, 7, 30])
def test_a_copy_holds_the_first_events(events: int, tmp_path: Path) -> None:
    """As bytes of a file and as rows of a table, and it is gone when it is to be forgotten."""
    lines = SessionLines(session_of(30)).lines(0, 30)
    expected = b"".join(lines.splitlines(keepends=True)[:events])
    file = LongFile(tmp_path, 30)
    assert file.path.read_bytes() == lines
    for copy in (file.copy, file.clone) if file.can_clone() else (file.copy,):
        copy(file.size_of(events))
        assert (tmp_path / "copy.jsonl").read_bytes() == expected
        assert file.forget_copy() == len(expected)
    assert [path.name for path in tmp_path.iterdir()] == [file.path.name]
    with closing(LongTable(tmp_path / "events.sqlite", 30)) as table:
        table.copy(events)
        assert table.forget_copy() == len(expected)
        assert table.forget_copy() == 0
