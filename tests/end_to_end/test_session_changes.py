"""End to end: what anybody may change of a session, who is asked for it, and how it is found. Either backend."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.actors.errors import (
    Ambiguous,
    Deleted,
    Exists,
    Fenced,
    ForkedProcess,
    InvalidValue,
    NotFound,
    SessionBusy,
    SessionClosed,
    TooLarge,
    TurnkeeperError,
    WrongKind,
)
from turnkeeper.actors.ids import inbox_id
from turnkeeper.actors.records import SessionInfo
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.session import Session
from turnkeeper.storage.limits import ID_PATTERN

from ..served import end_all, kill, read_line, start_python, writer_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize(("anyio_backend", "kept_by"), [("trio", "journal"), ("asyncio", "sqlite")]),
]


async def begun(runtime: Runtime, **header: Any) -> Session:
    """Make a session with one event."""
    session = await runtime.create_session(**header)
    await session.append("my/note", {})
    await session.flush()
    return session


async def made(runtime: Runtime, **header: Any) -> str:
    """Make a session with one event, close it, and give its id."""
    async with await begun(runtime, **header) as session:
        return session.id


async def row_of(runtime: Runtime, id: str) -> SessionInfo:
    """Give a session's row of the list."""
    (row,) = [each for each in await runtime.sessions(limit=1000) if each.id == id]
    return row


def ids(rows: list[SessionInfo]) -> list[str]:
    """Give the ids of rows."""
    return [row.id for row in rows]


# -- Titles and labels


async def test_title_and_labels_are_set_by_anybody_and_by_the_owner(runtime: Runtime, store: Path) -> None:
    """Durable when the call returns, no event, and what isn't named stays; an empty title and None remove."""
    async with await begun(runtime, key="k", title="first", labels={"a": "1", "b": "2"}) as session:
        before = await row_of(runtime, session.id)
        async with open_runtime(store) as other:
            await other.set_session("k", title="second", labels={"b": None, "c": "3"})
        row = await row_of(runtime, session.id)
        assert (row.title, row.labels) == ("second", {"a": "1", "c": "3"})
        assert (row.events, row.position, row.status) == (before.events, before.position, "active")
        await session.set(labels={"a": None})
        await session.set(title="")
        assert (await row_of(runtime, session.id)).labels == {"c": "3"}
        await session.append("my/note", {})
        await session.flush()
    row = await row_of(runtime, session.id)
    assert (row.title, row.labels, row.events) == ("", {"c": "3"}, 2)


async def test_a_session_without_events_keeps_what_is_set_for_its_first(runtime: Runtime) -> None:
    """Nothing is stored before; also while its first event is on the way."""
    async with await runtime.create_session(title="t", labels={"a": "1"}) as session:
        await session.set(title="other", labels={"a": None, "b": "2"})
        assert await runtime.sessions() == []
        with pytest.raises(NotFound):
            await runtime.set_session(session.id, title="x")
        await session.append("my/note", {})
        await session.set(labels={"c": "3"})
        row = await row_of(runtime, session.id)
    assert (row.title, row.labels) == ("other", {"b": "2", "c": "3"})


async def test_who_sets_labels_at_the_same_time_loses_none(runtime: Runtime, store: Path) -> None:
    """Fifty from two clients, with the writer killed in between: all of them are there."""
    async with await begun(runtime) as session, open_runtime(store) as other:
        async with anyio.create_task_group() as tasks:
            for number in range(25):
                for name, client in (("a", runtime), ("b", other)):
                    labels = {f"{name}{number}": "x"}
                    tasks.start_soon(partial(client.set_session, session.id, labels=labels))
                if number == 12:
                    tasks.start_soon(partial(anyio.to_thread.run_sync, kill, writer_of(store)))
        row = await row_of(runtime, session.id)
    assert row.labels == {f"{name}{number}": "x" for name in "ab" for number in range(25)}


