"""How a benchmark's result is shown, and where it may run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.errors import StoreFull
from turnkeeper.benchmarks.measuring import room
from turnkeeper.benchmarks.measuring.inhabitants import inhabitants
from turnkeeper.benchmarks.measuring.process_memory import family
from turnkeeper.benchmarks.measuring.runs import Measured, Run
from turnkeeper.benchmarks.recovery import recovery
from turnkeeper.benchmarks.report import writing
from turnkeeper.benchmarks.report.results import Result
from turnkeeper.runtime.cli import bench
from turnkeeper.runtime.cli.program import run
from turnkeeper.storage.lock import store_is_held

from ..command_line import DEADLINE_SECONDS, CommandLine
from ..serving import eventually

MACHINE = {"cores": 2, "file_system": "ext4"}
RESULT = Result(
    MACHINE,
    [
        Measured(
            "recovery",
            2.0,
            [
                Run(
                    "open",
                    {"cache": cache, "events": 1000, "dropped_by": None},
                    {"open_ms": 3.4763},
                    {"open_ms": 3.0},
                    1.1588,
                    {"ratio": (1.0, 1.25)},
                    compared="open_ms",
                )
                for cache in ("warm", "cold")
            ],
        )
    ],
).as_map()


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
    """What holds for all runs stands once above the table, what differs in each row; the report's files are named."""
    assert run(["bench", "recovery", "--quick", "--out", str(tmp_path)]) == 0
    told = capfd.readouterr()
    names = ["recovery.html", "recovery.json", "recovery.md"]
    assert sorted(told.err.splitlines()) == [f"turnkeeper: written: {tmp_path / name}" for name in names]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    machine, _, common, head, *rows = told.out.splitlines()
    assert (machine, common) == ("cores 2, file_system ext4", "all runs: events 1000")
    assert head.split() == ["RUN", "WITH", "OURS", "BASE", "RATIO"]
    assert [" ".join(row.split()) for row in rows] == [
        "open cache warm open_ms 3.476 open_ms 3 1.159 (1 to 1.25)",
        "open cache cold open_ms 3.476 open_ms 3 1.159 (1 to 1.25)",
    ]
    assert calls == [(True, tmp_path)]


