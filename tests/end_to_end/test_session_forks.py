"""End to end: forks of sessions of a real store, a journal on trio, and SQLite on asyncio."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.actors.errors import (
    Ambiguous,
    Deleted,
    Exists,
    InvalidFork,
    InvalidValue,
    NotFound,
    SessionBusy,
    SessionClosed,
    TooLarge,
)
from turnkeeper.actors.reading.rewinds import Range, live_ranges
from turnkeeper.actors.records import SessionInfo
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.session import Session

from ..conversations import Told, told
from ..served import end_all, kill, read_line, start_python, writer_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize(("anyio_backend", "kept_by"), [("trio", "journal"), ("asyncio", "sqlite")]),
    pytest.mark.shared_store,
]


async def work(session: Session) -> None:
    """Make a short log with all that a turn has: a note, a turn with calls that end and one that doesn't, a note."""
    await session.append("my/note", {"n": 0})
    async with session.turn():
        calls = [{"id": "a", "name": "bash"}, {"id": "b", "name": "read"}]
        await session.append("assistant/message", {"text": "", "tool_calls": calls})
        async with session.tool("a", "bash", {}) as call:
            await call.finish("done")
        await session.tool_started("b", "read", {}, effect="read")
    await session.append("my/note", {"n": 1})
    async with session.turn():
        await session.append("user/message", {"text": "again"})
    await session.flush()


def closings(log: Told, at: int) -> list[tuple[str, dict[str, Any]]]:
    """Say what closes the turn that is open after the first `at` events, found by going through them once more."""
    turn, calls, begun = None, dict[str, None](), set[str]()
    for _, type, data in log[:at]:
        if type in ("turn/start", "turn/end"):
            turn, calls, begun = data["turn"] if type == "turn/start" else None, {}, set()
        elif type == "assistant/message":
            calls |= dict.fromkeys(call["id"] for call in data["tool_calls"])
        elif type == "tool/started":
            begun.add(data["id"])
        elif type == "tool/finished":
            calls.pop(data["id"], None)
    if turn is None:
        return []
    errors = {True: "TOOL_OUTCOME_UNKNOWN", False: "TOOL_NOT_STARTED"}
    results = [("tool/finished", {"id": id, "output": None, "error": errors[id in begun]}) for id in calls]
    return [*results, ("turn/end", {"turn": turn, "reason": "interrupted"})]


async def live(runtime: Runtime, id: str) -> list[Range]:
    """Give what of a session counts, by what is stored of it."""
    reads = runtime._client.reads
    row = await reads.call(lambda reader: reader.row(id))
    return await reads.call(partial(live_ranges, id=id, newest=row.summary.get("rewound"), stop=row.head))


# -- What a fork is


async def test_a_fork_reads_as_its_parents_beginning_wherever_it_begins(runtime: Runtime) -> None:
    """At every number of a session with turns and calls: exactly so many events, and an open turn is closed behind."""
    async with await runtime.create_session() as parent:
        await work(parent)
        log = told(await runtime.read(parent.id))
        assert [type for _, type, _ in log].count("turn/end") == 2
        for at in range(len(log) + 1):
            async with await parent.fork(at=at) as fork:
                begun = told(await fork.read())
                assert begun[:at] == log[:at]
                assert begun[at] == (at, "session/forked", {"parent": parent.id, "at": at})
                assert [event[1:] for event in begun[at + 1 :]] == closings(log, at)
            async with await runtime.open_session(fork.id) as again:
                assert (again.interrupted, again.head) == (None, len(begun))
                async with again.turn():
                    pass
                number = (await again.read(start=len(begun), limit=1))[0].data["turn"]
                assert number == 1 + sum(type == "turn/start" for _, type, _ in log[:at])
        assert told(await runtime.read(parent.id)) == log, "the parent is as it was"


