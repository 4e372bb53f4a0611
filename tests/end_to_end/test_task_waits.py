"""End to end: waits for tasks, whenever they begin, however they end, and whoever dies meanwhile."""

from __future__ import annotations

import os
import random
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from turnkeeper.actors.errors import SessionClosed, StoreMissing
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime

from ..served import LOOPS_AND_STORES, SECONDS_MAX, kill, node_of, writer_of
from ..served_tasks import no_task_left

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES, pytest.mark.shared_store]

AT_ONCE = 20
"""How many tasks are waited for side by side below."""

OFFSET_SECONDS_MAX = 0.005


async def wait_at_offsets(runtime: Runtime, waits: int, seed: int) -> None:
    """Start tasks that end after up to 5 ms, and wait for each from another moment of the same 5 ms on."""
    chance = random.Random(seed)

    async def start_and_wait(number: int) -> None:
        task = await runtime.start_task(["sh", "-c", f"sleep {chance.uniform(0, OFFSET_SECONDS_MAX)}; exit {number}"])
        await anyio.sleep(chance.uniform(0, OFFSET_SECONDS_MAX))
        end = await task.wait()
        assert (end.state, end.how) == ("ended", {"code": number})

    for _ in range(waits // AT_ONCE):
        with anyio.fail_after(SECONDS_MAX):
            async with anyio.create_task_group() as tasks:
                for number in range(AT_ONCE):
                    tasks.start_soon(start_and_wait, number)


@pytest.mark.parametrize("seed", [1])
async def test_t3_a_wait_that_begins_around_the_end_returns(runtime: Runtime, seed: int) -> None:
    """Before, at and after it: none hangs, and each has the true end."""
    await wait_at_offsets(runtime, 100, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 4))
async def test_t3_a_thousand_waits_that_begin_around_the_end_return(runtime: Runtime, seed: int) -> None:
    """As above, often enough to hit the narrow places."""
    await wait_at_offsets(runtime, 1000, seed)


async def test_a_wait_long_after_the_end_returns_at_once(runtime: Runtime, store: Path) -> None:
    """Also of a node that never saw the task."""
    task = await runtime.start_task(["sh", "-c", "exit 4"])
    await task.wait()
    kill(node_of(store))
    with anyio.fail_after(SECONDS_MAX):
        for tree in (False, True):
            assert (await task.wait(tree=tree)).code == 4


async def test_t3_a_timeout_gives_the_state_as_it_is(runtime: Runtime) -> None:
    """It is the wait's alone: the task goes on, and the next wait has its end."""
    task = await runtime.start_task(["sh", "-c", "echo hello; sleep 60"])
    for timeout in (0, 0.05):
        state = await task.wait(timeout=timeout)
        assert (state.state, state.is_over) == ("running", False)
    (state,) = await runtime.wait_tasks(task, timeout=0.05)
    assert state.is_over is False
    await task.stop(grace=0)
    assert (await task.wait(timeout=0)).by == "stop"


async def test_a_cancelled_wait_ends_at_once_and_touches_nothing(runtime: Runtime) -> None:
    """However many there are; others go on waiting."""
    task = await runtime.start_task(["sleep", "60"])
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            assert (await task.wait()).by == "stop"

        tasks.start_soon(wait)
        for _ in range(20):
            with anyio.move_on_after(0.001) as scope:
                await task.wait()
            assert scope.cancelled_caught
        assert (await task.state()).state == "running"
        await task.stop(grace=0)


async def test_waits_for_any_all_and_the_first_failure(runtime: Runtime, tmp_path: Path) -> None:
    """The states come in the order in which the tasks were named, live ones as they are."""
    gates = [tmp_path / name for name in ("a", "b", "c")]
    for gate in gates:
        os.mkfifo(gate)
    tasks = [await runtime.start_task(["sh", "-c", f"exit $(cat {gate})"]) for gate in gates]

    async def open_gate(number: int, code: int) -> None:
        await anyio.to_thread.run_sync(gates[number].write_text, f"{code}\n")

    with anyio.fail_after(SECONDS_MAX):
        await open_gate(1, 0)
        states = await runtime.wait_tasks(*tasks, until="any")
        assert [(each.id, each.code) for each in states] == [(tasks[0].id, None), (tasks[1].id, 0), (tasks[2].id, None)]
        states = await runtime.wait_tasks(*tasks, until="first_failure", timeout=0.05)
        assert [each.is_over for each in states] == [False, True, False]
        await open_gate(2, 3)
        states = await runtime.wait_tasks(*(each.id for each in tasks), until="first_failure")
        assert [each.code for each in states] == [None, 0, 3]
        await open_gate(0, 0)
        assert [each.code for each in await runtime.wait_tasks(*tasks, tasks[1])] == [0, 0, 3, 0]
    assert await runtime.wait_tasks() == []


