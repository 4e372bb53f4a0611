"""Contract of the look for what is left: a process, a zombie, a lock, a socket, an open file and a temporary one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnkeeper.benchmarks.chaos.checker.leftovers import (
    MIB,
    SEGMENTS_OPEN_MAX,
    Bound,
    Leftovers,
    look_for_leftovers,
    nothing_is_left,
    processes_stay_small,
)

HOLDER = """
import fcntl, os, socket, subprocess, sys
os.chdir(sys.argv[1])
held = open("store.json", "r+b")
fcntl.fcntl(held, 37, bytes([1, 0, 0, 0]) + bytes(28))
listening = socket.socket(socket.AF_UNIX)
listening.bind("node.sock")
listening.listen()
os.chdir("/")
child = subprocess.Popen(["true"])
os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
print("ready", flush=True)
sys.stdin.read()
"""
"""Holds an open-file-description write lock, a socket and a dead child until its input ends."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store as a clean end leaves it, by its files."""
    path = tmp_path / "store"
    for name in ("journal", "index/kept", "tasks/task-1"):
        (path / name).mkdir(parents=True)
    for name in ("store.json", "journal/00000001.jsonl", "tasks/task-1/exit.json", "tasks/task-1/lock"):
        (path / name).touch()
    (path / "index.json").write_text(json.dumps({"directory": "index/kept"}))
    return path


def test_a_store_that_everybody_left_has_nothing_left(store: Path) -> None:
    """Files that stay are no leftovers, nor is a socket that nobody answers at."""
    (store / "node.sock").touch()
    found = look_for_leftovers(store, f"MARK={store}")
    assert found == Leftovers()
    assert found.is_nothing
    assert not list(nothing_is_left(found))


def test_what_a_process_holds_is_found_until_it_ends(store: Path) -> None:
    """By its mark, what it has open, the kernel's list of locks, an answer at its socket, and its dead children."""
    command = [sys.executable, "-c", HOLDER, str(store)]
    environment = {**os.environ, "MARK": f"{store}/agent"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"ready\n"
            found = look_for_leftovers(store, f"MARK={store}", parents=[holder.pid])
        finally:
            holder.kill()
            holder.wait(10)
    assert list(found.processes) == [holder.pid]
    assert list(found.zombies.values()) == ["true"]
    assert found.locks == (str(store / "store.json"),)
    assert found.sockets == (str(store / "node.sock"),)
    assert found.descriptors == ((holder.pid, str(store / "store.json")),)
    assert len(list(nothing_is_left(found))) == 5
    assert look_for_leftovers(store, f"MARK={store}", patience=5.0).is_nothing


def test_a_process_that_works_in_the_store_is_found_without_a_mark(store: Path) -> None:
    """A node works in its store's directory, whatever its environment has."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, cwd=store) as working:
        found = look_for_leftovers(store, f"MARK={store}")
        working.kill()
        working.wait(10)
    assert found.processes == {working.pid: "cat "}


def test_own_descriptors_and_files_that_should_be_gone_are_found(store: Path) -> None:
    """A file of the store that the looker left open, temporary files, an environment, an index that nobody names."""
    gone = ["00000002.tmp", "journal/00000002.tmp", "tasks/task-1/env.json", "index/other"]
    for name in gone:
        (store / name).touch()
    with (store / "store.json").open("rb"):
        found = look_for_leftovers(store, f"MARK={store}")
    assert found.descriptors == ((os.getpid(), str(store / "store.json")),)
    assert found.files == tuple(sorted(str(store / name) for name in gone))


def observed(role: str, pid: int, descriptors: int, pss_bytes: float, **counts: int) -> dict[str, object]:
    """Make the note of a process that was looked at."""
    note = {"what": "process", "role": role, "pid": pid, "descriptors": descriptors, "pss_bytes": pss_bytes}
    return {**note, **counts, "file": "runner", "line": 1}


def test_a_bound_grows_with_what_a_process_serves() -> None:
    """The same memory is too much for one that serves nobody."""
    assert Bound(10, client=2, task=0.5).of(observed("node", 1, 0, 0, clients=3, tasks=4)) == 18
    busy = observed("node", 1, 30, 55 * MIB, clients=10)
    idle = observed("node", 2, 30, 55 * MIB)
    assert [violation.subject for violation in processes_stay_small([busy, idle])] == ["process 2"]


def test_a_reader_keeps_some_segments_open_and_not_all() -> None:
    """Of a journal with a thousand of them as many as of one with a hundred; what is open beyond that has leaked."""
    bound = Bound(10, segment=2)
    counts = {segments: bound.of(observed("host", 1, 0, 0, segments=segments)) for segments in (0, 3, 100, 1000)}
    assert counts == {0: 10, 3: 16, 100: 10 + 2 * SEGMENTS_OPEN_MAX, 1000: 10 + 2 * SEGMENTS_OPEN_MAX}
    leaking = observed("node", 1, 100, MIB, clients=3)
    assert [violation.subject for violation in processes_stay_small([leaking])] == ["process 1"]
    assert not list(processes_stay_small([{**leaking, "segments": 90}]))


def test_a_process_is_told_of_once_with_what_was_worst() -> None:
    """However often it was looked at."""
    notes = [observed("shim", 1, 5, size * MIB) for size in (2, 50, 30)]
    (violation,) = processes_stay_small(notes)
    assert "held 50.0 MiB" in violation.says
