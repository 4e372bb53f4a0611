"""The list benchmark on a small input: everybody finds the same sessions, and whoever finds others gives no figure."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from turnkeeper.benchmarks.measuring.runs import be_quiet
from turnkeeper.benchmarks.reading.many_sessions import SessionDirectory, SessionTables, ShortSession, drawn_session
from turnkeeper.benchmarks.reading.session_lists import Sizes, measure
from turnkeeper.benchmarks.workplace import run_alone

TINY = Sizes(sessions=1_100, asks=2, rounds=2)


def test_sessions_are_found_in_a_store_beside_files_and_tables(tmp_path: Path) -> None:
    """Through a real node, each question beside those that can answer it; every answer held what it had to."""
    runs = run_alone("list", partial(measure, TINY), tmp_path)["runs"]
    assert [(run["name"], run["params"].get("against")) for run in runs] == [
        ("list newest p50_ms", "sqlite"),
        ("list newest p50_ms", "a directory of files"),
        ("list prefix p50_ms", "sqlite"),
        ("list prefix p50_ms", "a directory of files"),
        ("list key p50_ms", "sqlite"),
        ("list pages p50_ms", "sqlite"),
        ("list pages p50_ms", "a directory of files"),
        ("list tasks p50_ms", None),
    ]
    for run in runs:
        assert run["figures"]["p50_ms"] > 0
        assert ("p99_ms" in run["figures"]) == ("pages" not in run["name"])  # one look in a round has no percentiles
        assert run["params"]["sessions"] == 1_100
        assert (run["ratio"] is None) == (run["params"].get("against") is None)
    assert [path.name for path in tmp_path.iterdir()] == ["list.json"]


@pytest.fixture
def forms(tmp_path: Path) -> tuple[SessionDirectory, SessionTables]:
    """Thirty sessions as files and as rows."""
    return SessionDirectory(tmp_path / "files", 30, be_quiet), SessionTables(tmp_path / "rows.sqlite", 30)


def test_files_and_rows_tell_the_same(forms: tuple[SessionDirectory, SessionTables]) -> None:
    """The newest first, and of one that is looked for the very line that it has."""
    files, tables = forms
    session = ShortSession(7)
    with closing(tables):
        newest = [ShortSession(number).id for number in range(29, -1, -1)]
        assert files.newest() == newest
        assert files.newest(3) == tables.newest(3) == newest[:3]
        assert tables.page_through(7) == 30
        lines = [session.line.rstrip(b"\n")]
        assert files.read_beginning_with(session.beginning) == lines
        assert [line.rstrip(b"\n") for line in tables.read_beginning_with(session.beginning)] == lines
        assert tables.read_named(session.key) == tables.read_beginning_with(session.beginning)


def test_what_is_not_there_is_not_found(forms: tuple[SessionDirectory, SessionTables]) -> None:
    """A look that finds nothing, or several, is an error and no figure."""
    files, tables = forms
    with closing(tables):
        for find in (files.read_beginning_with, tables.read_beginning_with, tables.read_named):
            with pytest.raises(ValueError, match="unpack"):
                find("nothing begins so")
    with pytest.raises(sqlite3.ProgrammingError):
        tables.newest(1)


def test_each_turn_looks_for_another_session() -> None:
    """Ids begin differently, and turns don't come back to a session before all had theirs."""
    sessions = [drawn_session(10_000, turn) for turn in range(10_000)]
    assert len({session.number for session in sessions}) == 10_000
    assert len({session.beginning for session in sessions}) == 10_000
