"""End to end: what sessions take as events, which of them only some may add to, and how old ones are read."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.actors.blocking import connect
from turnkeeper.actors.errors import CriticalTypes, InvalidValue, SessionBusy, TooLarge
from turnkeeper.actors.records import Event
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.session import Session
from turnkeeper.storage.exact_json import decode_event
from turnkeeper.storage.store import BackendName

from ..served import SECONDS_MAX

pytestmark = pytest.mark.anyio

LARGE = "x" * 300_000
both_backends = pytest.mark.parametrize("kept_by", ["journal", "sqlite"])


def told(events: list[Event]) -> list[tuple[str, dict[str, Any]]]:
    """Give type and data of events."""
    return [(event.type, event.data) for event in events]


async def summary_of(runtime: Runtime, id: str) -> Mapping[str, Any]:
    """Give what is stored of a session beside its log."""
    return (await runtime._client.reads.call(lambda reader: reader.row(id))).summary


def stored_lines(store: Path, kept_by: BackendName) -> list[bytes]:
    """Give the lines of a closed store as they lie on disk."""
    if kept_by == "journal":
        lines = (store / "journal" / "00000001.jsonl").read_bytes().split(b"\n")
        return [line for line in lines if line.startswith(b'{"stream":')]
    with sqlite3.connect(next(store.glob("*.sqlite*"))) as database:
        found = [bytes(line) for (line,) in database.execute("SELECT line FROM events ORDER BY position")]
    database.close()
    return found


# -- What is taken


WRONG: list[tuple[str, Any, str, str]] = [
    ("user/message", {"txt": "x"}, "$.text", "must be a text, and is missing"),
    ("user/message", {"text": LARGE, "content": 1}, "$.content", "must be a list, not 1"),
    ("assistant/message", {"text": "", "tool_calls": [{"id": "a"}]}, "$.tool_calls[0].name", "is missing"),
    ("assistant/message", {"text": "", "usage": 12}, "$.usage", "must be an object, not 12"),
    ("turn/end", {"reason": "done"}, "$.reason", "must be one of completed, error, aborted, interrupted"),
    ("tool/started", {"id": "", "name": "bash"}, "$.id", "must be a text that isn't empty, not ''"),
    ("tool/started", {"id": "a", "name": "bash", "effect": "twice"}, "$.effect", "must be one of read, idempotent"),
    ("inbox/accepted", {"inbox": True}, "$.inbox", "must be an integer from 0 on, not true"),
    ("snapshot", {}, "$.state", "must be anything, and is missing"),
    ("turn/start", [1], "$", "must be an object, not a list"),
    ("turn/began", {}, "type", "no such core type"),
    ("note", {}, "type", "name/word"),
]


@both_backends
async def test_an_event_of_the_wrong_shape_is_refused_and_nothing_changes(runtime: Runtime) -> None:
    """The error names event, type and path, also for a large event and one with a key; the next takes the number."""
    async with await runtime.create_session() as session:
        for type, data, path, why in WRONG:
            for key in (None, "k"):
                with pytest.raises(InvalidValue) as caught:
                    await session.append(type, data, key=key)
                assert (caught.value.event, caught.value.type, caught.value.path) == (0, type, path)
                assert why in caught.value.why
        assert await session.append("user/message", {"text": "x"}) == 0
        await session.flush()
        assert told(await runtime.read(session.id)) == [("user/message", {"text": "x"})]


@both_backends
async def test_own_types_and_members_are_kept_byte_for_byte(store: Path, kept_by: BackendName) -> None:
    """Events of types that nobody knows, and members that no shape names, through another session's seed, too."""
    odd: list[tuple[str, dict[str, Any]]] = [
        ("zz-future/kind.v2", {"z": 1, "a": [1.50, 2**63, -0.0, None], "ü": {"\u2028": "\U0001f680"}}),
        ("user/message", {"text": "x", "zz": {"deep": [[]]}, "role": "user", "content": []}),
        ("turn/start", {"mode": "plan"}),
        ("turn/end", {"reason": "completed", "cost": 1e-7}),
        ("zz-future/large", {"text": LARGE}),
    ]
    async with open_runtime(store) as runtime:
        async with await runtime.create_session() as session:
            for type, data in odd:
                await session.append(type, data, time=1_700_000_000_000)
        events = await runtime.read(session.id)
        assert told(events) == odd
        async with await runtime.create_session(seed=events) as copy:
            await copy.flush()
            assert told(await runtime.read(copy.id)) == odd
        async with await runtime.fork_session(session.id) as fork:
            assert told(await fork.read(limit=len(odd))) == odd
    kept = {session.id: list[bytes](), copy.id: list[bytes](), fork.id: list[bytes]()}
    for line in stored_lines(store, kept_by):
        kept[decode_event(line)["stream"]].append(line[line.index(b',"type":') :].rstrip(b"\n"))
    assert kept[session.id] == kept[copy.id]
    assert len(kept[fork.id]) == 1
    assert (
        kept[session.id][0]
        == (
            ',"type":"zz-future/kind.v2","data":{"z":1,"a":[1.5,9223372036854775808,-0.0,null],"ü":{"\u2028":"\U0001f680"}}}'
        ).encode()
    )


