"""End to end: sessions of a real store of either kind, with real node and writer processes, on trio and on asyncio."""

from __future__ import annotations

import gc
import os
import signal
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.actors import runtime as runtime_module
from turnkeeper.actors.background import Background
from turnkeeper.actors.client import link as link_module
from turnkeeper.actors.errors import (
    Ambiguous,
    Conflict,
    Failed,
    ForkedProcess,
    InvalidValue,
    NotFound,
    SessionClosed,
    TooLarge,
)
from turnkeeper.actors.records import Event
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session import session as session_module

from ..conversations import say, texts, told
from ..served import LOOPS_AND_STORES, SECONDS_MAX, wait_unserved, writer_of

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES, pytest.mark.shared_store]


# -- Append and flush


async def test_what_was_flushed_is_read_back_in_order_with_positions(runtime: Runtime) -> None:
    """Numbers count from 0, the flush gives the last event's position, and reading shows type, data and time."""
    async with await runtime.create_session() as session:
        numbers = [await session.append("my/type", {"n": n, "nested": {"list": [1.5, None, "ü"]}}) for n in range(3)]
        position = await session.flush()
        events = await runtime.read(session.id)
    assert numbers == [0, 1, 2]
    assert told(events) == [(n, "my/type", {"n": n, "nested": {"list": [1.5, None, "ü"]}}) for n in range(3)]
    assert [event.position for event in events] == [position - 2, position - 1, position]
    assert events[0].stream == session.id
    assert events[0].time > 1_700_000_000_000


async def test_an_event_that_nobody_flushed_is_stored_by_itself(runtime: Runtime) -> None:
    """Write-behind: a follower sees it, though nothing asked for it."""
    async with await runtime.create_session() as session:
        await session.append("user/message", {"text": "alone"})
        with anyio.fail_after(SECONDS_MAX):
            event = await anext(runtime.follow(session.id, after=0))
    assert event.data == {"text": "alone"}


async def test_changing_the_data_after_the_call_changes_nothing(runtime: Runtime) -> None:
    """What the caller passed is encoded at the call."""
    data: dict[str, Any] = {"list": [1]}
    async with await runtime.create_session() as session:
        await session.append("my/type", data)
        data["list"].append(2)
        await session.flush()
        page = await runtime.read(session.id)
        page[0].data["list"].append(3)
        assert told(await runtime.read(session.id)) == [(0, "my/type", {"list": [1]})]


async def test_a_refused_value_takes_no_number(runtime: Runtime) -> None:
    """What JSON can't hold, or is too large for an event, is refused at the call; the next event gets the number."""
    async with await runtime.create_session() as session:
        with pytest.raises(InvalidValue, match=r"event 0 \(my/type\) at \$\.x"):
            await session.append("my/type", {"x": {1, 2}})
        with pytest.raises(TooLarge):
            await session.append("my/type", {"x": "y" * 2**26})
        assert await session.append("my/type", {"x": 1}) == 0


async def test_a_text_that_was_cut_in_an_emoji_is_refused_or_replaced(runtime: Runtime) -> None:
    """As the caller says, in any place of the data, with a key or without; what is stored can be encoded again."""
    data = {"text": "cut \ud83d", "blocks": [{"\udc00": ["\ud83d\ude00"]}]}
    async with await runtime.create_session() as session:
        for key in (None, "k"):
            with pytest.raises(InvalidValue, match="surrogate"):
                await session.append("user/message", data, key=key)
            await session.append("user/message", data, key=key, text="replace")
        await session.flush()
        page = await session.read()
    assert [event.data for event in page] == [{"text": "cut \ufffd", "blocks": [{"\ufffd": ["\U0001f600"]}]}] * 2


async def test_a_cancelled_flush_ends_the_wait_and_not_the_bytes(runtime: Runtime) -> None:
    """The event is stored all the same."""
    async with await runtime.create_session() as session:
        await session.append("user/message", {"text": "kept"})
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.flush()
        assert scope.cancelled_caught
        await session.flush()
        assert texts(await runtime.read(session.id)) == ["kept"]


async def test_concurrent_flushes_share_one_commit(runtime: Runtime) -> None:
    """Fifty tasks on fifty sessions that flush in the same turn of the loop cost a few batches, not fifty."""
    sessions = [await runtime.create_session() for _ in range(50)]
    before = await batches(runtime)
    async with anyio.create_task_group() as tasks:
        for session in sessions:
            tasks.start_soon(say, session, "hello")
    assert await batches(runtime) - before <= 5
    for session in sessions:
        await session.aclose()