def test_scripts_get_the_result_as_it_is(
    calls: list[tuple[bool, Path | None]], capfd: pytest.CaptureFixture[str]
) -> None:
    """With --json one object is printed."""
    assert run(["bench", "recovery", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == RESULT
    assert calls == [(False, None)]


def test_a_missing_extra_is_told_before_anything_is_measured(
    calls: list[tuple[bool, Path | None]], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what would bring it."""
    monkeypatch.setattr(bench, "EXTRA", ("no_such_library",))
    assert run(["bench", "recovery", "--quick"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith("pip install 'turnkeeper[bench]'")
    assert calls == []


def test_no_users_store_is_filled(
    calls: list[tuple[bool, Path | None]], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A store that is named is refused, and nothing is measured."""
    assert run(["bench", "recovery", "--store", str(tmp_path)]) == 2
    assert "--out says in which directory" in capfd.readouterr().err
    assert calls == []


@pytest.mark.parametrize(
    "arguments",
    [["flush", "--stored", "-1"], ["flush", "--stored", "many"], ["recovery", "--stored", "1"], ["load", "again"]],
)
def test_a_wrong_option_is_wrong_usage(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """One line says what is wrong, and nothing is measured."""
    assert run(["bench", *arguments]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"turnkeeper: turnkeeper bench {arguments[0]}: ") or "--help" in line


@pytest.mark.parametrize("inside", ["", "journal", "results/new"])
def test_a_store_is_not_measured_in(
    inside: str, calls: list[tuple[bool, Path | None]], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A directory that belongs to a store is refused with one line, and nothing is made in it."""
    store = tmp_path / "store"
    (store / "journal").mkdir(parents=True)
    (store / "store.json").touch()
    before = sorted(store.rglob("*"))
    assert run(["bench", "disk", "--quick", "--out", str(store / inside)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line == f"turnkeeper: this directory belongs to a store: {store}: measure elsewhere with --out"
    assert sorted(store.rglob("*")) == before


@pytest.mark.parametrize(
    "name", ["flush", "recovery", "load", "list", "fork", "import", "follow", "disk", "memory", "tasks", "all"]
)
def test_a_full_disk_is_told_in_one_line(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is filled: how much it takes, how much is free, and what to do."""
    found = os.statvfs(tmp_path)
    fields = [*found]
    fields[4] = (1 << 30) // found.f_frsize // 4  # a quarter of a GiB is free
    monkeypatch.setattr("os.statvfs", lambda path: os.statvfs_result(fields))
    assert run(["bench", name, "--quick", "--out", str(tmp_path)]) == 6
    (line,) = capfd.readouterr().err.splitlines()
    assert "GB of disk and 0.3 GB are free; make space" in line
    assert list(tmp_path.iterdir()) == []


def test_what_goes_wrong_meanwhile_is_told_of_the_directory_it_went_wrong_in(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that others fill in the middle: not of the user's own store, which has no part in it."""

    def fail(quick: bool, out: Path | None, *, tell: Callable[[str], None]) -> dict[str, Any]:
        raise StoreFull(1_000, 67_108_864)

    monkeypatch.setattr(recovery, "run_recovery", fail)
    assert run(["bench", "recovery", "--quick", "--out", str(tmp_path)]) == 6
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("turnkeeper: no space (1,000 bytes free, ")
    assert f": {tmp_path}: make space" in line


def test_too_little_memory_is_told_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is made: how much it takes, how much there is, and what to do."""
    (tmp_path / "facts").write_text("MemAvailable: 100000 kB\n")
    monkeypatch.setattr(room, "MEMORY_FACTS", tmp_path / "facts")
    assert run(["bench", "all", "--quick", "--out", str(tmp_path / "out")]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert "this takes 0.5 GB of memory and 0.1 GB are free; end other programs" in line
    assert not (tmp_path / "out").exists()


def test_ctrl_c_while_the_report_is_drawn_keeps_the_result(
    calls: list[tuple[bool, Path | None]],
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have taken half an hour: one line says where it is."""

    def draw(result: Result) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(writing, "page_of", draw)
    with pytest.raises(KeyboardInterrupt):
        run(["bench", "recovery", "--quick", "--out", str(tmp_path)])
    (line,) = capfd.readouterr().err.splitlines()
    assert line == f"turnkeeper: interrupted: the result is kept in {tmp_path}/recovery.json, but not its report"


def is_served(directory: Path) -> bool:
    """Say whether both stores of a flush benchmark have their nodes."""
    stores = list(directory.glob("*/*/store.json"))
    return len(stores) == 2 and all(
        store_is_held(str(file.parent)) and (file.parent / "node.sock").exists() for file in stores
    )


def is_filled(directory: Path) -> bool:
    """Say whether a store has got more than it is made with."""
    return any(file.stat().st_size > 3_000_000 for file in directory.glob("*/*/journal/00000001.jsonl"))


def has_tasks(directory: Path) -> bool:
    """Say whether some tasks run."""
    return len(list(directory.glob("*/*/tasks/*/run.json"))) > 10


@pytest.mark.parametrize(
    ("arguments", "has_come_so_far"),
    [
        (["flush", "--stored", "1000"], is_served),
        (["memory"], is_filled),
        (["load"], is_filled),
        (["tasks"], has_tasks),
    ],
    ids=["while it opens sessions", "while they append", "while it fills", "while it starts tasks"],
)
def test_an_interrupted_benchmark_leaves_nothing_behind(
    arguments: list[str], has_come_so_far: Callable[[Path], bool], tmp_path: Path
) -> None:
    """Ctrl-C ends every process that it started, and removes what they wrote; nobody prints a traceback."""
    out = tmp_path / "out"
    cli = CommandLine(tmp_path / "store", tmp_path)
    process = cli.start("bench", *arguments, "--quick", "--out", out)
    try:
        eventually(lambda: has_come_so_far(out))
        started = set(family(process.pid)) | {each.pid for each in inhabitants(out)}
        started |= {each for pid in started for each in family(pid)}
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        process.kill()
        process.communicate()
    assert err.decode().splitlines() == ["turnkeeper: interrupted: what was filled is removed, and nothing was kept"]
    assert process.returncode == 130
    assert list(out.iterdir()) == []
    assert len(started) > 1
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
