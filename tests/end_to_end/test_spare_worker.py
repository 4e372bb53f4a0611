"""End to end: the process that waits for the next worker, as good as one started just then, and never left behind."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup

from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.runtime.errors import WorkerStartError
from turnkeeper.runtime.workers.worker import spawn_in_process
from turnkeeper.runtime.workers.worker_process import SpareWorker

from ..actors_at_work import Clerk
from ..served import end_all, read_line, start_python
from ..worker_hosts import possessions, wait_gone, write_module

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("import_path")]

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 30

SURVEYOR = """
import os, sys
class Surveyor:
    async def survey(self):
        print("to the output of now", flush=True)
        print("to the errors of now", file=sys.stderr, flush=True)
        return [os.getcwd(), ascii(os.environ.get("WORD")), os.environ.get("GONE"), sys.argv]
"""

HOST = """
import sys, anyio
from turnkeeper.runtime.workers.worker import spawn_in_process
from turnkeeper.runtime.workers.worker_process import SpareWorker

async def main():
    sys.path.append(sys.argv[1])
    spare = SpareWorker()
    async with anyio.create_task_group() as group:
        agent = await spawn_in_process(group, "tests.actors_at_work:Clerk", spare=spare)
        print(await agent.ask("pid"), spare.pid, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.fixture
async def spare() -> AsyncIterator[SpareWorker]:
    """A spare that waits, and is ended after the test."""
    waiting = SpareWorker()
    waiting.refill()
    yield waiting
    await waiting.aclose()


async def test_the_next_worker_is_the_spare_which_is_refilled(group: TaskGroup, spare: SpareWorker) -> None:
    """The process was there before the actor was asked for, and another one waits when the actor is ready."""
    waiting = spare.pid
    clerk = await spawn_in_process(group, Clerk, "a note", spare=spare)
    assert await clerk.ask("pid") == waiting
    assert await clerk.ask("notes") == ["a note"]
    assert spare.pid not in (None, waiting)
    assert os.getsid(waiting or 0) == waiting


async def test_there_is_no_spare_before_it_is_asked_for(group: TaskGroup) -> None:
    """Whoever has no worker pays for none; after the first one, one waits."""
    spare = SpareWorker()
    pids = [spare.pid]
    await spawn_in_process(group, Clerk, spare=spare)
    pids.append(spare.pid)
    assert [pid is None for pid in pids] == [True, False]
    await spare.aclose()


async def test_a_spare_works_where_its_host_is_now(
    group: TaskGroup,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Directory, environment, import path, arguments and standard streams are those of the actor's start."""
    monkeypatch.setenv("GONE", "before")
    spare = SpareWorker()
    with capfd.disabled():  # so that it was launched with other streams than those of now
        spare.refill()
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("WORD", "\udcff as bytes")
    monkeypatch.delenv("GONE")
    monkeypatch.setattr(sys, "argv", ["program", "word"])
    monkeypatch.syspath_prepend(place)
    surveyor = await spawn_in_process(group, write_module(place, "surveying", SURVEYOR) + ":Surveyor", spare=spare)
    told = await surveyor.ask("survey")
    await spare.aclose()
    assert told == [str(place), ascii("\udcff as bytes"), None, ["program", "word"]]
    assert capfd.readouterr() == ("to the output of now\n", "to the errors of now\n")


async def test_a_spare_that_died_is_replaced_unnoticed(group: TaskGroup, spare: SpareWorker) -> None:
    """Somebody killed it while it waited: the actor gets a process all the same."""
    waiting = spare.pid
    assert waiting is not None
    os.kill(waiting, signal.SIGKILL)
    await wait_gone(waiting)
    clerk = await spawn_in_process(group, Clerk, spare=spare)
    assert await clerk.ask("pid") != waiting


async def test_a_spare_from_under_other_limits_is_not_used(group: TaskGroup, spare: SpareWorker) -> None:
    """What a process has from its parent for good must be what the host has now: a spare keeps the old limits."""
    waiting = spare.pid
    assert waiting is not None
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (4096 if soft != 4096 else 8192, hard))
    try:
        clerk = await spawn_in_process(group, Clerk, spare=spare)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert await clerk.ask("pid") != waiting
    await wait_gone(waiting)


async def test_nothing_is_left_of_spares(group: TaskGroup, tmp_path: Path) -> None:
    """After starts that worked, failed or were cancelled, closing leaves no process and no descriptor, and for good."""
    before = possessions()
    spare = SpareWorker()
    for _ in range(2):
        clerk = await spawn_in_process(group, Clerk, spare=spare)
        await clerk.stop()
    with pytest.raises(WorkerStartError):
        await spawn_in_process(group, write_module(tmp_path, "unbuilt", "import missing") + ":Any", spare=spare)
    async with anyio.create_task_group() as starting:
        starting.start_soon(lambda: spawn_in_process(group, Clerk, spare=spare))
        await anyio.lowlevel.checkpoint()
        starting.cancel_scope.cancel()
    await spare.aclose()
    spare.refill()
    assert possessions() == before


async def test_a_spare_ends_with_a_killed_host() -> None:
    """Nobody is there to end it, and it ends at once, as a worker does."""
    host = start_python(HOST, str(ROOT))
    try:
        worker, waiting = (int(word) for word in read_line(host).split())
    finally:
        end_all([host])
    with anyio.fail_after(DEADLINE_SECONDS):
        await wait_gone(worker)
        await wait_gone(waiting)


async def test_a_runtime_keeps_a_spare_and_ends_it(tmp_path: Path) -> None:
    """Its second worker is there sooner than Python starts; leaving the runtime leaves no process."""
    with anyio.fail_after(DEADLINE_SECONDS):
        before = possessions()[1]
        async with open_runtime(tmp_path / "store") as runtime:
            first = await runtime.spawn(Clerk, process=True)
            waiting = {child for child in possessions()[1] if child not in before} - {str(await first.ask("pid"))}
            second = await runtime.spawn(Clerk, process=True)
            assert str(await second.ask("pid")) in waiting
        assert possessions()[1] == before