WRONG_WORDS: list[tuple[dict[str, Any], type[TurnkeeperError], str]] = [
    ({"title": "a\nb"}, InvalidValue, r"at \$\.title: a control character \(U\+000A\) at place 1"),
    ({"title": "\x1b[31m"}, InvalidValue, r"at \$\.title: a control character \(U\+001B\) at place 0"),
    ({"title": "\x85"}, InvalidValue, r"a control character \(U\+0085\)"),
    ({"title": "\ud800"}, InvalidValue, r"at \$\.title: a lone surrogate"),
    ({"title": 7}, InvalidValue, r"a title is a text"),
    ({"title": "x" * 1_000_000}, TooLarge, r"a session's header .* over the limit of 3,072"),
    ({"labels": {"x": "y" * 1_000_000}}, TooLarge, r"the label 'x' of a session has 1,000,001 bytes"),
    ({"labels": {"x" * 1_000_000: "y"}}, TooLarge, r"^the label 'x{40}' of a session has 1,000,001 bytes"),
    ({"labels": {"": "y"}}, InvalidValue, r"a label's name is a text, and not an empty one"),
    ({"labels": {7: "y"}}, InvalidValue, r"a label's name is a text"),
    ({"labels": {"x": 7}}, InvalidValue, r"at \$\.labels\.x: a label's value is a text"),
    ({"labels": {"a\tb": "y"}}, InvalidValue, r"a control character \(U\+0009\) at place 1"),
    ({"labels": {"x": "\ud800"}}, InvalidValue, r"at \$\.labels\.x: a lone surrogate"),
    ({"labels": {f"l{n}": "x" * 100 for n in range(40)}}, TooLarge, r"over the limit of 3,072"),
]


async def test_words_that_cannot_be_are_refused_by_name(runtime: Runtime) -> None:
    """Whoever says them: at the creation, later, by a fork; and nothing is changed."""
    async with await begun(runtime, title="t", labels={"a": "b"}) as session:
        before = await row_of(runtime, session.id)
        calls: list[Callable[..., Awaitable[object]]] = [runtime.create_session, session.set]
        calls += [partial(runtime.set_session, session.id), partial(runtime.fork_session, session.id)]
        for changes, error, why in WRONG_WORDS:
            for call in calls:
                with pytest.raises(error, match=why):
                    await call(**changes)
        assert await runtime.sessions() == [before]


async def test_an_origin_may_be_nested_as_deep_as_a_header_takes(runtime: Runtime) -> None:
    """One level more is refused at the call, and the runtime goes on."""

    def nested(levels: int) -> dict[str, Any]:
        return {"in": nested(levels - 1)} if levels > 1 else {"in": 1}

    with pytest.raises(InvalidValue, match=r"at \$\.origin: nested deeper than 15 levels"):
        await runtime.create_session(origin=nested(16))
    async with await runtime.create_session(origin=nested(15)) as session:
        await session.append("note/n", {})
        await session.flush()
        assert (await row_of(runtime, session.id)).origin == nested(15)


async def test_labels_that_add_up_to_too_much_are_refused_where_they_are_merged(runtime: Runtime) -> None:
    """Each call was small enough; what was there before stays."""
    async with await begun(runtime) as session:
        for number in range(3):
            await session.set(labels={f"l{number}": "x" * 1000})
        with pytest.raises(TooLarge, match=session.id):
            await session.set(labels={"l3": "x" * 1000, "l4": "y" * 100})
        assert list((await row_of(runtime, session.id)).labels) == ["l0", "l1", "l2"]


# -- Deleting


async def test_a_deleted_session_is_gone_until_it_is_brought_back(runtime: Runtime, store: Path) -> None:
    """Not listed, opened, forked or set; it says that it is deleted, over restarts, and comes back as it was."""
    async with await begun(runtime, key="k", title="t", labels={"a": "b"}) as session:
        pass
    before = await row_of(runtime, session.id)
    await runtime.delete("k")
    await runtime.delete("k")
    kill(writer_of(store))
    assert await runtime.sessions() == []
    for wanted in (session.id, "k", session.id[:-1]):
        for call in (
            runtime.open_session,
            partial(runtime.open_session, takeover=True),
            runtime.fork_session,
            runtime.stop_session,
            partial(runtime.set_session, title="x"),
        ):
            with pytest.raises(Deleted, match=f"^{session.id} is deleted; undelete it to use it again$"):
                await call(wanted)
    with pytest.raises(Deleted):
        await runtime.open_session("k", create=True)
    with pytest.raises(Exists):
        await runtime.create_session(key="k")
    assert len(await runtime.read(session.id)) == 1, "its whole id still reads it"
    await runtime.undelete("k")
    await runtime.undelete(session.id)
    assert await row_of(runtime, session.id) == before
    async with await runtime.open_session("k") as again:
        assert again.head == 1


