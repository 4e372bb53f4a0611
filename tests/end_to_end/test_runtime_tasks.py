"""End to end: a task ends with the runtime that started it, unless it is kept: however that runtime ends."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from turnkeeper.actors.blocking import connect
from turnkeeper.actors.errors import ForkedProcess
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime

from ..served import LOOPS_AND_STORES, SECONDS_MAX, finish, kill, node_of, read_line, start_python, wait_unserved
from ..served_tasks import marked_processes, no_task_left

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES]

STUBBORN = ["sh", "-c", "trap '' TERM; setsid sleep 60 & while :; do sleep 0.05; done"]
"""A command that doesn't go by itself, with a child that has left its group."""


@pytest.fixture(autouse=True)
def nothing_left(store: Path) -> Iterator[None]:
    """See that no task and no process of the store is left."""
    with no_task_left(store):
        yield
    wait_unserved(store, 5.0)


async def end_of(store: Path, key: str) -> tuple[object, object]:
    """Give how and by whom a task ended, waiting for it in another runtime."""
    with anyio.fail_after(SECONDS_MAX):
        async with open_runtime(store) as runtime:
            end = await runtime.task(key).wait(tree=True)
            assert end.survivors == []
            return end.how, end.by


async def test_leaving_ends_the_tasks_with_all_that_they_started(store: Path) -> None:
    """When it is left they have ended, and that is stored; one that is kept goes on, with its node."""
    async with open_runtime(store) as runtime:
        await runtime.start_task(["sleep", "60"], key="willing")
        await runtime.start_task(STUBBORN, key="stubborn")
        kept = await runtime.start_task(["sleep", "60"], key="kept", on_owner_exit="keep")
        pid = (await kept.state()).pid
        begun = anyio.current_time()
    assert anyio.current_time() - begun < 5
    assert await end_of(store, "willing") == ({"signal": 15}, "owner")
    assert await end_of(store, "stubborn") == ({"signal": 9}, "owner")
    async with open_runtime(store) as runtime:
        state = await runtime.task("kept").state()
        assert (state.state, state.pid, state.keep) == ("running", pid, True)
        await runtime.task("kept").stop()


async def test_a_kept_task_is_served_until_it_has_ended(store: Path, tmp_path: Path) -> None:
    """The node stays for it, records its end, and goes."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with open_runtime(store) as runtime:
        await runtime.start_task(["sh", "-c", f"exit $(cat {gate})"], key="kept", on_owner_exit="keep")
    assert node_of(store)
    await anyio.to_thread.run_sync(gate.write_text, "7\n")
    await anyio.to_thread.run_sync(wait_unserved, store, SECONDS_MAX)
    assert await end_of(store, "kept") == ({"code": 7}, "itself")


async def test_what_the_body_raises_comes_out_as_it_is(store: Path) -> None:
    """The tasks have ended all the same."""
    error = ValueError("mine")

    async def fail() -> None:
        async with open_runtime(store) as runtime:
            await runtime.start_task(["sleep", "60"], key="task")
            raise error

    with pytest.raises(ValueError, match="mine") as caught:
        await fail()
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    assert marked_processes(store) == []
    assert await end_of(store, "task") == ({"signal": 15}, "owner")


async def test_a_cancelled_body_ends_its_tasks(store: Path) -> None:
    """Leaving is shielded: it takes the time that it needs, and nothing is left."""
    with anyio.move_on_after(SECONDS_MAX) as scope:
        async with open_runtime(store) as runtime:
            await runtime.start_task(["sleep", "60"], key="task")
            scope.cancel()
            await runtime.task("task").wait()
    assert scope.cancelled_caught
    assert marked_processes(store) == []
    assert await end_of(store, "task") == ({"signal": 15}, "owner")


async def test_one_runtime_of_a_process_is_no_other(store: Path) -> None:
    """Each has its own tasks, and leaves those of the others alone."""
    async with open_runtime(store) as outer:
        await outer.start_task(["sleep", "60"], key="outer")
        async with open_runtime(store) as inner:
            await inner.start_task(["sleep", "60"], key="inner")
        assert (await outer.task("inner").wait()).by == "owner"
        assert (await outer.task("outer").state()).state == "running"


async def test_a_task_that_anothers_key_found_stays_the_others(store: Path) -> None:
    """Who only found it running doesn't end it."""
    async with open_runtime(store) as first:
        await first.start_task(["sleep", "60"], key="task")
        async with open_runtime(store) as second:
            await second.start_task(["sleep", "60"], key="task")
        assert (await first.task("task").state()).state == "running"


async def test_the_tasks_end_though_the_node_is_killed_before(store: Path) -> None:
    """The next one does what is asked."""
    async with open_runtime(store) as runtime:
        await runtime.start_task(["sleep", "60"], key="task")
        kill(node_of(store))
    assert marked_processes(store) == []
    assert await end_of(store, "task") == ({"signal": 15}, "owner")


