"""How two results are compared on the command line, and what is said of what can't be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnkeeper.benchmarks.report.results import save_result
from turnkeeper.runtime.cli.program import run

from ..bench_results import flush_runs, memory_run, open_run, result_of


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Give the directories of two results; the later one is slower, and has another size of store."""
    before, after = tmp_path / "before", tmp_path / "after"
    for place, runs in (
        (before, [*flush_runs(0.2), open_run("warm", 1000)]),
        (after, [*flush_runs(0.3), open_run("warm"), memory_run()]),
    ):
        place.mkdir()
        save_result(result_of(*runs).as_map(), "report", place)
    return before, after


def test_people_get_a_row_a_run_and_a_summary(places: tuple[Path, Path], capfd: pytest.CaptureFixture[str]) -> None:
    """What got worse stands first; what has no partner is listed with the reason; the exit code is 0 all the same."""
    assert run(["bench", "compare", *map(str, places)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == f"before: {places[0]}: commit 0123456789ab, turnkeeper bench all --out results"
    assert " ".join(lines[3].split()) == "VERDICT SUITE RUN WITH OF BEFORE AFTER CHANGE 99% BOUNDS"
    assert " ".join(lines[4].split()).startswith(
        "worse flush flush p50_ms against append, survives a power loss ratio 2.157"
    )
    assert "4 rows: 4 worse, 0 better, 0 no difference told; by chance alone about 0 would differ." in lines
    assert "0 of 4 (0%) of the later medians lie in the bounds of before; 95% are expected." in lines
    assert any(line.startswith("flush  open") and line.endswith("other events") for line in lines)
    assert any("memory end over begin" in line and line.endswith("not measured there") for line in lines)


def test_scripts_get_one_object(places: tuple[Path, Path], capfd: pytest.CaptureFixture[str]) -> None:
    """With everything that people get."""
    assert run(["bench", "compare", "--json", *map(str, places)]) == 0
    found = json.loads(capfd.readouterr().out)
    assert [row["verdict"] for row in found["rows"]] == ["worse"] * 4
    assert (found["before"], found["after"], found["confidence"]) == (*map(str, places), 0.99)
    assert [each["name"] for each in found["only_after"]] == ["open", "memory end over begin"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "there is no such file"),
        (b'{"events": []}', "this is no result of a benchmark"),
        (b'{"machine": {}, "runs": []}', "another version of turnkeeper has made this result"),
        (b"\x00", "this is no JSON"),
    ],
    ids=["missing", "foreign", "old", "no JSON"],
)
def test_what_is_no_result_is_told_in_one_line(
    content: bytes | None, why: str, places: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    """Which file, why, and what to do."""
    file = places[0].parent / "other.json"
    if content is not None:
        file.write_bytes(content)
    assert run(["bench", "compare", str(places[0]), str(file)]) == 2
    told = capfd.readouterr()
    (line,) = told.err.splitlines()
    assert line.startswith(f"turnkeeper: {why}: {file}: ")
    assert told.out == ""
