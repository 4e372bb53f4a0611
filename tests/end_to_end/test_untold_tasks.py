"""End to end: what an opening tells of a session's tasks after its owner was gone without closing, and of no others."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from turnkeeper.actors.errors import Fenced
from turnkeeper.actors.records import Interrupted
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime

from ..served import LOOPS_AND_STORES, SECONDS_MAX, kill, node_of, processes_of, read_line, start_python
from ..served_tasks import no_task_left

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES]

AGENT = """
import sys, anyio
from turnkeeper import open_runtime

async def main(store, how):
    async with open_runtime(store) as rt:
        session = await rt.open_session("agent", create=True)
        other = await rt.open_session("other", create=True)

        async def start(script, key, policy, owner=session):
            return await rt.start_task(["sh", "-c", script], key=key, session=owner, on_owner_exit=policy)

        async def work():
            await start("exit 0", "heard of", "keep")
            await rt.wait_tasks("heard of")
            await start("sleep 60", "runs", "keep")
            await start(f"cat {sys.argv[3]}; exit 3", "ended", "keep")
            await start("sleep 60", "stopped", "kill")
            await start("sleep 60", "other's", "keep", other)
            await start("exit 0", "other's that ended", "keep", other)
            await rt.start_task(["sleep", "60"], key="nobody's", on_owner_exit="keep")
            await session.append("note/heard", {"of": "heard of"})
            await session.flush()
            print("working", flush=True)
            await anyio.sleep_forever()

        if how == "turn":
            async with session.turn():
                await session.append("assistant/message", {"text": "", "tool_calls": [{"id": "a", "name": "bash"}]})
                async with session.tool("a", "bash", {}):
                    await work()
        else:
            await work()

anyio.run(main, *sys.argv[1:3], backend="trio")
"""


class Agent:
    """A program that owns two sessions and starts tasks for them and for nobody, one of which ends at the gate."""

    def __init__(self, store: Path, gate: Path) -> None:
        self.store = store
        self.gate = gate
        self.process: subprocess.Popen[str] | None = None

    async def begin(self, how: str) -> None:
        """Let it work, in a turn or between turns, until all tasks run."""
        self.process = start_python(AGENT, str(self.store), how, str(self.gate))
        assert await anyio.to_thread.run_sync(read_line, self.process) == "working"

    def kill(self) -> None:
        """Kill it."""
        assert self.process is not None
        kill(self.process.pid)
        self.process.communicate()

    async def open_gate(self) -> None:
        """Let the task end that waits for that."""
        await anyio.to_thread.run_sync(self.gate.write_text, "go\n")


@pytest.fixture
def agent(store: Path, tmp_path: Path) -> Iterator[Agent]:
    """An agent that hasn't begun. Its tasks don't outlive the test."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    agent = Agent(store, gate)
    with no_task_left(store):
        yield agent
        if agent.process is not None:
            agent.kill()


async def told(runtime: Runtime, interrupted: Interrupted | None) -> list[str | None]:
    """Give the keys of the tasks that were told of, in order."""
    return [] if interrupted is None else [(await runtime.task(id).state()).key for id in interrupted.tasks]


async def stop_all(runtime: Runtime) -> None:
    """Stop what still runs."""
    await runtime.stop_tasks(*(each.id for each in await runtime.tasks()), grace=1)


async def run_until_killed(program: str, store: Path) -> None:
    """Run a program on the store that kills itself."""
    process = start_python(program, str(store))
    try:
        _, errors = await anyio.to_thread.run_sync(partial(process.communicate, timeout=SECONDS_MAX))
    finally:
        process.kill()
    assert process.returncode == -signal.SIGKILL, errors