async def test_the_tasks_of_a_killed_program_end(store: Path) -> None:
    """By its owner, as if it had left; a kept one goes on, and so does another program's."""
    host = start_python(
        "import sys, anyio\n"
        "from turnkeeper import open_runtime\n"
        "async def main():\n"
        "    async with open_runtime(sys.argv[1]) as rt:\n"
        "        for key, policy in (('ends', 'kill'), ('stays', 'keep')):\n"
        "            await rt.start_task(['sleep', '60'], key=key, on_owner_exit=policy)\n"
        "        print('started', flush=True)\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main, backend='trio')\n",
        str(store),
    )
    try:
        async with open_runtime(store) as runtime:
            await runtime.start_task(["sleep", "60"], key="mine")
            assert await anyio.to_thread.run_sync(read_line, host) == "started"
            kill(host.pid)
            with anyio.fail_after(SECONDS_MAX):
                end = await runtime.task("ends").wait()
            assert (end.how, end.by) == ({"signal": 15}, "owner")
            for key in ("stays", "mine"):
                assert (await runtime.task(key).state()).state == "running"
            await runtime.task("stays").stop()
    finally:
        kill(host.pid)
        host.communicate()


async def test_a_forked_child_has_no_tasks(store: Path) -> None:
    """Its parent's are the parent's: every call raises, and its end ends nothing."""
    async with open_runtime(store) as runtime:
        task = await runtime.start_task(["sleep", "60"])
        assert is_refused_in_a_child(runtime, task.id)
        assert (await task.state()).state == "running"


def is_refused_in_a_child(runtime: Runtime, task: str) -> bool:
    """Use the runtime in a forked child, and say whether it was refused for that."""
    child = os.fork()
    if not child:
        code = 1
        try:
            runtime.task(task)
        except ForkedProcess:
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# -- Plain programs


async def test_a_plain_program_has_the_same_of_tasks(store: Path, tmp_path: Path) -> None:
    """Names, arguments and answers are the same, without `await`; leaving ends what isn't kept."""
    await anyio.to_thread.run_sync(be_a_plain_program, store, tmp_path / "gate")


def be_a_plain_program(store: Path, gate: Path) -> None:
    """Use all that there is of tasks, blocking."""
    os.mkfifo(gate)
    with connect(store) as runtime, runtime.create_session() as session:
        task = runtime.start_task(["sh", "-c", f"echo hello; cat {gate}; exit 3"], key="k", session=session, group="g")
        other = runtime.start_task(["sleep", "60"], timeout=30, grace=1, limit=10, stall=5, cwd="/", env={"A": "1"})
        assert (task.state().state, runtime.task("k").state().id) == ("running", task.id)
        assert [each.id for each in runtime.tasks(session=session, group="g", state="running")] == [task.id]
        assert task.wait(timeout=0.01).is_over is False
        pieces = task.follow()
        assert next(pieces).text == "hello\n"
        gate.write_text("go\n")
        assert b"".join(piece.data for piece in pieces) == b"go\n"
        pieces.close()
        assert (task.wait(tree=True).code, task.output(last=1).data) == (3, b"go\n")
        assert [each.code for each in runtime.wait_tasks(task, other.id, until="any")] == [3, None]
        assert runtime.stop_tasks(task, grace=1).already_ended == [task.id]
        assert other.stop(grace=0).by == "stop"
        message = next(session.inbox())
        assert (message.type, message.sender) == ("task/ended", task.id)
        runtime.start_task(["sleep", "60"], key="left")
    assert marked_processes(store) == []
    with connect(store) as runtime:
        assert runtime.task("left").wait().by == "owner"


async def test_a_host_never_loads_the_other_loop(store: Path, anyio_backend: str) -> None:
    """Nor what only our own processes use, whatever it does with tasks."""
    other = {"asyncio": "trio", "trio": "asyncio"}[anyio_backend]
    program = (
        "import sys, anyio\n"
        "from turnkeeper import open_runtime\n"
        "async def main():\n"
        "    async with open_runtime(sys.argv[1]) as rt:\n"
        "        task = await rt.start_task(['echo', 'hello'])\n"
        "        await task.wait()\n"
        "        print(''.join([piece.text async for piece in task.follow()]), end='')\n"
        "        await rt.start_task(['sleep', '60'])\n"
        f"anyio.run(main, backend={anyio_backend!r})\n"
        f"print([name for name in ({other!r}, 'psutil', 'turnkeeper.runtime.tasks.shim') if name in sys.modules])\n"
    )
    host: subprocess.Popen[str] = start_python(program, str(store))
    assert await anyio.to_thread.run_sync(finish, host) == "hello\n[]\n"
