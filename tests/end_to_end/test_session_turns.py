"""End to end: turns and tool calls of real sessions, with real node and writer processes, on trio and on asyncio."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from turnkeeper.actors.errors import Fenced, TurnOpen
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime

from ..conversations import say, told
from ..served import LOOPS_AND_STORES

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES, pytest.mark.shared_store]


async def test_a_turn_is_open_in_its_body_and_completed_behind_it(runtime: Runtime) -> None:
    """Start and end stand in the log; what the end says is durable when the body is left."""
    async with await runtime.create_session() as session:
        async with session.turn(model="m", turn="ignored"):
            await say(session, "hello")
            assert (await runtime.sessions())[0].open_turn
        assert told(await runtime.read(session.id)) == [
            (0, "turn/start", {"turn": 1, "model": "m"}),
            (1, "user/message", {"text": "hello"}),
            (2, "turn/end", {"turn": 1, "reason": "completed"}),
        ]
        async with session.turn():
            pass
        (listed,) = await runtime.sessions()
    assert (listed.open_turn, listed.turns) == (False, 2)


async def test_an_exception_ends_the_turn_and_passes_unchanged(runtime: Runtime) -> None:
    """The very object comes out of turn, session and runtime, in no group; unanswered calls were answered first."""
    error = ValueError("no such file")
    session = await runtime.create_session()

    async def fail_in_a_turn() -> None:
        async with session, session.turn():
            calls = [{"id": "a", "name": "bash"}, {"id": "b", "name": "read"}]
            await session.append("assistant/message", {"text": "", "tool_calls": calls})
            await session.tool_started("b", "read", {})
            raise error

    with pytest.raises(ValueError, match="no such file") as caught:
        await fail_in_a_turn()
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    assert told(await runtime.read(session.id, last=3)) == [
        (3, "tool/finished", {"id": "a", "output": None, "error": "TOOL_NOT_STARTED"}),
        (4, "tool/finished", {"id": "b", "output": None, "error": "TOOL_OUTCOME_UNKNOWN"}),
        (
            5,
            "turn/end",
            {"turn": 1, "reason": "error", "error": {"type": "ValueError", "message": "no such file"}},
        ),
    ]


async def test_a_cancelled_turn_is_aborted(runtime: Runtime) -> None:
    """The end is written and durable although the body was cancelled."""
    async with await runtime.create_session() as session:
        with anyio.CancelScope() as scope:
            async with session.turn():
                scope.cancel()
                await anyio.sleep_forever()
        assert told(await runtime.read(session.id, last=1)) == [(1, "turn/end", {"turn": 1, "reason": "aborted"})]


async def test_a_second_turn_is_refused(runtime: Runtime) -> None:
    """One exchange at a time; the error names the open turn's start, and the first turn isn't disturbed."""
    async with await runtime.create_session() as session:
        async with session.turn():
            with pytest.raises(TurnOpen) as caught:
                async with session.turn():
                    pytest.fail("the body ran")
        assert caught.value.seq == 0
        assert [event.type for event in await session.read()] == ["turn/start", "turn/end"]


async def test_a_tools_start_is_durable_before_its_body_runs(runtime: Runtime) -> None:
    """The body finds it in the journal."""
    async with await runtime.create_session() as session, session.turn():
        async with session.tool("a", "bash", {"command": "ls"}, effect="read") as call:
            assert told(await runtime.read(session.id, last=1)) == [
                (1, "tool/started", {"id": "a", "name": "bash", "arguments": {"command": "ls"}, "effect": "read"})
            ]
            await call.finish({"files": []})
        assert told(await session.read(last=1)) == [(2, "tool/finished", {"id": "a", "output": {"files": []}})]


async def test_a_tool_fails_closed(store: Path) -> None:
    """If its start can't be stored its body doesn't run: here the session was taken over by somebody else."""
    async with open_runtime(store) as runtime, open_runtime(store) as other:
        session = await runtime.create_session()
        await say(session, "mine")
        async with await other.open_session(session.id, takeover=True):
            with pytest.raises(Fenced):
                async with session.tool("a", "bash", {}):
                    pytest.fail("the body ran")


async def test_a_tool_without_a_finish_gets_a_result(runtime: Runtime) -> None:
    """Returning is a result of null, an exception is an error result, a cancellation leaves the outcome unknown."""
    async with await runtime.create_session() as session, session.turn():
        async with session.tool("a", "bash", {}):
            pass
        with pytest.raises(OSError, match="broken"):
            async with session.tool("b", "bash", {}):
                raise OSError("broken")
        with anyio.CancelScope() as scope:
            async with session.tool("c", "bash", {}):
                scope.cancel()
                await anyio.sleep_forever()
        finished = [event.data for event in await session.read() if event.type == "tool/finished"]
    assert finished == [
        {"id": "a", "output": None},
        {"id": "b", "output": None, "error": "OSError: broken"},
        {"id": "c", "output": None, "error": "TOOL_OUTCOME_UNKNOWN"},
    ]


async def test_a_result_that_comes_after_the_turn_is_kept_as_a_late_one(runtime: Runtime) -> None:
    """A call that was closed with an unknown outcome may still get its real result."""
    async with await runtime.create_session() as session:
        async with session.turn():
            await session.tool_started("a", "bash", {})
        await session.tool_finished("a", "the real one")
        assert told(await session.read(last=1)) == [(4, "tool/late-result", {"id": "a", "output": "the real one"})]
