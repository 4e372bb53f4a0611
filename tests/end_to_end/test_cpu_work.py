"""End to end: functions in the processes kept for CPU work, with real processes, on trio and on asyncio."""

from __future__ import annotations

import functools
import math
import mmap
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from turnkeeper.actors.blocking.connecting import connect
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.runtime.cpu.work import KEEPERS_MAX, CpuWork
from turnkeeper.runtime.errors import ActorError, ActorNotStarted, ActorUnknown, MessageTooLarge, WorkerStartError
from turnkeeper.runtime.identity import process_state

from .. import jobs_at_work as jobs
from ..marks import appears, lines
from ..outcomes import collect
from ..worker_hosts import possessions, wait_gone, write_module

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("import_path")]

DEADLINE_SECONDS = 40
SHORT_SECONDS = 0.2
KILLED_SECONDS = 1.0
"""Enough for a job to have begun, in a process that is there, on a busy machine."""
MIB = 1024 * 1024


@asynccontextmanager
async def opened(jobs_max: int = 2) -> AsyncIterator[CpuWork]:
    """Have CPU work done for the body, and see that nothing is left of it."""
    before = possessions()
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            work = CpuWork(tasks, jobs_max)
            yield work
            await work.aclose()
    assert possessions() == before


@pytest.fixture
async def work() -> AsyncIterator[CpuWork]:
    """CPU work of two jobs at a time."""
    async with opened() as found:
        yield found


class Held:
    """A job that is at work until it is let go."""

    def __init__(self, folder: Path, name: str) -> None:
        self.fifo, self.began = folder / f"{name}.fifo", folder / f"{name}.began"
        os.mkfifo(self.fifo)
        self.outcome: Any = None

    async def do(self, work: CpuWork) -> None:
        """Have it done, and keep what becomes of it."""
        try:
            self.outcome = await work.run(jobs.wait_for, str(self.fifo), str(self.began))
        except Exception as error:
            self.outcome = error

    async def begins(self) -> int:
        """Wait until it is at work, and give its process."""
        await appears(self.began)
        while not lines(self.began):  # noqa: ASYNC110
            await anyio.sleep(0.005)
        return int(lines(self.began)[0])

    def let_go(self) -> None:
        """Have it return."""
        self.fifo.write_text("done")


# -- Where it runs, and what crosses


async def test_a_function_runs_in_a_process_that_is_kept_for_the_next_one(work: CpuWork) -> None:
    """Neither the host's nor the keeper's; it has loaded no event loop."""
    process, keeper = await work.run(jobs.pids)
    assert len({process, keeper, os.getpid()}) == 3
    assert os.getpgid(process) == keeper
    assert await work.run(jobs.pids) == [process, keeper]
    assert await work.run("tests.jobs_at_work:loops_loaded") == []
    assert await work.run(math.gcd, 12, 18) == 6


async def test_large_bytes_are_memory_that_all_share(work: CpuWork) -> None:
    """As an argument and as a result, while the keeper between them has none of it; and nobody holds it afterwards."""
    _, keeper = await work.run(jobs.pids)
    before = peak_bytes(keeper)
    book = os.urandom(16 * MIB)
    assert await work.run(jobs.describe, book, b"small") == ["memoryview", "mmap", len(book), book[-2:], b"small"]
    for function in (jobs.reverse, jobs.echo):
        result = await work.run(function, bytearray(book))
        assert result.readonly
        assert isinstance(result.obj, mmap.mmap)
        assert result == (book[::-1] if function is jobs.reverse else book)
    assert peak_bytes(keeper) - before < 8 * MIB
    assert await work.run(jobs.memories) == []


def peak_bytes(pid: int) -> int:
    """Give the most memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


async def test_what_a_function_prints_is_seen_when_it_returns(
    work: CpuWork, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes where the host prints, and doesn't wait for the end of the process."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    await work.run(jobs.say, "words")
    assert capfd.readouterr().out == "words\n"


# -- Turn and time


async def test_so_many_run_at_a_time_and_the_others_wait_in_order(tmp_path: Path) -> None:
    """One more isn't begun while they are at work, and that counts towards its time; then it is who waited longest."""
    async with opened(2) as work, anyio.create_task_group() as tasks:
        first, second, third, fourth = (Held(tmp_path, name) for name in ("first", "second", "third", "fourth"))
        for each in (first, second):
            tasks.start_soon(each.do, work)
        assert await first.begins() != await second.begins()
        with pytest.raises(ActorNotStarted, match=r"^add was not started: no result within 0.2 s$"):
            await work.run(jobs.add, 1, 2, timeout=SHORT_SECONDS)
        for each in (third, fourth):
            tasks.start_soon(each.do, work)
            await wait_all_tasks_blocked()
        second.let_go()
        await third.begins()
        assert not fourth.began.exists()
        first.let_go()
        await fourth.begins()
        for each in (third, fourth):
            each.let_go()
    assert [each.outcome for each in (first, second, third, fourth)] == ["done"] * 4


