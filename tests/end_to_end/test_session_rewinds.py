"""End to end: rewinding sessions of a real store, a journal on trio, and SQLite on asyncio."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest

from turnkeeper.actors.errors import Fenced, SessionClosed, TurnOpen
from turnkeeper.actors.reading.rewinds import Range, live_ranges
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.session import Session

from ..conversations import told
from ..served import end_all, kill, read_line, start_python

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize(("anyio_backend", "kept_by"), [("trio", "journal"), ("asyncio", "sqlite")]),
    pytest.mark.shared_store,
]


async def noted(session: Session, count: int) -> None:
    """Append so many events."""
    for _ in range(count):
        await session.append("my/note", {})


async def live(runtime: Runtime, id: str) -> list[Range]:
    """Give what of a session counts, by what is stored of it."""
    reads = runtime._client.reads
    row = await reads.call(lambda reader: reader.row(id))
    look = partial(live_ranges, id=id, newest=row.summary.get("rewound"), stop=row.head)
    return await reads.call(look)


async def test_a_rewind_is_a_record_and_destroys_nothing(runtime: Runtime) -> None:
    """It names the one before it, is durable when it returns, in later openings too, and everything can be read."""
    async with await runtime.create_session() as session:
        await noted(session, 5)
        await session.rewind(2)
        assert told(await runtime.read(session.id, start=5)) == [(5, "session/rewound", {"to": 2, "previous": None})]
    async with await runtime.open_session(session.id) as session:
        await session.append("my/note", {})
        await session.rewind(4)
        await session.rewind(8)
        assert session.head == 9
        log = await session.read()
    assert [event.seq for event in log] == list(range(9))
    assert [event.data for event in log[7:]] == [{"to": 4, "previous": 5}, {"to": 8, "previous": 7}]
    assert await live(runtime, session.id) == [(0, 4)]


async def test_a_turn_that_was_open_at_that_place_is_closed_behind_the_record(runtime: Runtime) -> None:
    """With a result for the call that had none then; the next turn goes on counting."""
    async with await runtime.create_session() as session:
        async with session.turn(), session.tool("a", "bash", {}) as call:
            await call.finish("done")
        await session.rewind(2)
        assert told(await session.read(start=4)) == [
            (4, "session/rewound", {"to": 2, "previous": None}),
            (5, "tool/finished", {"id": "a", "output": None, "error": "TOOL_OUTCOME_UNKNOWN"}),
            (6, "turn/end", {"turn": 1, "reason": "interrupted"}),
        ]
        async with session.turn():
            pass
        assert told(await session.read(start=7, limit=1)) == [(7, "turn/start", {"turn": 2})]
    assert await live(runtime, session.id) == [(0, 2), (5, 9)]
    async with await runtime.open_session(session.id) as again:
        assert again.interrupted is None


async def test_a_rewind_that_cannot_be_changes_nothing(runtime: Runtime) -> None:
    """Past the end, below nothing, to no number, within a turn, after a close: each says what is wrong."""
    async with await runtime.create_session() as session:
        await noted(session, 3)
        for wrong in (4, -1, True, 1.0, "1", None):
            with pytest.raises(ValueError, match=rf"{session.id} has 3 events; it can be rewound to 0 to 3, not to "):
                await session.rewind(wrong)  # type: ignore[arg-type]
        async with session.turn():
            with pytest.raises(TurnOpen) as caught:
                await session.rewind(1)
            assert caught.value.seq == 3
        assert (session.head, await live(runtime, session.id)) == (5, [(0, 5)])
    with pytest.raises(SessionClosed):
        await session.rewind(1)
    assert (await runtime.read(session.id)).head == 5


async def test_an_owner_that_was_overtaken_cannot_rewind(runtime: Runtime) -> None:
    """It is fenced, and the record isn't stored."""
    async with await runtime.create_session() as session:
        await noted(session, 3)
        await session.flush()
        async with await runtime.open_session(session.id, takeover=True):
            with pytest.raises(Fenced):
                await session.rewind(1)
        assert (await runtime.read(session.id)).head == 3


async def test_appends_at_the_same_time_come_before_or_behind_a_rewind(runtime: Runtime) -> None:
    """None gets between the record and what closes the turn that was open there."""
    async with await runtime.create_session() as session:
        async with session.turn():
            await noted(session, 1)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(noted, session, 2)
                tasks.start_soon(session.rewind, 1)
        log = await session.read()
    places = [event.seq for event in log if event.type == "session/rewound"]
    assert len(places) == 5
    assert [log[place + 1].type for place in places] == ["turn/end"] * 5
    assert [log[place].data["previous"] for place in places] == [None, *places[:-1]]


async def test_a_seed_with_rewinds_counts_as_the_session_did(runtime: Runtime) -> None:
    """Also where only a part of it is taken, and so every number is another."""
    async with await runtime.create_session() as first:
        await noted(first, 4)
        await first.rewind(2)
        await noted(first, 1)
        await first.rewind(4)
        await noted(first, 1)
    events = await runtime.read(first.id)
    async with (
        await runtime.create_session(seed=events) as whole,
        await runtime.create_session(seed=events[1:]) as part,
    ):
        await whole.flush()
        await part.flush()
        assert await live(runtime, whole.id) == await live(runtime, first.id) == [(0, 4), (7, 8)]
        assert await live(runtime, part.id) == [(0, 3), (6, 7)]
        assert told(await part.read(start=5, limit=1)) == [(5, "session/rewound", {"to": 3, "previous": 3})]


async def test_a_host_killed_in_a_rewind_leaves_it_done_or_not(store: Path) -> None:
    """The record and what closes the turn are one: a kill at any moment leaves both or none."""
    program = """
import sys
from turnkeeper.actors.blocking import connect

with connect(sys.argv[1]) as runtime, runtime.open_session("k", create=True) as session:
    with session.turn():
        session.tool_started("a", "bash", {})
    print(session.head, flush=True)
    while True:
        session.rewind(1)
        session.append("my/note", {})
"""
    async with open_runtime(store) as runtime:
        for number in range(3):
            host = start_python(program, str(store))
            try:
                read_line(host)
                await anyio.sleep(0.002 * number)
                kill(host.pid)
            finally:
                end_all([host])
            async with await runtime.open_session("k") as session:
                assert session.interrupted is None
                log = await session.read(limit=100_000)
            types = [event.type for event in log]
            assert [types[place + 1] for place, type in enumerate(types) if type == "session/rewound"] == [
                "turn/end"
            ] * types.count("session/rewound")
