"""The caretaker of a run of chaos: it puts right what the run's program can't, having been killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.benchmarks.chaos import faults
from turnkeeper.benchmarks.chaos.abilities import impossible
from turnkeeper.benchmarks.chaos.caretaker import PLAN, TEMPORARY, put_right
from turnkeeper.benchmarks.chaos.stage import MARK
from turnkeeper.benchmarks.chaos.store_processes import is_alive, state_of

from ..serving import eventually

RUNNER = """
import os, signal, subprocess, sys
from pathlib import Path
from turnkeeper.benchmarks.chaos.caretaker import taken_care_of
place = Path(sys.argv[1])
with taken_care_of(place):
    environment = {**os.environ, sys.argv[2]: f"{place}/round-7-abc"}
    struck = subprocess.Popen(["sleep", "1000"], env=environment, start_new_session=True)
    struck.send_signal(signal.SIGSTOP)
    print(struck.pid, flush=True)
    sys.stdin.read()
    if sys.argv[3] == "ends":
        struck.kill()
        struck.wait()
    else:
        os.kill(os.getpid(), signal.SIGKILL)
"""

SECONDS_MAX = 30.0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory of a run, with a round that goes on and one that is kept."""
    made = tmp_path / f"{TEMPORARY}xyz"
    for name in ("round-7-abc", "round-6-def"):
        (made / name).mkdir(parents=True)
    (made / "round-6-def" / PLAN).write_text("{}")
    (made / "round-7-abc" / "notes").write_text("noted")
    return made


@pytest.fixture
def sleeping(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the mark of the round that goes on."""
    environment = {**os.environ, MARK: f"{place}/round-7-abc"}
    with subprocess.Popen(["sleep", "1000"], env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_a_run_that_was_killed_leaves_what_is_kept_and_nothing_else(place: Path, how: str) -> None:
    """A process that it had stopped, and its round, go; what a run that ends leaves is its own affair."""
    command = [sys.executable, "-c", RUNNER, str(place), MARK, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        struck = int(runner.stdout.readline())
        eventually(lambda: state_of(struck) == "T")
        runner.communicate(timeout=SECONDS_MAX)
    assert runner.returncode == (0 if how == "ends" else -signal.SIGKILL)
    eventually(lambda: not is_alive(struck))
    if how == "ends":
        assert sorted(os.listdir(place)) == ["round-6-def", "round-7-abc"]
    else:
        eventually(lambda: os.listdir(place) == ["round-6-def"])


def test_who_is_held_by_a_tracer_ends_with_it(place: Path, sleeping: subprocess.Popen[bytes]) -> None:
    """A tracer that delays a system call would hold its process for minutes, killed or not."""
    if why := impossible().get("slow"):
        pytest.skip(why)
    lift = faults.held_syncs(sleeping.pid)
    put_right(place, time.time())
    assert sleeping.wait(SECONDS_MAX) == -signal.SIGKILL
    lift()


def test_where_nothing_is_kept_the_directory_goes_too(place: Path) -> None:
    """If it was made for the run alone: one that was given stays."""
    given = place.with_name("given")
    for each in (place, given):
        (each / "round-8-ghi").mkdir(parents=True)
        (each / "round-6-def" / PLAN).unlink(missing_ok=True)
        put_right(each, time.time())
    assert not place.exists()
    assert os.listdir(given) == []