async def test_many_small_jobs_are_each_done_once() -> None:
    """And each has its own result."""
    results = dict[int, int]()

    async def add(work: CpuWork, number: int) -> None:
        results[number] = await work.run(jobs.add, number, 1000)

    async with opened(3) as work, anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(add, work, number)
    assert results == {number: number + 1000 for number in range(30)}


async def test_a_job_whose_time_is_over_is_killed(work: CpuWork) -> None:
    """Its process, which heeds nothing else, has ended when that is told; the next one has another process."""
    process, keeper = await work.run(jobs.pids)
    words = r"^whether hang was done is unknown: no result within 1 s, and its process was killed$"
    with pytest.raises(ActorUnknown, match=words):
        await work.run(jobs.hang, timeout=KILLED_SECONDS)
    assert process_state(process) == "gone"
    other, same = await work.run(jobs.pids)
    assert (other != process, same) == (True, keeper)


async def test_a_cancelled_job_is_killed_and_gives_its_turn_back(tmp_path: Path) -> None:
    """When the caller goes on, its process has ended; whoever waits is begun only then."""
    held, other = Held(tmp_path, "held"), Held(tmp_path, "other")
    async with opened(1) as work, anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as cancelled:
            cancelled.start_soon(held.do, work)
            process = await held.begins()
            cancelled.start_soon(other.do, work)
            await wait_all_tasks_blocked()
            tasks.start_soon(jobs_pids, work, process)
            await wait_all_tasks_blocked()
            cancelled.cancel_scope.cancel()
        assert process_state(process) == "gone"
    assert (held.outcome, other.outcome) == (None, None)
    assert not other.began.exists()


async def jobs_pids(work: CpuWork, gone: int) -> None:
    """See that a job is done by another process than one that is gone by then."""
    process, _ = await work.run(jobs.pids)
    assert process != gone
    assert process_state(gone) == "gone"


async def test_time_counts_from_the_call_also_if_nothing_is_there_yet(work: CpuWork) -> None:
    """The first call starts the processes; one that can't wait for them isn't begun, and they come up all the same."""
    with pytest.raises(ActorNotStarted, match="no result within 0 s"):
        await work.run(jobs.add, 1, 2, timeout=0)
    with pytest.raises(ActorNotStarted, match=r"no result within 0\.001 s"):
        await work.run(jobs.add, 1, 2, timeout=0.001)
    assert await work.run(jobs.add, 1, 2) == 3


# -- Ends


async def test_a_job_whose_process_dies_is_unknown(work: CpuWork) -> None:
    """How it died is told; the next job has another process."""
    process, _ = await work.run(jobs.pids)
    with pytest.raises(ActorUnknown, match=r"^whether die was done is unknown: its process was killed by SIGKILL$"):
        await work.run(jobs.die, int(signal.SIGKILL))
    assert (await work.run(jobs.pids))[0] != process
    with pytest.raises(ActorUnknown, match=r"^whether end was done is unknown: its process ended with exit code 3$"):
        await work.run(jobs.end, 3)
    assert await work.run(jobs.add, 1, 2) == 3


async def test_an_idle_process_that_was_killed_costs_nobody_a_job(work: CpuWork) -> None:
    """The next job has another one; leaving isn't held up by a dead one."""
    process, _ = await work.run(jobs.pids)
    os.kill(process, signal.SIGKILL)
    while process_state(process) == "running":  # noqa: ASYNC110
        await anyio.sleep(0.005)
    other, _ = await work.run(jobs.pids)
    assert other != process
    os.kill(other, signal.SIGKILL)


async def test_a_job_is_unknown_if_the_keeper_dies_and_the_next_one_has_another(work: CpuWork, tmp_path: Path) -> None:
    """All processes die with it; a supervisor has started another one for whoever comes then, also if it was idle."""
    held = Held(tmp_path, "held")
    process, keeper = await work.run(jobs.pids)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(held.do, work)
        assert await held.begins() == process
        os.kill(keeper, signal.SIGKILL)
    assert isinstance(held.outcome, ActorUnknown)
    assert str(held.outcome) == ("whether wait_for was done is unknown: the worker process that keeps its process died")
    second_process, second_keeper = await work.run(jobs.pids)
    assert second_keeper != keeper
    await wait_gone(process)
    os.kill(second_keeper, signal.SIGKILL)
    await wait_gone(second_keeper)
    assert (await work.run(jobs.pids))[1] not in (keeper, second_keeper)
    await wait_gone(second_process)