async def test_the_inbox_is_deleted_with_its_session(runtime: Runtime) -> None:
    """Nothing is sent to it meanwhile; undeleted, it has what it had, and is no session itself."""
    id = await made(runtime, key="k")
    await runtime.send(id, "my/message", {"n": 1})
    await runtime.delete(id)
    for wanted in (id, "k", id[:-1]):
        with pytest.raises(Deleted, match=f"^{id} is deleted; undelete it"):
            await runtime.send(wanted, "my/message", {"n": 2})
    reads = runtime._client.reads
    assert [row.id for row in await reads.call(lambda reader: reader.rows(10, kind="inbox"))] == []
    await runtime.undelete(id)
    async with await runtime.open_session("k") as session:
        message = await anext(session.inbox())
        assert message.data == {"n": 1}
    for call in (runtime.delete, runtime.undelete, runtime.fork_session, runtime.stop_session, runtime.open_session):
        with pytest.raises(WrongKind, match=f"^{inbox_id(id)} is no session but of the kind 'inbox'"):
            await call(inbox_id(id))


async def test_a_session_that_somebody_has_is_not_deleted(runtime: Runtime, store: Path) -> None:
    """Its owner is named; one whose process was killed has nobody any more."""
    async with await begun(runtime) as session:
        for _ in range(2):
            with pytest.raises(SessionBusy) as caught:
                await runtime.delete(session.id)
            assert caught.value.owner["pid"] == os.getpid()
        await session.append("my/note", {})
        await session.flush()
    program = """
import sys
from turnkeeper.actors.blocking import connect

with connect(sys.argv[1]) as runtime, runtime.open_session(sys.argv[2]) as session:
    print(flush=True)
    sys.stdin.read()
"""
    host = start_python(program, str(store), session.id)
    try:
        read_line(host)
        with pytest.raises(SessionBusy):
            await runtime.delete(session.id)
        kill(host.pid)
        await runtime.delete(session.id)
    finally:
        end_all([host])
    assert await runtime.sessions() == []


# -- Stopping


async def test_stopping_a_session_stops_all_below_it(runtime: Runtime, store: Path) -> None:
    """Whoever owns one is fenced and its turn ends as aborted; parents come first, and others are left alone."""
    root = await begun(runtime, key="root")
    child = await begun(runtime, parent=root.id)
    fork = await root.fork()
    deep = await begun(runtime, parent=child.id)
    below_closed = await begun(runtime, parent=await made(runtime, parent=fork.id))
    bystander = await begun(runtime)
    await deep.append("turn/start", {})
    await deep.tool_started("a", "bash", {})
    async with open_runtime(store) as other:
        stopped = await other.stop_session("root")
        assert set(stopped) == {each.id for each in (root, child, fork, deep, below_closed)}
        assert stopped[0] == root.id
        assert stopped.index(child.id) < stopped.index(deep.id)
        assert await other.stop_session(root.id) == []
    for session in (root, child, fork, deep, below_closed):
        await session.append("my/note", {"too": "late"})
        with pytest.raises(Fenced):
            await session.flush()
        await session.aclose()
    await bystander.append("my/note", {})
    await bystander.aclose()
    log = await runtime.read(deep.id, last=2)
    assert [(event.type, event.data.get("error") or event.data.get("reason")) for event in log] == [
        ("tool/finished", "TOOL_OUTCOME_UNKNOWN"),
        ("turn/end", "aborted"),
    ]
    assert {row.status for row in await runtime.sessions()} == {"closed"}
    async with await runtime.open_session(deep.id) as again:
        assert again.interrupted is None


async def test_a_ring_of_parents_is_stopped_once(runtime: Runtime) -> None:
    """Two sessions that name each other as their parents end no program, wherever they lie."""
    async with await begun(runtime) as first, await begun(runtime) as second:
        await first.set_parent(second.id)
        await second.set_parent(first.id)
        assert await runtime.stop_session(await made(runtime)) == []
        assert sorted(await runtime.stop_session(first.id)) == sorted((first.id, second.id))


# -- Names