@pytest.mark.parametrize("how", ["turn", "between turns"])
async def test_after_a_crash_those_are_told_of_that_nobody_heard_of(agent: Agent, store: Path, how: str) -> None:
    """They ended when nobody was there, or haven't ended; not the ones that had ended before, nor anybody else's."""
    with anyio.fail_after(SECONDS_MAX):
        await agent.begin(how)
        async with open_runtime(store) as runtime:
            agent.kill()
            await runtime.wait_tasks("stopped")
            await agent.open_gate()
            await runtime.wait_tasks("ended")
            async with await runtime.open_session("agent") as session:
                assert session.interrupted is not None
                assert await told(runtime, session.interrupted) == ["stopped", "ended", "runs"]
                assert session.interrupted.calls == ([("a", "bash", "unknown")] if how == "turn" else [])
            async with await runtime.open_session("other") as other:
                assert await told(runtime, other.interrupted) == ["other's that ended", "other's"]
            await stop_all(runtime)


@pytest.mark.parametrize("who", ["host", "host, node and writer"])
async def test_an_opening_right_after_the_crash_tells_the_same(agent: Agent, store: Path, who: str) -> None:
    """Whether a task is stopped for it already or not: it is one that nobody heard of."""
    with anyio.fail_after(SECONDS_MAX):
        await agent.begin("turn")
        agent.kill()
        if who != "host":
            for pid in processes_of(store):
                kill(pid)
        await agent.open_gate()
        async with open_runtime(store) as runtime, await runtime.open_session("agent") as session:
            assert sorted(map(str, await told(runtime, session.interrupted))) == ["ended", "runs", "stopped"]
            await stop_all(runtime)


async def test_it_is_told_until_a_turn_begins(agent: Agent, store: Path) -> None:
    """By every opening, also of one that was killed before it could tell; what ended meanwhile comes first then."""
    with anyio.fail_after(SECONDS_MAX):
        await agent.begin("turn")
        agent.kill()
        await run_until_killed(
            "import os, sys, anyio\n"
            "from turnkeeper import open_runtime\n"
            "async def main():\n"
            "    async with open_runtime(sys.argv[1]) as rt:\n"
            "        session = await rt.open_session('agent')\n"
            "        os.kill(os.getpid(), 9)\n"
            "anyio.run(main)\n",
            store,
        )
        async with open_runtime(store) as runtime:
            await runtime.wait_tasks("stopped")
            async with await runtime.open_session("agent") as session:
                assert await told(runtime, session.interrupted) == ["stopped", "runs", "ended"]
            await agent.open_gate()
            await runtime.wait_tasks("ended")
            first = await runtime.open_session("agent")
            assert await told(runtime, first.interrupted) == ["stopped", "ended", "runs"]
            async with first.turn():
                pass
            async with await runtime.open_session("agent", takeover=True) as session:
                assert await told(runtime, session.interrupted) == ["runs"]
            with suppress(Fenced):
                await first.aclose()
            async with await runtime.open_session("agent") as session:
                assert session.interrupted is None
            await stop_all(runtime)


async def test_after_a_crash_between_turns_it_is_told_until_the_session_is_closed(agent: Agent, store: Path) -> None:
    """That is the end of an opening that has no turn; a crash of that opening isn't."""
    with anyio.fail_after(SECONDS_MAX):
        await agent.begin("between turns")
        async with open_runtime(store) as runtime:
            agent.kill()
            await runtime.wait_tasks("stopped")
            first = await runtime.open_session("agent")
            await first.append("user/message", {"text": "again"})
            await first.flush()
            async with await runtime.open_session("agent", takeover=True) as second:
                for session in (first, second):
                    assert await told(runtime, session.interrupted) == ["stopped", "runs", "ended"]
            with suppress(Fenced):
                await first.aclose()
            async with await runtime.open_session("agent") as session:
                assert session.interrupted is None
            await agent.open_gate()
            await stop_all(runtime)


async def test_a_session_that_was_closed_in_order_is_interrupted_by_nothing(runtime: Runtime) -> None:
    """Whatever its tasks do meanwhile: its inbox tells of them."""
    for turn in (False, True):
        async with await runtime.open_session("agent", create=True) as session:
            await session.append("user/message", {"text": "hello"})
            if turn:
                async with session.turn():
                    pass
            running = await runtime.start_task(["sleep", "60"], session=session)
            ending = await runtime.start_task(["true"], session=session)
        await ending.wait()
        async with await runtime.open_session("agent") as session:
            assert session.interrupted is None
        await running.stop()


