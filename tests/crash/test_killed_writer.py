"""The writer's process killed with SIGKILL at each of its operations on the disk and each of its system calls."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

from turnkeeper.storage.store import BackendName

from .killed_writer import Told, killed_writer, strace
from .writer_program import Job

OPERATIONS = 500


def _count(path: Path, steps: int) -> int:
    """Run the program undisturbed, and count its operations on the disk."""
    told = Told()
    with killed_writer() as writer:
        writer.start(Job(str(path), seed=3, steps=steps))
        while "done" not in (message := writer.hear()):
            told.hear(message)
        assert writer.hear_end() == 0
    told.check(path, "boot 1")
    operations: int = message["done"]
    shutil.rmtree(path)
    return operations


def _kill_at(path: Path, points: Iterable[int], how: str, steps: int) -> int:
    """Kill the program at each of some operations, and let its clients go on in a successor; give the deaths."""
    deaths = 0
    with killed_writer() as writer:
        for point in points:
            told = Told()
            job = Job(str(path), seed=3, steps=steps, kill_at=point, how=how)
            assert writer.run(job, told) == -signal.SIGKILL, point
            assert writer.run(Job(str(path), seed=point, steps=3), told) == 0
            told.check(path, "boot 1")
            shutil.rmtree(path)
            deaths += 1
    return deaths


@pytest.mark.parametrize("how", ["before", "half", "after"])
def test_a_writer_killed_at_an_operation_loses_nothing_it_told(memory_path: Path, how: str) -> None:
    """Its successor has everything acknowledged, and takes what clients send again once; a share of all points."""
    operations = _count(memory_path / "store", 60)
    assert operations > 120
    assert _kill_at(memory_path / "store", range(1, operations, 13), how, 60) > 9


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("how", ["before", "half", "after"])
def test_a_writer_killed_at_any_operation_loses_nothing_it_told(memory_path: Path, how: str) -> None:
    """The long form: every operation on the disk of a program of 500 commits with rolls, takeovers and reopenings."""
    operations = _count(memory_path / "store", OPERATIONS)
    assert operations > 2 * OPERATIONS
    print(f"{operations} operations, killed {how} each")  # noqa: T201
    assert _kill_at(memory_path / "store", range(1, operations + 1), how, OPERATIONS) == operations


def _kill_at_call(path: Path, call: str, number: int, steps: int, backend: BackendName = "journal") -> bool:
    """Kill the program at its n-th system call of a kind; say whether it came to that."""
    told = Told(backend=backend)
    with killed_writer(*strace("-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={number}")) as writer:
        code = writer.run(Job(str(path), seed=5, steps=steps), told)
    assert code in (0, -signal.SIGKILL)
    if code == -signal.SIGKILL:
        with killed_writer() as writer:
            assert writer.run(Job(str(path), seed=number, steps=3), told) == 0
    told.check(path, "boot 1")
    shutil.rmtree(path)
    return code != 0


@pytest.mark.parametrize("backend", ["journal", "sqlite"])
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
def test_a_writer_killed_in_a_system_call_loses_nothing_it_told(
    memory_path: Path, call: str, backend: BackendName
) -> None:
    """SIGKILL from outside, as the call begins; some of the calls."""
    for number in (1, 4, 17):
        assert _kill_at_call(memory_path / "store", call, number, 30, backend)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("backend", ["journal", "sqlite"])
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
def test_a_writer_killed_in_any_system_call_loses_nothing_it_told(
    memory_path: Path, call: str, backend: BackendName
) -> None:
    """The long form: every such call of the program of 500 commits."""
    number = 1
    while _kill_at_call(memory_path / "store", call, number, OPERATIONS, backend):
        number += 1
    print(f"{backend}: {number - 1} calls of {call}")  # noqa: T201
    assert number > OPERATIONS


def _kill_often(path: Path, times: int, seed: int) -> int:
    """Kill SQLite's writer at random moments, each time after another has gone on; give the events acknowledged."""
    told, rng = Told(backend="sqlite"), random.Random(seed)
    with killed_writer() as writer:
        for _ in range(times):
            job = Job(str(path), seed=rng.randrange(1 << 30), steps=200, takeover=rng.random() < 0.3)
            assert writer.run_and_kill(job, told, rng) == -signal.SIGKILL
            told.check(path, "boot 1")
    return sum(told.heads.values())


def test_a_writer_of_sqlite_killed_at_any_moment_loses_nothing_it_told(memory_path: Path) -> None:
    """In mid-commit, between commits, while its log is moved into the database, in an opening: some moments."""
    assert _kill_often(memory_path / "store", 12, seed=1) > 100


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_writer_of_sqlite_killed_at_a_thousand_moments_loses_nothing_it_told(memory_path: Path) -> None:
    """The long form: 50 stores, killed 20 times each."""
    events = 0
    for seed in range(50):
        events += _kill_often(memory_path / "store", 20, seed)
        shutil.rmtree(memory_path / "store")
    print(f"1000 kills, {events} events acknowledged by SQLite")  # noqa: T201
