"""Processes that carry a mark: found by it as long as they live, and ended with all that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.benchmarks.measuring import marked_processes
from turnkeeper.benchmarks.measuring.marked_processes import (
    WrongProcess,
    carrying,
    kill_left_behind,
    left_behind,
    wait_left_behind,
)


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose environment has a mark."""
    environment = {**os.environ, "MARK": f"{tmp_path}/tasks/a"}
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, env=environment) as process:
        yield process
        process.kill()


def test_what_carries_the_mark_is_found_as_long_as_it_lives(marked: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """By its environment, whatever it is and whoever started it; one that is dead is not left, nor is another's."""
    found = wait_left_behind(f"MARK={tmp_path}/tasks", patience=0.0)
    assert found == [marked.pid]
    assert left_behind(f"MARK={tmp_path}/other") == []
    marked.kill()
    assert wait_left_behind(f"MARK={tmp_path}/tasks", patience=10.0) == []


def test_what_is_started_meanwhile_carries_the_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing before or behind that; a value that was there comes back."""
    monkeypatch.setenv("MARK", "before")
    with carrying("MARK", f"{tmp_path}/inner"):
        inner = subprocess.Popen(["sleep", "60"])
    outer = subprocess.Popen(["sleep", "60"])
    with inner, outer:
        assert left_behind(f"MARK={tmp_path}/inner") == [inner.pid]
        assert os.environ["MARK"] == "before"
        inner.kill()
        outer.kill()


def test_what_carries_a_mark_is_ended_and_nothing_else(tmp_path: Path) -> None:
    """With all that it has started, whatever process session that is in."""
    script = "setsid sleep 60 & sleep 60"
    environment = {**os.environ, "MARK": f"{tmp_path}/tasks/a"}
    with (
        subprocess.Popen(["sleep", "60"]) as other,
        subprocess.Popen(["sh", "-c", script], env=environment, start_new_session=True) as marked,
    ):
        kill_left_behind(f"MARK={tmp_path}/tasks", patience=10.0)
        assert marked.wait(10) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()
    assert left_behind(f"MARK={tmp_path}") == []


def test_what_does_not_end_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No demo ends in silence with a process of its own alive."""
    monkeypatch.setattr(marked_processes, "left_behind", lambda mark: [os.getppid()])
    monkeypatch.setattr(marked_processes, "belongs", lambda pid, mark: False)
    with pytest.raises(WrongProcess, match=f"{os.getppid()}.*can't be ended"):
        kill_left_behind("MARK=x", patience=0.05)