async def test_forks_of_forks_go_on_from_wherever_they_left_each_other(runtime: Runtime) -> None:
    """Each reads as one log, in which every part is the log that it came from; what comes later there stays there."""
    async with await runtime.create_session(key="root") as root:
        await work(root)
        expected = {root.id: told(await root.read())}
        for at in range(0, root.head + 1, 3):
            async with await root.fork(at=at) as child:
                await child.append("my/note", {"of": "the child"})
                await child.flush()
                expected[child.id] = told(await child.read())
                for further in range(0, child.head + 1, 4):
                    async with await runtime.fork_session(child.id, at=further) as grandchild:
                        log = told(await grandchild.read())
                        assert log[:further] == expected[child.id][:further]
                        expected[grandchild.id] = log
        await root.append("my/note", {"of": "the root, later"})
    for id, log in expected.items():
        assert told(await runtime.read(id, limit=10_000))[: len(log)] == log


async def test_a_fork_is_a_child_with_the_words_of_its_parent(runtime: Runtime, store: Path) -> None:
    """Directory, agent, title and labels are taken over unless something else is said; key and origin are not."""
    given = {"cwd": str(store), "title": "first", "labels": {"team": "red"}, "agent": "a"}
    async with await runtime.create_session(key="k", origin={"from": "x"}, **given) as parent:  # type: ignore[arg-type]
        await work(parent)
        async with await parent.fork() as same, await runtime.fork_session("k", key="f", title="", labels={}) as other:
            (first, second) = (await runtime.sessions(key="f"), await runtime.sessions(parent=parent.id, team="red"))
    (row,) = second
    assert (row.id, row.title, row.labels, row.cwd, row.agent) == (same.id, "first", {"team": "red"}, str(store), "a")
    assert (row.parent, row.parent_seq, row.key, row.origin) == (parent.id, parent.head, None, None)
    assert [(each.id, each.title, each.labels, each.key) for each in first] == [(other.id, "", {}, "f")]


async def test_a_fork_is_there_when_it_was_made(runtime: Runtime, store: Path) -> None:
    """Though nothing was appended to it: others list it, and read it."""
    async with await runtime.create_session() as parent:
        await work(parent)
        fork = await parent.fork(at=1)
        async with open_runtime(store) as other:
            assert [each.id for each in await other.sessions(limit=1)] == [fork.id]
            assert len(await other.read(fork.id)) == 2
        await fork.aclose()


async def test_everything_appended_before_a_fork_is_part_of_it(runtime: Runtime) -> None:
    """Also what nobody had flushed; a fork by id has what is durable, whoever owns the session."""
    async with await runtime.create_session() as parent:
        await parent.append("my/note", {})
        await parent.append("my/note", {})
        async with await parent.fork() as fork:
            assert fork.head == 3
        async with await runtime.fork_session(parent.id) as fork:
            assert (fork.head, [event.type for event in await fork.read(limit=2)]) == (3, ["my/note"] * 2)


async def test_deleting_the_parent_takes_nothing_from_a_fork(runtime: Runtime) -> None:
    """It is read, opened and forked as ever; only the parent can't be forked any more."""
    async with await runtime.create_session() as parent:
        await work(parent)
        async with await parent.fork(at=5) as fork:
            log = told(await fork.read())
    await runtime.delete(parent.id)
    with pytest.raises(Deleted, match=f"{parent.id} is deleted; undelete it"):
        await runtime.fork_session(parent.id)
    assert told(await runtime.read(fork.id)) == log
    async with await runtime.fork_session(fork.id, at=2) as second:
        assert told(await second.read(limit=2)) == log[:2]


# -- Forks and rewinds


async def test_what_was_rewound_in_the_parent_does_not_count_in_the_fork(runtime: Runtime) -> None:
    """What counts in a fork is what counted in its parent when it had so many events, wherever it begins."""
    async with await runtime.create_session() as parent:
        for at in (None, None, 1, None, None, 4, None, 2, None):
            if at is None:
                await parent.append("my/note", {})
            else:
                await parent.rewind(at)
        head = parent.head
        for at in range(head + 1):
            look = partial(live_ranges, id=parent.id, newest=7, stop=at)
            counted = await runtime._client.reads.call(look)
            async with await parent.fork(at=at) as fork:
                expected = [seq for start, stop in [*counted, (at, at + 1)] for seq in range(start, stop)]
                ranges = await live(runtime, fork.id)
                assert [seq for start, stop in ranges for seq in range(start, stop)] == expected


