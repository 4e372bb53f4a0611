"""End to end: what a model is to see of sessions that were rewound, killed and damaged; and walks over them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from turnkeeper.actors.errors import Corrupt, NotFound
from turnkeeper.actors.reading import walking
from turnkeeper.actors.reading.messages import Message, MessageFold
from turnkeeper.actors.records import Event
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.session import Session

from ..served import end_all, kill, read_line, start_python

pytestmark = [pytest.mark.anyio, pytest.mark.shared_store]

LARGE = "x" * 300_000
both_backends = pytest.mark.parametrize("kept_by", ["journal", "sqlite"])


def in_short(messages: list[Message]) -> list[str]:
    """Tell messages by role and text, results by call and output."""
    return [
        f"{message['id']}={message.get('error') or message['output']}"
        if message["role"] == "tool"
        else f"{message['role'][0]}:{message['text'][:20]}"
        for message in messages
    ]


async def listed(session: Session) -> list[Message]:
    """Give all messages of a session that is open here."""
    return [message async for message in session.messages()]


async def seen(runtime: Runtime, id: str) -> list[Message]:
    """Give all messages of a session as anybody sees them."""
    return [message async for message in runtime.messages(id)]


# -- What counts


@both_backends
async def test_rewound_parts_are_left_out_and_come_back(runtime: Runtime) -> None:
    """Turn by turn, for the owner and for others; what was streamed and is still buffered counts for the owner."""
    async with await runtime.create_session() as session:
        for text in ("one", "two", "three"):
            async with session.turn():
                await session.append("user/message", {"text": text})
        await session.rewind(6)
        async with session.turn():
            await session.append("user/message", {"text": "instead"})
        assert in_short(await listed(session)) == ["u:one", "u:two", "u:instead"]
        await session.rewind(9)
        session.write("Hel")
        session.write("lo")
        assert in_short(await listed(session)) == ["u:one", "u:two", "u:three", "a:Hello"]
        await session.flush()
        assert await seen(runtime, session.id) == await listed(session)


@both_backends
async def test_any_course_of_events_and_rewinds_gives_the_messages_of_what_counts(runtime: Runtime) -> None:
    """Random turns and rewinds: the messages are those of the events that a plain list of what counts has."""
    random = Random(17)
    async with await runtime.create_session() as session:
        counting: dict[int, list[int]] = {0: []}
        live: list[int] = []
        for _ in range(60):
            if random.random() < 0.2:
                to = random.randrange(session.head + 1)
                first = session.head
                await session.rewind(to)
                live = [*counting[to], *range(first + 1, session.head)]
                for head in range(first + 1, session.head + 1):
                    counting[head] = [*counting[to], *range(first + 1, head)]
            else:
                first = session.head
                async with session.turn():
                    await session.append("user/message", {"text": f"at {session.head}"})
                    await session.tool_started(f"c{first}", "bash", {})
                    if random.random() < 0.7:
                        await session.tool_finished(f"c{first}", session.head)
                for head in range(first + 1, session.head + 1):
                    counting[head] = [*live, *range(first, head)]
                live = counting[session.head]
        events = {event.seq: event for event in await session.read(limit=10_000)}
        fold, expected = MessageFold(), list[Message]()
        for seq in live:
            expected += fold.fold(events[seq])
        expected += fold.end()
        assert 10 < len(expected) < session.head
        assert await listed(session) == expected
        assert await seen(runtime, session.id) == expected


HOST = """
import asyncio, sys
from turnkeeper import open_runtime