# -- Registration


async def test_a_registered_check_refuses_at_append(runtime: Runtime) -> None:
    """The program's own words, and nothing appended."""

    def check(data: Mapping[str, Any]) -> None:
        if data.get("page", 0) < 1:
            raise ValueError("pages count from 1")

    runtime.register("note/seen", check=check)
    async with await runtime.create_session() as session:
        with pytest.raises(InvalidValue, match=r"event 0 \(note/seen\) at \$: pages count from 1"):
            await session.append("note/seen", {"page": 0})
        assert await session.append("note/seen", {"page": 1}) == 0


@both_backends
async def test_a_session_with_a_critical_type_opens_only_for_who_knows_it(store: Path) -> None:
    """Once it was appended, however; reading is for everybody, a refused opening changes nothing, takeover or not."""
    async with open_runtime(store) as knowing, open_runtime(store) as other:
        knowing.register("acme/ledger", critical=True)
        knowing.register("acme/note")
        async with await knowing.create_session(key="k") as session:
            await session.append("acme/note", {})
            await session.flush()
        async with await other.open_session("k") as session:
            await session.append("user/message", {"text": "no ledger yet"})
        async with await knowing.open_session("k") as session:
            await session.append("acme/ledger", {"n": 1}, key="once")
            await session.append("acme/ledger", {"n": 2})
            await session.flush()
            assert (await summary_of(other, session.id))["critical"] == ["acme/ledger"]
            before = await other._client.reads.call(lambda reader: reader.row(session.id))
            for options in ({}, {"takeover": True}, {"create": True}):
                with pytest.raises(CriticalTypes, match=r"register: acme/ledger") as caught:
                    await other.open_session("k", **options)
                assert (caught.value.session, caught.value.types) == (session.id, ["acme/ledger"])
            assert await other._client.reads.call(lambda reader: reader.row(session.id)) == before
            assert [event.data for event in await other.read("k", start=2)] == [{"n": 1}, {"n": 2}]
            other.register("acme/ledger")
            with pytest.raises(SessionBusy):
                await other.open_session("k")
        async with await other.open_session("k"):
            pass
        with pytest.raises(CriticalTypes):
            async with open_runtime(knowing._client.path) as third:
                await third.fork_session("k", at=1)


@both_backends
async def test_older_events_are_read_as_the_present_version(store: Path, kept_by: BackendName) -> None:
    """By reads, iteration, following and messages of who registered upgrades; stored bytes and others' reads stay."""

    def second(data: dict[str, Any]) -> dict[str, Any]:
        return {"pages": [data["page"]], **({"large": data["large"]} if "large" in data else {})}

    async with open_runtime(store) as old, await old.create_session(key="k") as session:
        await session.append("note/seen", {"page": 1})
        await session.append("note/seen", {"page": 2, "large": LARGE})
    before = stored_lines(store, kept_by)
    async with open_runtime(store) as new, open_runtime(store) as raw:
        new.register("note/seen", version=2, upgrades={1: second})
        upgraded = [{"pages": [1]}, {"pages": [2], "large": LARGE}, {"pages": [3, 4]}]
        async with await new.open_session("k") as session:
            await session.append("note/seen", {"pages": [3, 4]})
            assert [event.data for event in await session.read()] == upgraded
            assert [event.data async for event in session.events()] == upgraded
            await session.flush()
            assert (await summary_of(new, session.id))["schemas"] == {"note/seen": [[2, 2]]}
            for at, own in ((2, [[2, 3]]), (3, [[2, 2]])):
                async with await session.fork(at=at) as fork:
                    await fork.append("note/seen", {"pages": [9]})
                    await fork.flush()
                    notes = [event.data for event in await new.read(fork.id) if event.type == "note/seen"]
                    assert notes == [*upgraded[:at], {"pages": [9]}]
                    assert (await summary_of(new, fork.id))["schemas"] == {"note/seen": own}
        assert [event.data for event in await new.read("k")] == upgraded
        assert [event.data async for event in new.events("k", start=1)] == upgraded[1:]
        following = new.follow("k", after=0)
        with anyio.fail_after(SECONDS_MAX):
            assert [(await anext(following)).data for _ in range(3)] == upgraded
        stored = [{"page": 1}, {"page": 2, "large": LARGE}, {"pages": [3, 4]}]
        assert [event.data for event in await raw.read("k")] == stored
    assert stored_lines(store, kept_by)[: len(before)] == before