async def test_a_crash_without_tasks_is_what_it_was(store: Path) -> None:
    """Between turns nothing is told; in a turn, that there are none."""
    program = (
        "import os, sys, anyio\n"
        "from turnkeeper import open_runtime\n"
        "async def main():\n"
        "    async with open_runtime(sys.argv[1]) as rt:\n"
        "        sessions = [await rt.open_session(key, create=True) for key in ('between', 'in')]\n"
        "        await sessions[0].append('user/message', {'text': 'hello'})\n"
        "        await sessions[0].flush()\n"
        "        async with sessions[1].turn():\n"
        "            await sessions[1].flush()\n"
        "            os.kill(os.getpid(), 9)\n"
        "anyio.run(main)\n"
    )
    await run_until_killed(program, store)
    async with open_runtime(store) as runtime:
        async with await runtime.open_session("between") as session:
            assert session.interrupted is None
        async with await runtime.open_session("in") as session:
            assert session.interrupted == Interrupted(1, [], [])


async def test_an_opening_asks_the_node_nothing_about_a_session_that_was_closed(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it takes as long as it did before there were tasks; after a takeover it asks once."""
    asked: list[str] = []
    ask: Callable[..., object] = runtime._client.node.requests.ask

    def count(op: str, **what: object) -> object:
        asked.append(op)
        return ask(op, **what)

    monkeypatch.setattr(runtime._client.node.requests, "ask", count)
    for _ in range(2):
        async with await runtime.open_session("agent", create=True) as session, session.turn():
            pass
    assert asked == []
    first = await runtime.open_session("agent")
    async with await runtime.open_session("agent", takeover=True):
        assert asked == ["live_tasks"]
    with suppress(Fenced):
        await first.aclose()


# -- Stopping a session


async def test_stopping_a_session_stops_its_tasks_and_those_below(runtime: Runtime, store: Path) -> None:
    """Owned or not, kept or not, and whoever started them; bystanders go on."""
    async with open_runtime(store) as elsewhere:
        root = await runtime.create_session(key="root")
        await root.append("user/message", {"text": "hello"})
        await root.flush()
        for key, parent in (("child", "root"), ("grandchild", "child"), ("bystander", None)):
            async with await runtime.create_session(key=key, parent=parent) as session:
                await session.append("user/message", {"text": "hello"})
        started = {}
        for key in ("root", "child", "grandchild", "bystander"):
            for starter, policy in ((runtime, "kill"), (elsewhere, "keep")):
                task = await starter.start_task(["sleep", "60"], session=key, on_owner_exit=policy)  # type: ignore[arg-type]
                started[task.id] = key
        left = await runtime.start_task(["sh", "-c", "sleep 60 & exit 0"], session="child")
        alone = await runtime.start_task(["sleep", "60"], on_owner_exit="keep")
        await left.wait()
        with anyio.fail_after(SECONDS_MAX):
            assert await elsewhere.stop_session("root") == [root.id]
        for id, key in started.items():
            state = await runtime.task(id).state()
            assert (state.state, state.by) == (("running", None) if key == "bystander" else ("ended", "stop"))
        assert (await left.state()).survivors == []
        assert (await alone.state()).state == "running"
        assert await runtime.stop_session("bystander") == []
        await alone.stop()
        with suppress(Fenced):
            await root.aclose()


async def test_stopping_a_session_ends_though_the_node_is_killed(runtime: Runtime, store: Path) -> None:
    """What is left to be done is asked of the next one."""
    async with await runtime.create_session(key="agent") as session:
        slow = ["sh", "-c", "trap 'sleep 0.5; exit 9' TERM; while :; do sleep 0.05; done"]
        task = await runtime.start_task(slow, session=session)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runtime.stop_session, "agent")
            with anyio.fail_after(SECONDS_MAX):
                while (await task.state()).state == "running":  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            kill(node_of(store))
        state = await task.state()
        assert (state.how, state.by) == ({"code": 9}, "stop")