async def batches(runtime: Runtime) -> int:
    """Ask the writer how many batches it has written."""
    client = runtime._client
    reply = await client.answered(client.link.ask({"op": "statistics"}, for_caller=True))
    count: int = reply["batches"]
    return count


async def test_a_flush_of_nothing_gives_the_last_position(runtime: Runtime) -> None:
    """Also in a session that this opening hasn't appended to; 0 in one without events."""
    async with await runtime.create_session() as session:
        assert await session.flush() == 0
        position = await say(session, "one")
        assert await session.flush() == position
    async with await runtime.open_session(session.id) as session:
        assert await session.flush() == position


async def test_a_full_buffer_makes_append_wait_until_there_is_space(
    runtime: Runtime, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the writer stopped, appends go on up to the bound and then wait; cancelled, nothing was appended."""
    monkeypatch.setattr(link_module, "BUFFER_BYTES_MAX", 100_000)
    async with await runtime.create_session() as session:
        await say(session, "begun")
        writer = writer_of(store)
        os.kill(writer, signal.SIGSTOP)
        try:
            waited = None
            while waited is None:
                head = session.head
                with anyio.move_on_after(0.2) as scope:
                    await session.append("user/message", {"text": "x" * 10_000})
                waited = head if scope.cancelled_caught else None
            assert session.head == waited
            assert 9 <= waited <= 12
        finally:
            os.kill(writer, signal.SIGCONT)
        with anyio.fail_after(SECONDS_MAX):
            await say(session, "after")
        assert texts(await session.read())[-1] == "after"


async def test_appends_that_wait_keep_the_order_of_their_calls(
    runtime: Runtime, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks that found the buffer full are numbered in the order in which they called, keyed ones among them."""
    async with await runtime.create_session() as session:
        await say(session, "begun")
        monkeypatch.setattr(link_module, "BUFFER_BYTES_MAX", 1)
        await session.append("user/message", {"text": "fills it"})
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                key = f"k{number}" if number % 3 == 0 else None
                tasks.start_soon(partial(session.append, "my/n", {"n": number}, key=key))
                await anyio.lowlevel.checkpoint()
        await session.flush()
        page = await session.read(start=2)
    assert [event.data["n"] for event in page] == list(range(20))


# -- Keys


async def test_a_key_stores_an_event_once(runtime: Runtime) -> None:
    """The second call gets the first one's number, in a later opening too, and what follows is numbered on."""
    async with await runtime.create_session() as session:
        await session.append("user/message", {"text": "before"})
        assert await session.append("user/message", {"text": "once"}, key="k") == 1
        assert await session.append("user/message", {"text": "once"}, key="k") == 1
        assert await session.append("user/message", {"text": "after"}) == 2
    async with await runtime.open_session(session.id) as session:
        assert await session.append("user/message", {"text": "once"}, key="k") == 1
        assert (await session.append("user/message", {"text": "last"}), session.head) == (3, 4)
        await session.flush()
        assert texts(await session.read()) == ["before", "once", "after", "last"]


async def test_a_key_with_other_data_is_a_conflict_and_the_session_goes_on(runtime: Runtime) -> None:
    """Nothing was appended, and nobody lost the session."""
    async with await runtime.create_session() as session:
        await session.append("user/message", {"text": "once"}, key="k")
        with pytest.raises(Conflict):
            await session.append("user/message", {"text": "other"}, key="k")
        await say(session, "next")
        assert texts(await session.read()) == ["once", "next"]


# -- Lists and reads


@pytest.mark.shared_store(False)
async def test_lists_are_by_recency_and_filtered(runtime: Runtime) -> None:
    """Newest activity first; by working directory, by label, by status; a page as large as wanted."""
    sessions = []
    for number in range(5):
        labels = {"parity": "even" if number % 2 == 0 else "odd"}
        session = await runtime.create_session(cwd=f"/src/{number % 3}", labels=labels, title=f"session {number}")
        await say(session, "hello")
        sessions.append(session)
    await say(sessions[1], "the newest")
    await sessions[0].aclose()
    ids = [session.id for session in sessions]
    assert [each.id for each in await runtime.sessions()] == [ids[n] for n in (1, 4, 3, 2, 0)]
    assert [each.id for each in await runtime.sessions(limit=2)] == [ids[1], ids[4]]
    assert [each.id for each in await runtime.sessions(parity="odd")] == [ids[1], ids[3]]
    assert [each.id for each in await runtime.sessions(cwd="/src/0", status="active")] == [ids[3]]
    (closed,) = await runtime.sessions(status="closed")
    assert (closed.title, closed.events, closed.labels, closed.owner) == ("session 0", 1, {"parity": "even"}, None)
    for session in sessions[1:]:
        await session.aclose()


@pytest.mark.shared_store(False)
async def test_a_prefix_of_several_ids_is_ambiguous(runtime: Runtime) -> None:
    """The candidates are named."""
    sessions = [await runtime.create_session() for _ in range(40)]
    for session in sessions:
        await say(session, "hello")
    letters = [session.id[0] for session in sessions]
    shared = next(letter for letter in letters if letters.count(letter) > 1)
    with pytest.raises(Ambiguous) as caught:
        await runtime.read(shared)
    assert set(caught.value.candidates) <= {session.id for session in sessions}
    for session in sessions:
        await session.aclose()


async def test_a_session_reads_its_own_buffer_too(runtime: Runtime, store: Path) -> None:
    """Durable events, those on their way and those that wait, once each, whatever the bounds."""
    async with await runtime.create_session() as session:
        await say(session, "0", "1", "2")
        writer = writer_of(store)
        os.kill(writer, signal.SIGSTOP)
        try:
            await session.append("user/message", {"text": "3"})
            with anyio.move_on_after(0.05):
                await session.flush()
            await session.append("user/message", {"text": "4"})
            page = await session.read()
            assert texts(page) == ["0", "1", "2", "3", "4"]
            assert ([event.position for event in page][3:], page.head) == ([0, 0], 5)
            assert texts(await session.read(last=1)) == ["4"]
            assert texts(await session.read(last=4)) == ["1", "2", "3", "4"]
            assert texts(await session.read(start=2, limit=2)) == ["2", "3"]
            assert texts(await session.read(start=4, limit=9)) == ["4"]
            assert texts(await session.read(limit=2)) == ["0", "1"]
            assert await session.read(start=5) == []
            assert texts(await runtime.read(session.id)) == ["0", "1", "2"]
        finally:
            os.kill(writer, signal.SIGCONT)


async def test_pages_say_where_the_session_ends(runtime: Runtime) -> None:
    """Bounds beyond the end give fewer events or none; negative and fractional ones are errors."""
    async with await runtime.create_session() as session:
        await say(session, *map(str, range(10)))
    page = await runtime.read(session.id, start=3, limit=4)
    assert (texts(page), page.head, page.missing) == (["3", "4", "5", "6"], 10, [])
    assert (await runtime.read(session.id, start=99), (await runtime.read(session.id, limit=0)).head) == ([], 10)
    assert texts(await runtime.read(session.id, last=2)) == ["8", "9"]
    for bounds in ({"start": -1}, {"limit": -1}, {"last": -1}, {"last": 1.5}):
        with pytest.raises(ValueError, match="whole numbers from 0 on"):
            await runtime.read(session.id, **bounds)
        async with await runtime.open_session(session.id) as session:
            with pytest.raises(ValueError, match="whole numbers from 0 on"):
                await session.read(**bounds)


# -- Following


@pytest.mark.shared_store(False)
async def test_a_follower_of_the_present_sees_only_what_comes(runtime: Runtime) -> None:
    """Without `after` the past isn't told; ids and patterns choose."""
    async with await runtime.create_session(key="k") as session, await runtime.create_session() as other:
        await say(session, "past")
        following = runtime.follow("k", types=["user/*"])
        with anyio.fail_after(SECONDS_MAX):
            async with anyio.create_task_group() as tasks:
                got: list[Event] = []

                async def take() -> None:
                    got.append(await anext(following))

                with anyio.move_on_after(0.1):
                    await anext(following)
                tasks.start_soon(take)
                await say(other, "of another")
                await session.append("my/own", {"text": "of another type"})
                await say(session, "present")
        assert texts(got) == ["present"]
        prefix = await anext(runtime.follow(f"{session.id[:5]}*", after=0))
        assert texts([prefix]) == ["past"]
        with pytest.raises(NotFound):
            await anext(runtime.follow("nobody"))


# -- Ends


@pytest.mark.shared_store(False)
async def test_leaving_closes_sessions_and_leaves_no_process(store: Path) -> None:
    """Unflushed events are stored, an open turn is aborted, ownership is released, node and writer end."""
    async with open_runtime(store) as runtime:
        session = await runtime.create_session(key="k")
        await session.append("turn/start", {})
        await session.append("user/message", {"text": "unflushed"})
    wait_unserved(store, 0.5)
    for call in (session.flush, lambda: session.append("my/type", {}), lambda: runtime.open_session("k")):
        with pytest.raises(SessionClosed):
            await call()
    async with open_runtime(store) as runtime:
        (listed,) = await runtime.sessions()
        assert (listed.status, listed.open_turn) == ("closed", False)
        assert told(await runtime.read("k", last=1)) == [(2, "turn/end", {"turn": 1, "reason": "aborted"})]


@pytest.mark.shared_store(False)
async def test_leaving_a_store_that_doesnt_answer_is_over_in_time(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the writer stopped the ends give up, and say that the last events may not be stored."""
    monkeypatch.setattr(session_module, "END_SECONDS_MAX", 1.0)
    monkeypatch.setattr(runtime_module, "END_SECONDS_MAX", 1.0)

    async def leave_while_stopped() -> None:
        async with open_runtime(store) as runtime:
            session = await runtime.create_session()
            await say(session, "one")
            stopped.append(writer_of(store))
            os.kill(stopped[0], signal.SIGSTOP)
            await session.append("user/message", {"text": "two"})

    stopped: list[int] = []
    with anyio.fail_after(SECONDS_MAX), pytest.raises(Failed) as caught:
        await leave_while_stopped()
    assert any("the last 1 events weren't stored within 1 s" in note for note in caught.value.__notes__)
    os.kill(stopped[0], signal.SIGCONT)
    wait_unserved(store, SECONDS_MAX)


@pytest.mark.shared_store(False)
async def test_the_bodys_exception_leaves_the_runtime_unchanged(store: Path) -> None:
    """The same object, in no group, without notes, and everything is stored."""
    error = KeyError("mine")

    async def fail() -> None:
        async with open_runtime(store) as runtime:
            session = await runtime.create_session(key="k")
            await session.append("user/message", {"text": "unflushed"})
            raise error

    with pytest.raises(KeyError) as caught:
        await fail()
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    async with open_runtime(store) as runtime:
        assert texts(await runtime.read("k")) == ["unflushed"]


@pytest.mark.shared_store(False)
async def test_a_cancelled_runtime_is_left_in_order(store: Path) -> None:
    """Cancellation from outside reaches the body, and leaving still stores what was appended."""
    with anyio.CancelScope() as scope:
        async with open_runtime(store) as runtime:
            session = await runtime.create_session(key="k")
            await session.append("user/message", {"text": "unflushed"})
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    wait_unserved(store, 0.5)
    async with open_runtime(store) as runtime:
        assert texts(await runtime.read("k")) == ["unflushed"]


@pytest.mark.shared_store(False)
async def test_a_session_that_is_dropped_unclosed_warns_and_loses_nothing(runtime: Runtime) -> None:
    """Whoever forgets to close is told, by ResourceWarning; what was appended is stored."""
    session = await runtime.create_session(key="k")
    await session.append("user/message", {"text": "kept"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        id = session.id
        del session
        gc.collect()
    assert [each.category for each in caught if id in str(each.message)] == [ResourceWarning]
    with anyio.fail_after(SECONDS_MAX):
        assert texts([await anext(runtime.follow("k", after=0))]) == ["kept"]


async def test_a_runtime_that_is_dropped_unclosed_warns(runtime: Runtime) -> None:
    """Nobody said goodbye for it."""
    background = Background()
    await background.open()
    dropped = Runtime(runtime._client, background, cpu_jobs_max=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del dropped
        gc.collect()
    await background.aclose()
    assert "a runtime was never closed: use `async with`" in [str(each.message) for each in caught]


async def test_a_forked_child_is_refused(runtime: Runtime) -> None:
    """The child of a host can't append through its parent's connection; the parent goes on."""
    async with await runtime.create_session() as session:
        await say(session, "before")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                session.append("user/message", {"text": "by the child"}).send(None)
            except ForkedProcess as error:
                os.write(writing, b"%d" % error.opener)
            finally:
                os._exit(0)
        await anyio.to_thread.run_sync(os.waitpid, child, 0)
        os.close(writing)
        assert int(os.read(reading, 100)) == os.getpid()
        os.close(reading)
        await say(session, "after")
        assert texts(await session.read()) == ["before", "after"]
