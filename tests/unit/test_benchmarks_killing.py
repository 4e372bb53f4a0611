"""Contract of the demo's kills: they hit the process that was meant, and no other one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.benchmarks.demonstration.killing import kill_child, kill_server, kill_serving
from turnkeeper.benchmarks.measuring.marked_processes import WrongProcess


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child of this process that works in a directory of its own."""
    (tmp_path / "store").mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, cwd=tmp_path / "store") as process:
        yield process
        process.kill()


def test_what_works_in_the_store_is_killed(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """Node and writer work in their store's directory; the time of the kill is told."""
    before = time.monotonic()
    assert before <= kill_server(sleeper.pid, tmp_path / "store") <= time.monotonic()
    assert sleeper.wait(10) == -signal.SIGKILL


def test_what_works_elsewhere_is_not(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """A process that has got the pid of one that served the store lives on."""
    with pytest.raises(WrongProcess, match="not the one"):
        kill_server(sleeper.pid, tmp_path)
    assert sleeper.poll() is None


def test_an_own_child_is_killed_and_nobody_elses(sleeper: subprocess.Popen[bytes]) -> None:
    """Workers are this process's children."""
    with pytest.raises(WrongProcess, match="not the one"):
        kill_child(os.getppid())
    kill_child(sleeper.pid)
    assert sleeper.wait(10) == -signal.SIGKILL
    with pytest.raises(WrongProcess, match="no process"):
        kill_child(sleeper.pid)


def test_a_store_that_nobody_serves_has_nobody_to_kill(tmp_path: Path) -> None:
    """It is said instead of waited for any longer than asked."""
    (tmp_path / "store").mkdir(mode=0o700)
    with pytest.raises(WrongProcess, match="no node"):
        kill_serving(tmp_path / "store", "node", patience=0.05)
    with pytest.raises(WrongProcess, match="no spawner"):
        kill_serving(tmp_path / "store", "spawner", patience=0.05)