async def test_going_back_to_an_older_version_is_noted_too(store: Path) -> None:
    """Two programs of different versions take turns; each event is read as what it is."""
    async with open_runtime(store) as newer, open_runtime(store) as older:
        newer.register("my/n", version=2, upgrades={1: lambda data: {"twice": 2 * data["once"]}})
        older.register("my/n")
        for runtime, data in [(older, {"once": 1}), (newer, {"twice": 4}), (older, {"once": 3}), (newer, {"twice": 8})]:
            async with await runtime.open_session("k", create=True) as session:
                await session.append("my/n", data)
        assert [event.data["twice"] for event in await newer.read("k")] == [2, 4, 6, 8]
        assert (await summary_of(newer, "k"))["schemas"] == {"my/n": [[2, 1], [1, 2], [2, 3]]}


async def test_an_upgrade_that_fails_is_told_where_it_was_asked_for(runtime: Runtime) -> None:
    """The event's number, and the program's own exception as the cause."""
    runtime.register("my/n", version=2, upgrades={1: lambda data: {"x": data["gone"]}})
    async with open_runtime(runtime._client.path) as other, await other.create_session() as session:
        await session.append("my/n", {})
    with pytest.raises(InvalidValue, match=r"event 0 \(my/n\) at \$: its upgrade from version 1 failed") as caught:
        await runtime.read(session.id)
    assert isinstance(caught.value.__cause__, KeyError)


async def test_what_the_summary_has_no_room_for_is_refused_as_the_event_comes(runtime: Runtime) -> None:
    """Also beside a large header: the event is refused, by its size, and the session goes on."""
    names = [f"acme/{'n' * 60}-{number}" for number in range(16)]
    for name in names:
        runtime.register(name, critical=True)

    async def refusal(session: Session) -> str:
        for name in names[session.head :]:
            try:
                await session.append(name, {})
            except TooLarge as error:
                return error.what
        return ""

    async with await runtime.create_session(title="t" * 2900) as session:
        assert await refusal(session) == "the session's header and what its first events add to it"
        first = session.head
        await session.flush()
        assert f"critical and versioned types, with {names[14]}" in await refusal(session)
        await session.flush()
        assert 0 < first < len(await runtime.read(session.id)) == session.head == 14


# -- Without an event loop


def test_the_blocking_names_do_the_same(store: Path) -> None:
    """Register, append, iterate, snapshot and fold, from a plain program."""
    with connect(store) as rt:
        rt.register("my/n", version=2, upgrades={1: lambda data: {"n": data["old"]}})
        with rt.create_session() as session:
            with session.turn():
                session.append("user/message", {"text": "hi"})
                session.append("my/n", {"n": 1})
            assert session.snapshot({"sum": 1}) == 4
            last = session.last_snapshot()
            assert last is not None
            assert (last.seq, last.state) == (4, {"sum": 1})
            assert [event.type for event in session.events(start=2)] == ["my/n", "turn/end", "snapshot"]
            session.flush()
        assert [event.seq for event in rt.events(session.id)] == [0, 1, 2, 3, 4]
        for messages in (session.messages(), rt.messages(session.id)):
            assert list(messages) == [{"role": "user", "seq": 1, "text": "hi"}]