async def test_a_fork_can_be_rewound_into_its_parents_part(runtime: Runtime) -> None:
    """Also inside a turn there; the parent isn't touched, and forks of the fork go on from there."""
    async with await runtime.create_session() as parent:
        await work(parent)
        head = parent.head
        async with await parent.fork(at=head - 2) as fork:
            await fork.append("my/note", {"of": "the fork"})
            await fork.rewind(4)
            place = head - 2 + 1 + len(closings(told(await parent.read()), head - 2)) + 1
            assert [event.type for event in await fork.read(start=place)] == [
                "session/rewound",
                "tool/finished",
                "tool/finished",
                "turn/end",
            ]
            assert await live(runtime, fork.id) == [(0, 4), (place + 1, place + 4)]
            async with await fork.fork() as second:
                assert await live(runtime, second.id) == [(0, 4), (place + 1, place + 5)]
                await second.rewind(fork.head)
                assert (await live(runtime, second.id))[-1] == (place + 1, place + 4)
        assert (await live(runtime, parent.id), parent.head) == ([(0, head)], head)


# -- What is refused


@pytest.mark.shared_store(False)
async def test_a_fork_inside_an_open_turn_is_refused(runtime: Runtime) -> None:
    """It says where the turn began; up to there it can be forked meanwhile, and everywhere once the turn has ended."""
    async with await runtime.create_session() as session:
        await session.append("my/note", {})
        async with session.turn():
            await session.append("my/note", {})
            refused = "can't be forked at 3: event 1 began a turn that is open; end it first, or fork at 1 or before"
            for fork in (session.fork, partial(runtime.fork_session, session.id), partial(session.fork, at=3)):
                with pytest.raises(InvalidFork, match=refused):
                    await fork()
            async with await session.fork(at=1) as begun:
                assert begun.head == 2
        async with await session.fork() as begun:
            assert begun.head == 5
        assert len(await runtime.sessions()) == 3


@pytest.mark.shared_store(False)
async def test_a_turn_that_a_crash_left_open_is_closed_by_an_opening_and_not_by_a_fork(store: Path) -> None:
    """The fork is refused and says so, as nobody but an owner writes to a session; then it can be made."""
    program = """
import sys
from turnkeeper.actors.blocking import connect

with connect(sys.argv[1]) as runtime, runtime.open_session("k", create=True) as session, session.turn():
    session.flush()
    print(flush=True)
    sys.stdin.read()
"""
    host = start_python(program, str(store))
    try:
        read_line(host)
        kill(host.pid)
    finally:
        end_all([host])
    async with open_runtime(store) as runtime:
        with pytest.raises(InvalidFork, match="opening the session closes it, or fork at 0 or before"):
            await runtime.fork_session("k")
        async with await runtime.open_session("k") as session, await session.fork() as fork:
            assert [event.type for event in await fork.read()] == ["turn/start", "turn/end", "session/forked"]


@pytest.mark.shared_store(False)
async def test_a_fork_that_cannot_be_leaves_nothing(runtime: Runtime) -> None:
    """Beyond the end, below nothing, of nothing, of nobody: the right error, and no session more."""
    async with await runtime.create_session(key="taken") as session:
        with pytest.raises(InvalidFork, match="it has no events yet"):
            await session.fork()
        await work(session)
        head = session.head
        for wrong in (head + 1, -1, True, 1.0, "1"):
            with pytest.raises(InvalidFork, match=f"it has {head} events"):
                await session.fork(at=wrong)  # type: ignore[arg-type]
        for unknown in ("nobody", "", f"{session.id}x", "Brave Otter"):
            with pytest.raises(NotFound):
                await runtime.fork_session(unknown)
        with pytest.raises(Exists) as caught:
            await runtime.fork_session(session.id, key="taken")
        assert caught.value.id == session.id
        with pytest.raises(InvalidValue, match=r"\$\.title: a control character \(U\+0007\) at place 1"):
            await runtime.fork_session(session.id, title="a\ab")
        with pytest.raises(TooLarge, match="the label 'big' of a session has 1,000,003 bytes"):
            await runtime.fork_session(session.id, labels={"big": "x" * 1_000_000})
        async with await runtime.open_session("reserved", create=True):
            with pytest.raises(SessionBusy):
                await runtime.fork_session(session.id, key="reserved")
        assert [each.id for each in await runtime.sessions()] == [session.id]
    with pytest.raises(SessionClosed):
        await session.fork()


