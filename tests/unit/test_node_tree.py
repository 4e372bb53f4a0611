"""The node's tree, with processes in the writer's place that do what the tests tell them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnkeeper.actors.errors import VersionMismatch
from turnkeeper.actors.node import tree as node_tree
from turnkeeper.actors.node import writer_keeper
from turnkeeper.actors.node.switchboard import Switchboard
from turnkeeper.actors.node.tasks.recorder import Recorder
from turnkeeper.actors.node.tasks.supervisor_keeper import SupervisorKeeper
from turnkeeper.actors.node.tree import NodeTree
from turnkeeper.actors.node.writer_keeper import WriterKeeper
from turnkeeper.actors.protocol import INDEX_FAILED_EXIT_CODE
from turnkeeper.runtime.restart import RestartPolicy
from turnkeeper.storage.errors import StorageError

pytestmark = pytest.mark.trio

DEADLINE_SECONDS = 20
SERVES = 'print(\'{"op": "serving", "report": {}}\', flush=True); sys.stdin.read()'
IS_DEAF = 'print(\'{"op": "serving", "report": {}}\', flush=True); time.sleep(100)'


class Kept:
    """A tree whose writers run the given programs, one after another, the last one again and again."""

    def __init__(self, *programs: str) -> None:
        self._programs = list(programs)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.distrusted: list[bool] = []
        self.refusals: list[str] = []
        self.changes = 0
        self._news = trio.Event()
        self.writer = WriterKeeper("/a/store", self._launch(), self.start, self._changed, self._refused)
        self.tasks = SupervisorKeeper(Switchboard(), lambda token: False, self._changed, self._end, descriptors=9)
        self.tree = NodeTree("/a/store", self.writer, self.tasks, self._refused, self._end)
        self.tree.greeted.set()

    def start(self, distrust_index: bool) -> subprocess.Popen[bytes]:
        """Start a writer, as the tree wishes one."""
        self.distrusted.append(distrust_index)
        return self._launch()

    def _launch(self) -> subprocess.Popen[bytes]:
        program = self._programs.pop(0) if len(self._programs) > 1 else self._programs[0]
        command = [sys.executable, "-I", "-S", "-c", f"import os, sys, time; {program}"]
        pipe = subprocess.PIPE
        self.processes.append(subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, start_new_session=True))
        return self.processes[-1]

    def _changed(self) -> None:
        self._news.set()

    def _refused(self, refusal: StorageError) -> None:
        self._end(str(refusal))

    def _end(self, why: str) -> None:
        self.refusals.append(why)
        self._news.set()

    async def comes(self, holds: Callable[[], bool]) -> None:
        """Wait until that holds."""
        while not holds():
            self._news = trio.Event()
            await self._news.wait()

    async def serves(self, times: int) -> None:
        """Wait until that many writers were started, and the last one serves."""
        await self.comes(lambda: len(self.processes) == times and self.writer.state == "serving")
        assert self.writer.pid == self.processes[-1].pid


@asynccontextmanager
async def kept(*programs: str) -> AsyncIterator[Kept]:
    """Run a tree, end it behind the body, and see that it leaves no process."""
    tree = Kept(*programs)
    with trio.fail_after(DEADLINE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tree.tree.run)
            yield tree
            await tree.tree.end()
    assert all(process.returncode is not None for process in tree.processes)


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keep what would go into node.log."""
    lines: list[str] = []
    monkeypatch.setattr(writer_keeper, "log", lines.append)
    return lines


async def test_a_writer_that_ends_by_itself_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After as many restarts as the policy has, the reason says how the last one ended, and how often it was tried."""
    soon = RestartPolicy(intensity=2, period_seconds=60, backoff_first=0.01, backoff_max=0.01)
    monkeypatch.setattr(node_tree, "FAILED_POLICY", soon)
    async with kept("sys.exit(3)") as tree:
        await tree.comes(lambda: bool(tree.refusals))
        assert len(tree.processes) == 3
        how = f"the writer, process {tree.processes[-1].pid}, ended with exit code 3"
        why = f"{how}, and it ended again after 2 restarts within 60 s; node.log there says more"
        assert tree.refusals == [f"/a/store: {why}"]


async def test_a_killed_writer_comes_back_at_once_and_uses_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy under which nothing that fails would ever come back doesn't matter to it."""
    never = RestartPolicy(intensity=0, backoff_first=300, backoff_max=300)
    monkeypatch.setattr(node_tree, "FAILED_POLICY", never)
    async with kept(SERVES) as tree:
        for times in range(1, 6):
            await tree.serves(times)
            tree.processes[-1].kill()
        await tree.serves(6)
    assert (tree.refusals, tree.distrusted) == ([], [False] * 5)


