"""The keeper of the spawner, with real processes in its place that don't do what a spawner does."""

from __future__ import annotations

import subprocess
import sys

import pytest
import trio

from turnkeeper.actors.node.restarts import FAILED_POLICY
from turnkeeper.actors.node.tasks import spawner_keeper
from turnkeeper.actors.node.tasks.spawner_keeper import SpawnerKeeper

pytestmark = pytest.mark.trio


def start_python(program: str, requests: int) -> subprocess.Popen[bytes]:
    """Start a process that has the spawner's socket as its stdin."""
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", program], stdin=requests, start_new_session=True)


class Failures:
    """What a keeper has said of tasks that can't begin."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.news = trio.Event()

    def __call__(self, task: str, why: str) -> None:
        self.told.append((task, why))
        self.news.set()


async def test_a_spawner_that_ends_again_and_again_fails_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some restarts the tasks are told why; a task that comes later has it tried anew."""
    starts: list[int] = []

    def start(requests: int, descriptors: int) -> subprocess.Popen[bytes]:
        starts.append(descriptors)
        return start_python("raise SystemExit(3)", requests)

    monkeypatch.setattr(spawner_keeper, "start_spawner", start)
    failures = Failures()
    keeper = SpawnerKeeper(failures, descriptors=100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        for task in ("task-a", "task-b"):
            failures.news = trio.Event()
            keeper.hand_over(task)
            with trio.fail_after(20):
                await failures.news.wait()
        nursery.cancel_scope.cancel()
    assert [task for task, _ in failures.told] == ["task-a", "task-b"]
    assert all("ended with exit code 3" in why and "restarts within" in why for _, why in failures.told)
    assert starts == [100] * 2 * (FAILED_POLICY.intensity + 1)


async def test_a_spawner_that_cant_be_started_fails_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is the system's."""

    def start(requests: int, descriptors: int) -> subprocess.Popen[bytes]:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(spawner_keeper, "start_spawner", start)
    failures = Failures()
    keeper = SpawnerKeeper(failures, descriptors=100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        keeper.hand_over("task-a")
        with trio.fail_after(20):
            await failures.news.wait()
        nursery.cancel_scope.cancel()
    ((task, why),) = failures.told
    assert task == "task-a"
    assert why.startswith("the spawner can't be started (Resource temporarily unavailable)")


async def test_a_spawner_that_doesnt_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket is closed and it goes on: it gets a moment, and is reaped."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(requests: int, descriptors: int) -> subprocess.Popen[bytes]:
        processes.append(start_python("import time; time.sleep(100)", requests))
        return processes[0]

    monkeypatch.setattr(spawner_keeper, "start_spawner", start)
    monkeypatch.setattr(spawner_keeper, "END_SECONDS", 0.1)
    keeper = SpawnerKeeper(Failures(), descriptors=100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        keeper.hand_over("task-a")
        with trio.fail_after(20):
            while keeper.pid is None:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert processes[0].returncode == -9
    assert keeper.pid is None
