"""Contract of a process's variables: a mark among them is seen from the moment that the process can be known by it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from turnkeeper.runtime.tasks import tree

STARTS = 300


@contextmanager
def started(environment: Mapping[str, str], *command: str) -> Iterator[int]:
    """Give the pid of a process that has just been started."""
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def test_variables_are_known_while_the_program_is_still_loaded() -> None:
    """Whoever started it goes on before the kernel has laid them down, in one of some ten starts on a busy machine."""
    for number in range(STARTS):
        with started({"MARK": str(number)}, sys.executable, "-S", "-c", "input()") as pid:
            assert f"MARK={number}".encode() in tree.environment_of(pid)


def test_a_process_without_variables_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was given none, one that is dead, and a thread of the kernel have no more to come."""
    monkeypatch.setattr(tree, "LOADING_SECONDS", float("inf"))
    with started({}, sys.executable, "-S", "-c", "print(); input()") as pid:
        assert not any(tree.environment_of(pid))
    dead = os.posix_spawnp("true", ["true"], {"A": "b"})
    os.waitid(os.P_PID, dead, os.WEXITED | os.WNOWAIT)
    assert not any(tree.environment_of(dead))
    os.waitpid(dead, 0)
    assert not any(tree.environment_of(2))


def test_a_process_that_never_gets_its_variables_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program's disk may be gone."""
    monkeypatch.setattr(tree, "LOADING_SECONDS", 0.01)
    monkeypatch.setattr(tree, "_is_being_loaded", lambda pid: True)
    with started({}, sys.executable, "-S", "-c", "input()") as pid:
        assert not any(tree.environment_of(pid))


def test_of_a_process_that_is_not_there_no_variables_are_known() -> None:
    """Nor is it an error: it ended during the look."""
    with started({"A": "b"}, "cat") as pid:
        pass
    assert tree.environment_of(pid) == []