@pytest.mark.shared_store(False)
async def test_an_ambiguous_beginning_of_an_id_forks_nothing(runtime: Runtime) -> None:
    """The candidates are named."""
    async with await runtime.create_session() as session:
        await work(session)
        forks = [await session.fork() for _ in range(30)]
    letters = [fork.id[0] for fork in forks]
    shared = next(letter for letter in letters if letters.count(letter) > 1)
    with pytest.raises(Ambiguous) as caught:
        await runtime.fork_session(shared)
    assert len(caught.value.candidates) > 1
    assert len(await runtime.sessions(limit=100)) == 31


async def test_a_fork_keeps_its_parent(runtime: Runtime) -> None:
    """It reads there; another session can't be put in its place."""
    async with await runtime.create_session() as session, await runtime.create_session() as other:
        await work(session)
        async with await session.fork(at=2) as fork:
            with pytest.raises(ValueError, match=f"{fork.id} is a fork of {session.id}, and stays one"):
                await fork.set_parent(other.id)
            assert len(await fork.read()) == 4


# -- Deaths


@pytest.mark.shared_store(False)
async def test_a_host_killed_while_it_forks_leaves_whole_forks_only(store: Path) -> None:
    """Each that is listed reads from its beginning to its own events; the next opening finds nothing to close."""
    program = """
import sys
from turnkeeper.actors.blocking import connect

with connect(sys.argv[1]) as runtime, runtime.open_session("k", create=True) as session:
    with session.turn():
        session.tool_started("a", "bash", {})
    print(flush=True)
    while True:
        session.fork(at=2).close()
"""
    async with open_runtime(store) as runtime:
        forks: list[SessionInfo] = []
        parent = ""
        for _ in range(3):
            host = start_python(program, str(store))
            try:
                read_line(host)
                known, parent = len(forks), (await runtime.sessions(key="k"))[0].id
                while len(forks) <= known:
                    forks = await runtime.sessions(parent=parent, limit=1000)
                kill(host.pid)
            finally:
                end_all([host])
        for row in await runtime.sessions(parent=parent, limit=20):
            async with await runtime.open_session(row.id) as fork:
                assert (fork.interrupted, fork.head) == (None, 5)
                types = [event.type for event in await fork.read()]
            assert types == ["turn/start", "tool/started", "session/forked", "tool/finished", "turn/end"]


async def test_a_fork_survives_the_death_of_what_serves(runtime: Runtime, store: Path) -> None:
    """With the writer killed meanwhile it is made all the same, once."""
    async with await runtime.create_session() as session:
        await work(session)
        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(anyio.to_thread.run_sync, kill, writer_of(store)))
                async with await session.fork(at=3) as fork:
                    assert fork.head == 7
        assert len(await runtime.sessions(parent=session.id)) == 3


@pytest.mark.shared_store(False)
async def test_a_forked_child_process_cannot_fork_sessions(runtime: Runtime) -> None:
    """The connection is its parent's."""
    async with await runtime.create_session() as session:
        await work(session)
        child = os.fork()
        if child == 0:
            try:
                session.fork().send(None)
            except Exception as error:
                os._exit(7 if type(error).__name__ == "ForkedProcess" else 1)
            finally:
                os._exit(2)
        _, status = await anyio.to_thread.run_sync(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        assert len(await runtime.sessions()) == 1
