"""Contract of the README's measured part: made of a kept result, nothing else changes, and what is missing is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from turnkeeper.benchmarks.report.markdown import markdown_of
from turnkeeper.benchmarks.report.readme import BEGIN, DRAWING, END, REPORT, NothingToWrite, refreshed
from turnkeeper.benchmarks.report.results import read_result, save_result

from ..bench_results import flush_runs, memory_run, result_of

README = f"# Name\n\nBefore.\n\n{BEGIN}\nold\n{END}\n\nBehind.\n"


def test_only_the_part_between_the_marks_is_written() -> None:
    """With the command, the machine, the table and where the drawing is; and again gives the same."""
    text, drawing = refreshed(README, result_of(*flush_runs()))
    before, _, rest = text.partition(BEGIN)
    part, _, behind = rest.partition(END)
    assert (before, behind) == ("# Name\n\nBefore.\n\n", "\n\nBehind.\n")
    assert "`turnkeeper bench all --out results` (cores 2, memory 8.0 GB, " in part
    assert "| **turnkeeper on trio** | **0.22 / 0.44 ms** |" in part
    assert all(f"]({place.as_posix()})" in part for place in (DRAWING, REPORT))
    assert "old" not in part
    assert refreshed(text, result_of(*flush_runs())) == (text, drawing)


def test_the_drawing_can_be_shown_anywhere() -> None:
    """It is a file of its own, dark on white, and takes no colour from around it."""
    _, drawing = refreshed(README, result_of(*flush_runs()))
    assert drawing.startswith('<?xml version="1.0" encoding="utf-8"?>\n<svg ')
    assert "background: #fff" in drawing
    assert "currentColor" not in drawing


def test_what_is_missing_is_told() -> None:
    """A README without the marks, a result without flushes."""
    with pytest.raises(NothingToWrite, match="the file has no lines"):
        refreshed("# Name\n", result_of(*flush_runs()))
    with pytest.raises(NothingToWrite, match="the result has no flushes"):
        refreshed(README, result_of(memory_run()))


def test_our_readme_has_the_marks() -> None:
    """Else `make readme` could write nothing."""
    text = Path(__file__).resolve().parents[2].joinpath("README.md").read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1


def test_it_is_a_program(tmp_path: Path) -> None:
    """It writes its three files; without a result it writes nothing and says so in one line."""
    readme = tmp_path / "README.md"
    readme.write_text(README, encoding="utf-8")
    command = [sys.executable, "-m", "turnkeeper.benchmarks.report.readme", str(tmp_path / "report.json"), str(readme)]
    failed = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (failed.returncode, readme.read_text(encoding="utf-8")) == (2, README)
    assert failed.stderr.startswith(f"readme: {tmp_path / 'report.json'}: there is no such file; ")
    save_result(result_of(*flush_runs()).as_map(), "report", tmp_path)
    assert subprocess.run(command, capture_output=True, timeout=30).returncode == 0
    assert readme.read_text(encoding="utf-8") == refreshed(README, result_of(*flush_runs()))[0]
    assert (tmp_path / DRAWING).exists()
    assert (tmp_path / REPORT).read_text(encoding="utf-8") == markdown_of(read_result(tmp_path))