async def test_a_writer_that_refuses_is_the_end_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says is told, and no other is started."""
    monkeypatch.setattr(node_tree, "FAILED_POLICY", RestartPolicy(backoff_first=0, backoff_max=0))
    refusal = '{"op": "error", "error": "StoreRefused", "args": ["/a/store", "it is no store"]}'
    async with kept(f"print({refusal!r}, flush=True)") as tree:
        await tree.comes(lambda: bool(tree.refusals))
        await wait_all_tasks_blocked()
    assert tree.refusals == ["/a/store: it is no store"]
    assert len(tree.processes) == 1


async def test_a_writer_that_cant_be_started_is_the_end_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is the system's."""

    def start(tree: Kept, distrust_index: bool) -> subprocess.Popen[bytes]:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(Kept, "start", start)
    async with kept(SERVES) as tree:
        await tree.serves(1)
        tree.processes[0].kill()
        await tree.comes(lambda: bool(tree.refusals))
    assert tree.refusals == ["/a/store: its writer can't be started (Resource temporarily unavailable)"]


async def test_an_index_is_distrusted_until_a_writer_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends those that come between: it is told to each one, and no more once one has made a new index."""
    soon = RestartPolicy(intensity=5, backoff_first=0.01, backoff_max=0.01)
    monkeypatch.setattr(node_tree, "FAILED_POLICY", soon)
    async with kept(f"sys.exit({INDEX_FAILED_EXIT_CODE})", "os.kill(os.getpid(), 9)", SERVES) as tree:
        await tree.serves(3)
        tree.processes[-1].kill()
        await tree.serves(4)
    assert tree.distrusted == [True, True, False]


async def test_a_rebuild_is_carried_out_by_the_first_writer_that_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that dies over it is followed by one that begins anew. All who wish for it get the same report."""
    reports = SERVES.replace("{}", '{"rebuilt": true}')
    reported: list[dict[str, object]] = []
    async with kept(SERVES, "os.kill(os.getpid(), 9)", reports) as tree:
        await tree.serves(1)

        async def ask(rebuild: Callable[[], Awaitable[dict[str, object]]]) -> None:
            reported.append(await rebuild())

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(ask, tree.tree.rebuild)
    assert reported == [{"rebuilt": True}] * 2
    assert tree.distrusted == [True, True]
    assert tree.processes[0].returncode == 0


async def test_a_writer_that_takes_no_records_is_the_end_of_the_process_supervisor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The next one would fare no better: the node is told why it has to end, once."""
    monkeypatch.setattr(node_tree, "FAILED_POLICY", RestartPolicy(backoff_first=0, backoff_max=0))
    monkeypatch.chdir(tmp_path)
    mismatch = VersionMismatch(1, "2", "b", "3", "a")

    async def refuse(recorder: Recorder, *, task_status: object) -> None:
        raise mismatch

    monkeypatch.setattr(Recorder, "run", refuse)
    async with kept(SERVES) as tree:
        tree.tasks.wanted.set()
        await tree.comes(lambda: bool(tree.refusals))
        await wait_all_tasks_blocked()
    assert tree.refusals == [str(mismatch)]


@pytest.mark.parametrize("what", ["rebuild", "end"])
async def test_a_writer_that_doesnt_end_is_killed(what: str, log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told to, and had its time; no other is there before it is gone."""
    monkeypatch.setattr(writer_keeper, "END_SECONDS", 0.1)
    async with kept(IS_DEAF, SERVES) as tree:
        await tree.serves(1)
        await (tree.tree.rebuild() if what == "rebuild" else tree.tree.end())
        assert tree.processes[0].returncode == -9
    assert log == [f"the writer, process {tree.processes[0].pid}, didn't end within 0.1 s and is killed"]
    assert len(tree.processes) == (2 if what == "rebuild" else 1)