async def test_a_name_that_can_be_nothings_is_not_found(runtime: Runtime) -> None:
    """Empty, too long, without a UTF-8 form, a path: each call says so at once, and the next one works."""
    calls = (runtime.open_session, runtime.delete, runtime.undelete, runtime.fork_session, runtime.stop_session)
    async with await begun(runtime) as session:
        for wanted in ("", "x" * 257, "x" * 1_000_000, "\ud800", "../../etc/passwd", "A B", "nobody"):
            for call in (*calls, partial(runtime.set_session, title="t"), runtime.read):
                with anyio.fail_after(10), pytest.raises(NotFound):
                    await call(wanted)
        for key in ("k" * 257, "\ud800"):
            for create in (partial(runtime.create_session, key=key), partial(runtime.open_session, key, create=True)):
                with pytest.raises((InvalidValue, NotFound)):
                    await create()
        assert ids(await runtime.sessions()) == [session.id]


async def test_unknown_ambiguous_and_deleted_are_three_messages_and_make_no_session(runtime: Runtime) -> None:
    """By id, by a unique prefix and by key a session is found; whatever isn't makes none."""
    sessions = [await made(runtime, key=f"k{number}") for number in range(30)]
    letters = [id[0] for id in sessions]
    shared = next(letter for letter in letters if letters.count(letter) > 1)
    with pytest.raises(Ambiguous, match=r"is the beginning of several ids: .*; give more of it"):
        await runtime.open_session(shared)
    with pytest.raises(NotFound, match="no session, task or stream 'nobody'"):
        await runtime.open_session("nobody")
    await runtime.delete(sessions[0])
    with pytest.raises(Deleted, match="is deleted"):
        await runtime.open_session("k0")
    assert len(await runtime.sessions(limit=100)) == 29
    for number in range(1, 4):
        for wanted in (sessions[number], sessions[number][:-1], f"k{number}"):
            async with await runtime.open_session(wanted) as again:
                assert again.id == sessions[number]


async def test_ids_are_memorable_unique_and_no_paths(runtime: Runtime) -> None:
    """Words and four digits in small letters: the same on a file system that doesn't tell cases apart."""
    found = {await made(runtime) for _ in range(100)}
    assert len({id.lower() for id in found}) == 100
    assert all(ID_PATTERN.match(id) and id.count("-") >= 2 and id[0].isalpha() for id in found)


async def test_a_key_may_be_anything_that_a_host_calls_its_things(runtime: Runtime) -> None:
    """It is data, never a path; each names its own session."""
    keys = ["../x", "a/b", "a b", "ключ", "K", "k", "a\0b", "x" * 256, "'; drop", ".", "-"]
    sessions = {key: await made(runtime, key=key) for key in keys}
    assert len(set(sessions.values())) == len(keys)
    for key, id in sessions.items():
        assert ids(await runtime.sessions(key=key)) == [id]


# -- After the end


async def test_what_was_closed_changes_nothing_any_more(store: Path) -> None:
    """Session and runtime say that they were closed, whatever is asked of them."""
    async with open_runtime(store) as runtime:
        async with await begun(runtime, key="k") as session:
            pass
        calls: list[Callable[[], Awaitable[object]]] = [
            partial(session.set, title="x"),
            session.fork,
            partial(session.rewind, 0),
            partial(session.set_parent, "x"),
        ]
        for call in calls:
            with pytest.raises(SessionClosed):
                await call()
    late: list[Callable[[], Awaitable[object]]] = [
        runtime.sessions,
        partial(runtime.set_session, "k", title="x"),
        partial(runtime.fork_session, "k"),
        partial(runtime.delete, "k"),
        partial(runtime.undelete, "k"),
        partial(runtime.stop_session, "k"),
        *calls,
    ]
    for call in late:
        with pytest.raises(SessionClosed):
            await call()
    async with open_runtime(store) as again:
        (row,) = await again.sessions()
        assert (row.title, row.events, row.status) == ("", 1, "closed")


async def test_a_forked_child_changes_nothing(runtime: Runtime) -> None:
    """What its parent has open is refused there."""
    async with await begun(runtime, key="k") as session:
        child = os.fork()
        if child == 0:
            try:
                for call in (session.set(title="x"), runtime.delete("k"), runtime.set_session("k", title="x")):
                    with pytest.raises(ForkedProcess):
                        call.send(None)
                os._exit(7)
            finally:
                os._exit(1)
        _, status = await anyio.to_thread.run_sync(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        assert (await row_of(runtime, session.id)).title == ""
