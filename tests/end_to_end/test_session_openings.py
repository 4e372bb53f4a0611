"""End to end: how a session is opened, taken over and refused, with real node and writer processes."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from turnkeeper.actors.errors import Exists, Fenced, NotFound, SessionBusy
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.session import Session
from turnkeeper.runtime.identity import own_identity

from ..conversations import say, texts, told
from ..served import LOOPS_AND_STORES, SECONDS_MAX, end_all, kill, read_line, start_python

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES, pytest.mark.shared_store]


async def test_what_a_killed_host_left_open_is_closed_once_by_the_next_opening(store: Path, runtime: Runtime) -> None:
    """Turn and calls get their ends in order, at the last event's time; the opening after that has nothing to close.

    It is told of the same all the same, as whoever closed it may not have been the agent; until a turn begins.

    Before, looking shows the same closed form, without positions, and writes nothing.
    """
    program = """
import asyncio, sys
from turnkeeper.actors.runtime_opening import open_runtime

async def main():
    async with open_runtime(sys.argv[1]) as runtime:
        session = await runtime.create_session(key="job")
        async with session.turn():
            calls = [{"id": id, "name": "bash"} for id in "abcd"]
            await session.append("assistant/message", {"text": "", "tool_calls": calls})
            await session.tool_started("a", "bash", {}, effect="once")
            await session.tool_started("b", "bash", {}, effect="idempotent")
            await session.tool_started("c", "bash", {})
            await session.tool_finished("c", "done")
            await session.flush()
            print(session.id, flush=True)
            await asyncio.sleep(60)

asyncio.run(main())
"""
    host = start_python(program, str(store))
    try:
        id = read_line(host)
        with pytest.raises(SessionBusy) as caught:
            await runtime.open_session("job")
        assert (caught.value.stream, caught.value.owner["pid"]) == (id, host.pid)
        assert [each.status for each in await runtime.sessions()] == ["active"]
        kill(host.pid)
        assert [(each.status, each.open_turn) for each in await runtime.sessions()] == [("crashed", True)]
        shown = await runtime.read(id)
        before = shown[:6]
        assert [await runtime.read(id, last=2), await runtime.read(id, start=8)] == [shown[8:], shown[8:]]
        assert (await runtime.read(id, limit=7), shown.head) == (shown[:7], 6)
        async with await runtime.open_session("job") as session:
            assert session.interrupted is not None
            assert session.interrupted.turn == 1
            assert session.interrupted.calls == [
                ("a", "bash", "unknown"),
                ("b", "bash", "retry"),
                ("d", "bash", "not_started"),
            ]
            page = await runtime.read(id)
        assert page[: len(before)] == before
        assert told(page[len(before) :]) == [
            (6, "tool/finished", {"id": "a", "output": None, "error": "TOOL_OUTCOME_UNKNOWN"}),
            (7, "tool/finished", {"id": "b", "output": None, "error": "TOOL_OUTCOME_UNKNOWN"}),
            (8, "tool/finished", {"id": "d", "output": None, "error": "TOOL_NOT_STARTED"}),
            (9, "turn/end", {"turn": 1, "reason": "interrupted"}),
        ]
        assert {event.time for event in page[len(before) :]} == {before[-1].time}
        assert [(event.position, event.seq, event.data, event.time) for event in shown[6:]] == [
            (0, event.seq, event.data, event.time) for event in page[6:]
        ]
        async with await runtime.open_session(id) as again:
            assert (again.interrupted, again.head) == (session.interrupted, len(page))
            async with again.turn():
                pass
        async with await runtime.open_session(id) as again:
            assert (again.interrupted, again.head) == (None, len(page) + 2)
        (listed,) = await runtime.sessions(status="closed")
        assert (listed.id, listed.open_turn, listed.key) == (id, False, "job")
    finally:
        end_all([host])


async def test_a_session_has_one_owner_also_within_a_process(runtime: Runtime, store: Path) -> None:
    """A second opening is refused with the owner's name, and granted once the first has closed."""
    async with await runtime.create_session(key="k") as session:
        await say(session, "one")
        for wanted in (session.id, "k"):
            with pytest.raises(SessionBusy) as caught:
                await runtime.open_session(wanted)
            assert {**own_identity().as_map(), "token": caught.value.owner["token"]} == caught.value.owner
        async with open_runtime(store) as second:
            with pytest.raises(SessionBusy):
                await second.open_session(session.id)
    async with await runtime.open_session("k") as session:
        assert session.head == 1


