"""How a benchmark's result is shown, and where it may run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.benchmarks import recovery
from turnkeeper.runtime.cli.program import run

RESULT = {
    "machine": {"cores": 2, "file_system": "ext4"},
    "runs": [
        {
            "name": "open",
            "params": {"cache": cache, "events": 1000, "dropped_by": None},
            "figures": {"open_ms": 3.4763},
            "base": {"open_ms": 3.0},
            "ratio": 1.1588,
        }
        for cache in ("warm", "cold")
    ],
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, Path | None]]:
    """Stand in for the measurement; gives what it was called with."""
    made: list[tuple[bool, Path | None]] = []

    def measure(quick: bool, out: Path | None, *, tell: Callable[[str], None]) -> dict[str, Any]:
        made.append((quick, out))
        tell("measuring")
        return RESULT

    monkeypatch.setattr(recovery, "run_recovery", measure)
    return made


def test_people_get_a_row_a_run(
    calls: list[tuple[bool, Path | None]], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What holds for all runs stands once above the table, what differs in each row."""
    assert run(["bench", "recovery", "--quick", "--out", str(tmp_path)]) == 0
    told = capfd.readouterr()
    assert told.err == ""
    machine, common, _, head, *rows = told.out.splitlines()
    assert (machine, common) == ("cores 2, file_system ext4", "all runs: events 1000")
    assert head.split() == ["RUN", "WITH", "OURS", "BASE", "RATIO"]
    assert [" ".join(row.split()) for row in rows] == [
        "open cache warm open_ms 3.476 open_ms 3 1.16",
        "open cache cold open_ms 3.476 open_ms 3 1.16",
    ]
    assert calls == [(True, tmp_path)]


def test_scripts_get_the_result_as_it_is(
    calls: list[tuple[bool, Path | None]], capfd: pytest.CaptureFixture[str]
) -> None:
    """With --json one object is printed."""
    assert run(["bench", "recovery", "--json"]) == 0
    assert capfd.readouterr().out.startswith('{"machine":{"cores":2,"file_system":"ext4"},"runs":[{"name":"open",')
    assert calls == [(False, None)]


def test_no_users_store_is_filled(
    calls: list[tuple[bool, Path | None]], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A store that is named is refused, and nothing is measured."""
    assert run(["bench", "recovery", "--store", str(tmp_path)]) == 2
    assert "--out says in which directory" in capfd.readouterr().err
    assert calls == []