async def test_t5_the_leaders_end_is_the_end_and_its_tree_can_be_waited_for(runtime: Runtime, tmp_path: Path) -> None:
    """What it left behind is named meanwhile, and may hold its output."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    task = await runtime.start_task(["sh", "-c", f"cat {gate} & exit 2"])
    with anyio.fail_after(SECONDS_MAX):
        end = await task.wait()
        assert (end.state, end.code, len(end.survivors)) == ("ended", 2, 1)
        waiting = await task.wait(tree=True, timeout=0.05)
        assert (waiting.code, waiting.survivors) == (2, end.survivors)
        await anyio.to_thread.run_sync(gate.write_text, "late\n")
        empty = await task.wait(tree=True)
    assert (empty.code, empty.survivors) == (2, [])
    assert (await task.output()).data == b"late\n"


@pytest.mark.parametrize("process_of", [node_of, writer_of])
async def test_a_wait_goes_on_whoever_is_killed(runtime: Runtime, store: Path, tmp_path: Path, process_of) -> None:  # type: ignore[no-untyped-def]
    """It is asked again of whoever comes then, and has the true end."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    task = await runtime.start_task(["sh", "-c", f"cat {gate}; exit 6"])
    ends = []
    with anyio.fail_after(SECONDS_MAX):
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                ends.append((await task.wait()).how)

            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            kill(process_of(store))
            await anyio.to_thread.run_sync(gate.write_text, "go\n")
    assert ends == [{"code": 6}]


async def test_a_wait_is_told_that_the_store_cant_be_reached(runtime: Runtime, store: Path, tmp_path: Path) -> None:
    """It can be waited again, and is answered when the store is back; meanwhile the task has gone on."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    task = await runtime.start_task(["sh", "-c", f"cat {gate}; exit 8"])
    node, away = node_of(store), tmp_path / "away"
    os.rename(store, away)
    try:
        kill(node)
        with anyio.fail_after(SECONDS_MAX), pytest.raises(StoreMissing):
            await task.wait()
        await anyio.to_thread.run_sync(gate.write_text, "go\n")
    finally:
        os.rename(away, store)
    with anyio.fail_after(SECONDS_MAX):
        while True:
            try:
                end = await task.wait()
                break
            except StoreMissing:
                continue
    assert end.how == {"code": 8}


async def test_a_wait_ends_when_its_runtime_is_left(store: Path) -> None:
    """A kept task goes on, and nobody is left who would hear of its end."""
    errors: list[Exception] = []
    with no_task_left(store), anyio.fail_after(SECONDS_MAX):
        async with anyio.create_task_group() as tasks, open_runtime(store) as runtime:
            task = await runtime.start_task(["sleep", "60"], key="kept", on_owner_exit="keep")

            async def wait() -> None:
                try:
                    await task.wait()
                except SessionClosed as error:
                    errors.append(error)

            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
        assert len(errors) == 1
        async with open_runtime(store) as runtime:
            await runtime.task("kept").stop()


async def test_a_stop_ends_the_whole_tree(runtime: Runtime) -> None:
    """Several at once; one that had ended before is told from those that were stopped."""
    stubborn = "trap '' TERM; setsid sleep 60 & while :; do sleep 0.05; done"
    tasks = [await runtime.start_task(["sh", "-c", script]) for script in ("sleep 60", stubborn, "exit 3")]
    await tasks[2].wait()
    with anyio.fail_after(SECONDS_MAX):
        stopped = await runtime.stop_tasks(*tasks, grace=0.1)
    assert (sorted(stopped.stopped), stopped.already_ended, stopped.left) == (
        sorted(each.id for each in tasks[:2]),
        [tasks[2].id],
        {},
    )
    states = [await each.state() for each in tasks]
    assert [(each.how, each.by) for each in states] == [
        ({"signal": 15}, "stop"),
        ({"signal": 9}, "stop"),
        ({"code": 3}, "itself"),
    ]
    assert [each.survivors for each in states] == [[], [], []]
    with pytest.raises(ValueError, match="a grace is a number of seconds"):
        await tasks[0].stop(grace=-1)


async def test_what_a_task_left_behind_is_stopped_with_it(runtime: Runtime) -> None:
    """Its own end stays as it was."""
    task = await runtime.start_task(["sh", "-c", "sleep 60 & exit 0"])
    assert len((await task.wait()).survivors) == 1
    with anyio.fail_after(SECONDS_MAX):
        state = await task.stop()
    assert (state.how, state.by, state.survivors) == ({"code": 0}, "itself", [])


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.shared_store(False)
async def test_a_start_that_was_asked_again_by_key_runs_once(
    runtime: Runtime, store: Path, tmp_path: Path, seed: int
) -> None:
    """The node is killed at any moment of the start: whatever the first try came to, the second finds that task."""
    chance = random.Random(seed)
    for number in range(6):
        ran = tmp_path / f"ran-{number}"
        command = ["sh", "-c", f"echo ran >> {ran}; exit {number}"]
        with anyio.fail_after(SECONDS_MAX):
            async with anyio.create_task_group() as tasks:

                async def lose_the_answer(command: list[str] = command, key: str = f"job-{number}") -> None:
                    with anyio.move_on_after(chance.uniform(0, 0.03)):
                        await runtime.start_task(command, key=key)

                tasks.start_soon(lose_the_answer)
                await anyio.sleep(chance.uniform(0, 0.02))
                kill(node_of(store))
            task = await runtime.start_task(command, key=f"job-{number}")
            assert (await task.wait()).how == {"code": number}
        assert ran.read_text() == "ran\n"
    assert len(await runtime.tasks()) == 6