async def test_what_a_dead_keeper_had_not_begun_is_done_by_the_next_one(work: CpuWork) -> None:
    """Whoever called doesn't notice that it had been handed over."""
    _, keeper = await work.run(jobs.pids)
    os.kill(keeper, signal.SIGSTOP)
    outcomes: list[Any] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, outcomes, work.run, jobs.add, 1, 2)
        await wait_all_tasks_blocked()
        os.kill(keeper, signal.SIGKILL)
    assert outcomes == [3]


async def test_a_job_with_which_no_keeper_begins_isnt_started(work: CpuWork, monkeypatch: pytest.MonkeyPatch) -> None:
    """It doesn't go from one to the next for ever."""
    await work.run(jobs.add, 1, 2)
    monkeypatch.setattr(work, "_address", work._address + b"-of-others")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(work._address)
        listener.listen()
        outcomes: list[Any] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collect, outcomes, work.run, jobs.add, 1, 2)
            for _ in range(KEEPERS_MAX):
                await anyio.wait_readable(listener)
                listener.accept()[0].close()
        assert str(outcomes) == str(
            [ActorNotStarted("add", "5 times in a row the worker process didn't begin with it")]
        )


async def test_leaving_kills_what_is_at_work_and_begins_nothing_more(tmp_path: Path) -> None:
    """Jobs at work are unknown, those that wait not started; and no process, memory or descriptor is left."""
    held, waiting = Held(tmp_path, "held"), Held(tmp_path, "waiting")
    async with opened(1) as work, anyio.create_task_group() as tasks:
        tasks.start_soon(held.do, work)
        process = await held.begins()
        tasks.start_soon(waiting.do, work)
        await wait_all_tasks_blocked()
        await work.aclose()
        assert process_state(process) == "gone"
    assert isinstance(held.outcome, ActorUnknown)
    assert str(waiting.outcome) == "wait_for was not started: its runtime is closed"
    assert not waiting.began.exists()


async def test_nothing_is_started_for_whoever_computes_nothing(tmp_path: Path) -> None:
    """No process, and no module of one."""
    before = possessions()
    async with opened() as work:
        assert possessions()[1] == before[1]
        await work.aclose()
        with pytest.raises(ActorNotStarted, match="its runtime is closed"):
            await work.run(jobs.add, 1, 2)


# -- What goes wrong in a function


async def test_what_a_function_raises_is_told(work: CpuWork) -> None:
    """With its traceback, or as what it is if it was registered; an exit is an error, too, and the process is kept."""
    process, _ = await work.run(jobs.pids)
    with pytest.raises(ActorError, match=r"^ZeroDivisionError: division by zero") as failed:
        await work.run(jobs.divide, 1, 0)
    assert "return first / second" in failed.value.traceback_text
    with pytest.raises(jobs.Unsolvable, match="too hard"):
        await work.run(jobs.give_up, "too hard")
    with pytest.raises(ActorError, match=r"^SystemExit: 5"):
        await work.run(jobs.leave, 5)
    with pytest.raises(ActorError, match=r"^TypeError: .*positional argument"):
        await work.run(jobs.add, 1)
    assert (await work.run(jobs.pids))[0] == process


async def test_what_a_function_cant_return_is_its_failure(work: CpuWork) -> None:
    """What isn't plain, what is too long, and what an async function gives; the process is kept."""
    process, _ = await work.run(jobs.pids)
    with pytest.raises(ActorError, match=r"\['found'\] can't cross between processes: builtins.set"):
        await work.run(jobs.unplain)
    with pytest.raises(ActorError, match="over the limit of 16,777,216"):
        await work.run(jobs.huge)
    with pytest.raises(ActorError, match=r"^TypeError: .*rest is an async function, and only plain ones are run here"):
        await work.run("tests.jobs_at_work:rest")
    assert (await work.run(jobs.pids))[0] == process