async def test_a_takeover_fences_the_old_owner(store: Path) -> None:
    """The new owner goes on behind what is stored; each call of the old one raises, and says what isn't stored."""
    async with open_runtime(store) as runtime, open_runtime(store) as other:
        old = await runtime.create_session()
        await say(old, "old 0")
        async with await other.open_session(old.id, takeover=True) as new:
            await say(new, "new 1")
            await old.append("user/message", {"text": "too late"})
            for call in (old.flush, old.flush, lambda: old.append("user/message", {"text": "again"})):
                with pytest.raises(Fenced) as caught:
                    await call()
                assert caught.value.owner is not None
            assert old.not_stored == range(1, 2)
            await old.aclose()
            assert texts(await other.read(old.id)) == ["old 0", "new 1"]


async def test_events_that_were_lost_with_the_ownership_are_told_at_the_close_at_latest(store: Path) -> None:
    """An owner that never flushed learns it from the close, and from the runtime's end if it didn't close."""

    async def append_too_late(other: Runtime) -> None:
        async with open_runtime(store) as runtime:
            session = await runtime.create_session()
            await say(session, "mine")
            async with await other.open_session(session.id, takeover=True):
                await session.append("user/message", {"text": "too late"})

    async with open_runtime(store) as other:
        with pytest.raises(Fenced):
            await append_too_late(other)


async def test_the_bodys_exception_wins_over_a_turns_end_that_cant_be_stored(store: Path) -> None:
    """That the end wasn't stored becomes a note of it."""

    async def fail_while_taken_over(session: Session, other: Runtime) -> None:
        async with session.turn():
            await session.flush()
            async with await other.open_session(session.id, takeover=True):
                raise ValueError("the body's")

    async with open_runtime(store) as runtime, open_runtime(store) as other:
        session = await runtime.create_session()
        await say(session, "mine")
        with pytest.raises(ValueError, match="the body's") as caught:
            await fail_while_taken_over(session, other)
        assert any("taken over" in note for note in caught.value.__notes__)


@pytest.mark.shared_store(False)
async def test_an_unknown_session_is_an_error_and_makes_none(runtime: Runtime) -> None:
    """Not found, ambiguous and taken are three errors; a unique prefix will do."""
    with pytest.raises(NotFound):
        await runtime.open_session("nobody")
    with pytest.raises(NotFound):
        await runtime.read("nobody")
    assert await runtime.sessions() == []
    async with await runtime.create_session(key="taken") as session:
        await say(session, "one")
        with pytest.raises(Exists) as caught:
            await runtime.create_session(key="taken")
        assert caught.value.id == session.id
    assert len(await runtime.read(session.id[:-2])) == 1
    async with await runtime.open_session(session.id[:-1]) as again:
        assert again.id == session.id


@pytest.mark.shared_store(False)
async def test_a_session_without_events_leaves_nothing(runtime: Runtime, store: Path) -> None:
    """It isn't listed or read, and its key is free again, for this process and for others, as soon as it is closed."""
    async with await runtime.create_session(key="k") as session:
        with pytest.raises(SessionBusy):
            await runtime.open_session("k", create=True)
    assert await runtime.sessions() == []
    with pytest.raises(NotFound):
        await runtime.read(session.id)
    async with open_runtime(store) as other, await other.open_session("k", create=True) as second:
        assert second.id != session.id


async def test_a_cancelled_opening_leaves_no_owner(runtime: Runtime, store: Path) -> None:
    """What was granted to nobody is given back."""
    async with await runtime.create_session() as session:
        await say(session, "one")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await runtime.open_session(session.id)
    assert scope.cancelled_caught
    with anyio.fail_after(SECONDS_MAX):
        async with await runtime.open_session(session.id) as again:
            assert again.head == 1
    for _ in range(2):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await runtime.open_session("new", create=True)
    async with await runtime.open_session("new", create=True) as again:
        await say(again, "one")


async def test_a_seed_is_where_a_session_begins(runtime: Runtime) -> None:
    """Events of another session are replayed with numbers of their own."""
    async with await runtime.create_session() as first, first.turn():
        await say(first, "one")
    async with await runtime.create_session(seed=await runtime.read(first.id), parent=first.id) as second:
        await second.flush()
        assert told(await runtime.read(second.id)) == told(await runtime.read(first.id))
        assert [each.id for each in await runtime.sessions(parent=first.id)] == [second.id]
    half = (await runtime.read(first.id))[:2]
    async with await runtime.create_session(seed=half) as third, third.turn():
        assert told(await third.read(start=2)) == [
            (2, "turn/end", {"turn": 1, "reason": "interrupted"}),
            (3, "turn/start", {"turn": 2}),
        ]