async def main():
    async with open_runtime(sys.argv[1]) as rt:
        session = await rt.create_session(key="k")
        turn = session.turn()
        await turn.__aenter__()
        await session.append("user/message", {"text": "go"})
        session.write("I run ")
        session.write("it")
        await session.tool_started("a", "bash", {"command": "make"})
        await session.append("assistant/message", {"text": "and this", "tool_calls": [{"id": "b", "name": "read"}]})
        await session.flush()
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@both_backends
@pytest.mark.shared_store(False)
async def test_a_killed_agents_session_is_well_formed_before_and_after_its_closing(
    store: Path, kept_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who only looks sees the same as the next owner, however pages fall: each call with the result of its closing."""
    kept_at = str(store) if kept_by == "journal" else f"sqlite:{store}"
    host = start_python(HOST, kept_at)
    try:
        assert read_line(host) == "ready"
        kill(host.pid)
    finally:
        end_all([host])
    expected = ["u:go", "a:I run it", "a=TOOL_OUTCOME_UNKNOWN", "a:and this", "b=TOOL_NOT_STARTED"]
    async with open_runtime(kept_at) as runtime:
        before = await seen(runtime, "k")
        assert in_short(before) == expected
        monkeypatch.setattr(walking, "PAGE_BYTES", 200)
        assert await seen(runtime, "k") == before
        assert [event async for event in runtime.events("k")] == await runtime.read("k")
        async with await runtime.open_session("k") as session:
            assert await listed(session) == before
        assert await seen(runtime, "k") == before


# -- What can't be read


async def _damaged(store: Path) -> str:
    """Make a store with a session whose fourth event is damaged and whose sixth has lost its blob; give its id."""
    async with open_runtime(store) as runtime, await runtime.create_session() as session:
        for text in ("zero", "one", "two", "three", "four"):
            await session.append("user/message", {"text": text})
            await session.flush()
        await session.append("user/message", {"text": LARGE})
        await session.append("user/message", {"text": "six"})
    segment = store / "journal" / "00000001.jsonl"
    segment.write_bytes(segment.read_bytes().replace(b'"text":"three"', b'"text":"thr##"'))
    (blob,) = [path for path in (store / "blobs").rglob("*") if path.is_file()]
    blob.unlink()
    return session.id


@pytest.mark.shared_store(False)
async def test_messages_say_what_cant_be_read_in_its_place(store: Path) -> None:
    """A damaged event and a lost blob cost themselves; the rest is there, and nothing is silent."""
    id = await _damaged(store)
    async with open_runtime(store) as runtime:
        messages = await seen(runtime, id)
        assert [message["role"] for message in messages] == ["user"] * 3 + ["gap", "user", "gap", "user"]
        gaps = [message for message in messages if message["role"] == "gap"]
        assert [(gap["seq"], gap["events"]) for gap in gaps] == [(3, 1), (5, 1)]
        assert gaps[0]["text"].startswith("1 events are missing here: ")
        assert "blob" in gaps[1]["text"]


@pytest.mark.shared_store(False)
async def test_events_raise_what_cant_be_read_and_go_on_behind_it(store: Path) -> None:
    """Corrupt names it, and whoever iterates on gets the rest."""
    id = await _damaged(store)
    async with open_runtime(store) as runtime:
        walk, found, missing = runtime.events(id, start=1), list[int](), list[Any]()
        while True:
            try:
                found.append((await anext(walk)).seq)
            except Corrupt as error:
                missing += error.missing
            except StopAsyncIteration:
                break
        assert found == [1, 2, 4, 6]
        assert missing == [(3, 1), (5, 1)]


# -- Walking


@both_backends
async def test_a_walk_gives_every_event_once_however_its_pages_fall(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored, buffered and large ones, from any number on, in pages of any size."""
    async with await runtime.create_session() as session:
        for n in range(40):
            await session.append("my/n", {"n": n, "text": LARGE if n % 13 == 5 else "x" * n})
            if n % 7 == 0:
                await session.flush()
        whole = await session.read()
        for size in (1, 300, 1000, 10_000_000):
            monkeypatch.setattr(walking, "PAGE_BYTES", size)
            assert [event async for event in session.events()] == whole
            assert [event async for event in session.events(start=33)] == whole[33:]
        await session.flush()
        assert [event.seq async for event in runtime.events(session.id, start=3)] == list(range(3, 40))
        assert [event async for event in runtime.events(session.id, start=41)] == []


async def test_a_cancelled_walk_goes_on_where_it_was(runtime: Runtime) -> None:
    """Wherever the cancellation falls, nothing is lost or given twice."""
    async with await runtime.create_session() as session:
        for n in range(10):
            await session.append("my/n", {"text": LARGE if n % 2 else "x"})
        await session.flush()
        walk, found = runtime.events(session.id), list[Event]()
        while len(found) < 10:
            with anyio.move_on_after(0):
                found.append(await anext(walk))
            if len(found) < 10:
                found.append(await anext(walk))
        assert found == await runtime.read(session.id)
        assert [event async for event in walk] == []


async def test_a_walk_over_nothing_known_is_not_found(runtime: Runtime) -> None:
    """Raised by its first step."""
    for walk in (runtime.events("nobody"), runtime.messages("nobody")):
        with pytest.raises(NotFound):
            await anext(walk)
    async with await runtime.create_session() as session:
        assert await listed(session) == []
