"""End to end: `turnkeeper chaos` kills and disturbs what serves stores, judges what is left, and leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import get_args

import pytest

from turnkeeper.benchmarks.chaos.drawing import make_plan
from turnkeeper.benchmarks.chaos.plan import (
    FAULTS,
    ROLES,
    AgentPlan,
    Copying,
    Disturbance,
    Habit,
    HostPlan,
    Kill,
    Life,
    Loop,
    RoundPlan,
    StorePlan,
    narrowed,
)
from turnkeeper.benchmarks.chaos.stage import MARK
from turnkeeper.benchmarks.measuring.marked_processes import wait_left_behind

from ..command_line import CommandLine
from ..serving import eventually

SEED = 333
"""It has one life with six agents, in which everybody is killed at once, and some before and after that. SQLite keeps
its store."""

SECONDS_MAX = 100.0


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """The command line of a store that chaos must not touch, with a directory for temporary files."""
    (tmp_path / "temporary").mkdir()
    made = CommandLine(tmp_path / "store", tmp_path)
    made.environment["TMPDIR"] = str(tmp_path / "temporary")
    return made


def left_in(path: Path) -> list[str]:
    """List what is left of a run: files, and processes that carry a mark below the path."""
    return [*os.listdir(path), *map(str, wait_left_behind(f"{MARK}={path}", 5.0))]


@pytest.mark.timeout(300)
def test_a_round_of_kills_breaks_no_promise_and_leaves_nothing(cli: CommandLine, tmp_path: Path) -> None:
    """It is the round that the seed says, everything acknowledged is found, and no files nor processes are left."""
    page = tmp_path / "page.html"
    arguments = ("chaos", "replay", str(SEED), "--fault", "none", "--html", str(page), "--json")
    ended = cli.run(*arguments, seconds=SECONDS_MAX)
    report = ended.object
    assert ended.code == 0
    assert ended.err.startswith(f"turnkeeper: round 1: seed {SEED}: every promise kept; ")
    assert len(ended.err.splitlines()) == 1
    assert (report["violations"], report["broken"], report["kept"]) == ([], {}, [])
    assert report["found"] == report["acknowledged"] > 0
    assert sum(report["kills"].values()) >= 5
    assert report["faults"] == {}
    planned = narrowed(make_plan(SEED), kills=ROLES, faults=(), impossible={})
    assert planned.store.backend == "sqlite"
    found = RoundPlan.from_map(report["plan"])
    assert (found.seed, found.store, found.copies) == (SEED, planned.store, ())
    assert (found.hosts, found.lives) == (planned.hosts, planned.lives)
    assert {name for name, _ in found.left_out} == set(FAULTS)
    assert f"Seed {SEED}" in page.read_text()
    assert report["flush_ms"]["p50"] > 0
    assert left_in(tmp_path / "temporary") == []
    assert not cli.store.exists()


@pytest.mark.timeout(300)
def test_a_plan_that_was_written_down_is_played(cli: CommandLine, tmp_path: Path) -> None:
    """Here one in which a host is stopped and its sessions taken over, and the power is cut; and a copy is damaged.

    Its journal has small segments, and a writer dies when it has just begun another one.
    """
    habits: tuple[Habit, ...] = ("tokens", "tools", "blobs", "tasks")
    hosts = tuple(
        HostPlan(f"host-{number}", loop, (AgentPlan(f"agent-{number}", number, 1, habits, in_worker=False),), ())
        for number, loop in enumerate(get_args(Loop))
    )
    stop = Disturbance(300, "stop", "host", 500, 0, None, takeover=True)
    kill = Kill(200, ("writer",), "writer-named-segment", 0)
    first = Life(1500, (kill,), (stop,), "power cut", "behind a successor's answers", "index-deleted")
    last = Life(500, (), (), "in order", "at any moment", "kept")
    plan = RoundPlan(4711, hosts, (first, last), (Copying("flip", 1),), StorePlan("journal", 16_000))
    (tmp_path / "plan.json").write_text(json.dumps(plan.as_map()))
    report = cli.run("chaos", "replay", "--plan", tmp_path / "plan.json", "--json", seconds=SECONDS_MAX).object
    assert report["broken"] == {}
    assert report["found"] == report["acknowledged"] > 0
    made = {"stop", "power", "index-deleted", "flip"} - report["left_out"].keys()
    assert report["faults"] == dict.fromkeys(made, 1)
    assert RoundPlan.from_map(report["plan"]).hosts == hosts
    assert left_in(tmp_path / "temporary") == []


@pytest.mark.parametrize(("seed", "seconds"), [(103, 1.0), (2763, 6.0)])
@pytest.mark.timeout(120)
def test_after_an_interrupt_everything_is_put_right(
    cli: CommandLine, tmp_path: Path, seed: int, seconds: float
) -> None:
    """While hosts start, while one is stopped, while a disk is mounted and the clock set: processes and files go."""
    interrupt(cli, tmp_path, seed, seconds)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_an_interrupt_at_any_moment_leaves_nothing(cli: CommandLine, tmp_path: Path) -> None:
    """Also while it is judged, or a shorter plan is looked for."""
    random = Random(7)
    for _ in range(30):
        interrupt(cli, tmp_path, random.choice((103, 111, 2763)), random.uniform(0.3, 25.0))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_run_that_is_killed_leaves_nothing_either(cli: CommandLine, tmp_path: Path) -> None:
    """Nor a disk: it is mounted for nobody else; whoever was stopped, or held by a tracer, is gone soon after."""
    random = Random(8)
    for seed in (2763, 0, 2763, 44, 103, 0, 44, 2763):
        process = cli.start("chaos", "run", "--seed", str(seed), "--seconds", "60")
        try:
            eventually(lambda: bool(os.listdir(tmp_path / "temporary")))
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(random.uniform(0.3, 15.0))
        finally:
            process.kill()
            process.communicate(timeout=SECONDS_MAX)
        eventually(lambda: left_in(tmp_path / "temporary") == [])
        eventually(lambda: not any(str(tmp_path) in disk for disk in disks_in_use()))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_rounds_with_everything_break_no_promise(cli: CommandLine, tmp_path: Path) -> None:
    """Ten minutes of all kills and faults that this machine can make."""
    with cli.start("chaos", "run", "--seconds", "600", "--seed", "5000", "--json") as process:
        said, _ = process.communicate(timeout=1500)
    assert json.loads(said)["broken"] == {}
    assert left_in(tmp_path / "temporary") == []


def disks_in_use() -> list[str]:
    """List the files that are mounted as disks."""
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            found.append(path.read_text())
    return found


def interrupt(cli: CommandLine, tmp_path: Path, seed: int, seconds: float) -> None:
    """Begin chaos, interrupt it so many seconds later, and see that it ends at once and leaves nothing."""
    process = cli.start("chaos", "run", "--seed", str(seed), "--seconds", "60")
    try:
        eventually(lambda: bool(os.listdir(tmp_path / "temporary")))  # it has begun
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        said, errors = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, said) == (130, b"")
    assert all(line.startswith(b"turnkeeper: round ") for line in errors.splitlines()), errors
    assert time.monotonic() - began < 5.0
    assert left_in(tmp_path / "temporary") == []


def test_a_directory_that_holds_something_is_refused(cli: CommandLine, tmp_path: Path) -> None:
    """Nothing in it is touched, whether it is a store or anything else."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").write_text("dear")
    refused = cli.here("chaos", "run", "--seconds", "1", "--json", "--store", tmp_path / "full")
    assert (refused.code, refused.error["kind"]) == (2, "usage")
    assert "not empty" in refused.err
    assert (tmp_path / "full" / "letter").read_text() == "dear"
    assert cli.here("chaos", "run", "--store", f"sqlite:{tmp_path / 'other'}").code == 2


def test_without_space_it_says_so_and_begins_nothing(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not even be noted is no test of anything."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    refused = cli.here("chaos", "run", "--seconds", "1", "--json", "--store", tmp_path / "new")
    assert (refused.code, refused.error["kind"]) == (6, "store_full")
    assert "1,000 bytes are free here" in refused.err.splitlines()[-1]
    assert os.listdir(tmp_path / "new") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--kill", "everybody"),
        ("run", "--kill", "none", "--kill", "node"),
        ("run", "--fault", "none", "--fault", "slow"),
        ("run", "--seconds", "0"),
        ("run", "--html", "nowhere/page.html"),
        ("replay",),
        ("replay", "--plan", "nowhere.json"),
        ("replay", "1", "--plan", __file__),
        ("replay", "--plan", __file__),
        ("replay", "-1"),
        ("replay", "seven"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(cli: CommandLine, arguments: tuple[str, ...]) -> None:
    """One line says what, and nothing was begun."""
    refused = cli.here("chaos", *arguments)
    assert refused.code == 2
    assert refused.out == ""