async def test_a_function_that_takes_its_process_apart_harms_nobody_else(work: CpuWork) -> None:
    """It writes where only its process should, or closes that: the process has ended, and the keeper goes on."""
    _, keeper = await work.run(jobs.pids)
    for function, how in ((jobs.spoil, "was killed, as its answer can't be read"), (jobs.close_all, "ended with exit")):
        process, _ = await work.run(jobs.pids)
        with pytest.raises(ActorUnknown, match=f"its process {how}"):
            await work.run(function)
        assert process_state(process) == "gone"
    assert (await work.run(jobs.pids))[1] == keeper


async def test_a_forked_child_that_comes_out_of_a_function_answers_nobody(work: CpuWork) -> None:
    """The next job gets its own result, and not what the child of the one before returned."""
    assert await work.run(jobs.fork) > 0
    assert await work.run(jobs.add, 1, 2) == 3


async def test_a_function_that_cant_be_imported_is_told(work: CpuWork, tmp_path: Path) -> None:
    """Whatever the import does; the process is kept, and finds a module that is there then."""
    process, _ = await work.run(jobs.pids)
    with pytest.raises(WorkerStartError, match="could not import it: ModuleNotFoundError: No module named 'later'"):
        await work.run("later:work")
    with pytest.raises(WorkerStartError, match=r"could not import it: AttributeError: .*'nobody'"):
        await work.run("tests.jobs_at_work:nobody")
    write_module(tmp_path, "leaving", "import sys\nsys.exit('not here')\n")
    with pytest.raises(WorkerStartError, match="could not import it: SystemExit: not here"):
        await work.run("leaving:work")
    write_module(tmp_path, "later", "def work():\n    return 'found'\n")
    assert await work.run("later:work") == "found"
    assert (await work.run(jobs.pids))[0] == process


async def test_what_no_other_process_finds_is_refused_at_the_call() -> None:
    """In one line that says what, and no process was started for it."""
    nowhere = "can't be computed: another process has to find it by module and name"
    no_function = "what is computed is a plain function, and not "
    refusals: list[tuple[Any, type[Exception], str]] = [
        (lambda: None, TypeError, f"lambda.* {nowhere}"),
        (jobs.maker(), TypeError, f"local.* {nowhere}"),
        (jobs.Stamper().stamp, TypeError, f"stamp.* {nowhere}"),
        (functools.partial(jobs.add, 1), TypeError, nowhere),
        (jobs.rest, TypeError, f"{no_function}<function rest"),
        (17, TypeError, f"{no_function}17"),
        ("work", ValueError, "'module:name', and not as 'work'"),
        ("module:", ValueError, "'module:name', and not as 'module:'"),
    ]
    before = possessions()
    async with opened() as work:
        for function, refusal, words in refusals:
            with pytest.raises(refusal, match=words):
                await work.run(function)
        assert possessions() == before


async def test_arguments_that_cant_cross_are_refused_at_the_call() -> None:
    """With their place, and no process was started for it."""
    before = possessions()
    async with opened() as work:
        with pytest.raises(TypeError, match=r"^arguments\[1\]\['file'\] can't cross between processes: pathlib"):
            await work.run(jobs.add, 1, {"file": Path("/")})
        with pytest.raises(MessageTooLarge, match="over the limit of 16,777,216"):
            await work.run(jobs.echo, [bytes(9 * MIB)] * 2)
        assert possessions() == before


# -- Through the runtime


async def test_a_runtime_computes_until_it_is_left(store: Path) -> None:
    """With as many jobs at a time as it was opened for; what was at work isn't left when it is closed."""
    before = possessions()[1]
    async with open_runtime(store, cpu_jobs_max=1) as runtime:
        process, keeper = await runtime.compute(jobs.pids)
        assert await runtime.compute(jobs.add, 1, 2, timeout=DEADLINE_SECONDS) == 3
        with pytest.raises(ActorUnknown):
            await runtime.compute(jobs.hang, timeout=KILLED_SECONDS)
    assert possessions()[1] == before
    assert (process_state(process), process_state(keeper)) == ("gone", "gone")
    with pytest.raises(ValueError, match="cpu_jobs_max is a number from 1 on, or None, and not 0"):
        open_runtime(store, cpu_jobs_max=0)


def test_a_plain_program_computes(store: Path) -> None:
    """The same without `await`."""
    with connect(store, cpu_jobs_max=1) as runtime:
        process, _ = runtime.compute(jobs.pids)
        with pytest.raises(ActorError, match="ZeroDivisionError"):
            runtime.compute(jobs.divide, 1, 0)
        with pytest.raises(ActorUnknown):
            runtime.compute(jobs.hang, timeout=KILLED_SECONDS)
        assert runtime.compute(jobs.add, 1, 2) == 3
    assert process_state(process) == "gone"
