"""End to end: sessions go on when node and writer die, or their store is gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest

from turnkeeper.actors.errors import StoreMissing
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.session import Session

from ..conversations import say
from ..served import LOOPS_AND_STORES, SECONDS_MAX, kill, node_of, writer_of

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES]


@pytest.mark.parametrize("victim", ["writer", "node", "both"])
async def test_nothing_is_lost_or_repeated_when_what_serves_dies(runtime: Runtime, store: Path, victim: str) -> None:
    """Appends go on through three deaths, flushes return when it is durable, and the log is as it was appended."""

    async def append_until(session: Session, stop: anyio.Event) -> int:
        count = 0
        while not stop.is_set():
            await session.append("my/n", {"n": count})
            await session.flush()
            count += 1
        return count

    async def run(session: Session, stop: anyio.Event, counts: dict[str, int]) -> None:
        counts[session.id] = await append_until(session, stop)

    stop = anyio.Event()
    counts: dict[str, int] = {}
    sessions = [await runtime.create_session() for _ in range(5)]
    with anyio.fail_after(SECONDS_MAX):
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(run, session, stop, counts)
            for _ in range(3):
                await say(sessions[0], "going")
                if victim != "node":
                    await anyio.to_thread.run_sync(lambda: kill(writer_of(store)))
                if victim != "writer":
                    await anyio.to_thread.run_sync(lambda: kill(node_of(store)))
                await say(sessions[0], "again")
            stop.set()
    for session in sessions:
        log = await runtime.read(session.id, limit=1_000_000)
        assert [event.seq for event in log] == list(range(session.head))
        numbers = [event.data["n"] for event in log if event.type == "my/n"]
        assert numbers == list(range(counts[session.id]))
        await session.aclose()


async def test_a_reservation_survives_the_death_of_what_serves(runtime: Runtime, store: Path) -> None:
    """A new session that had no event yet is the same session afterwards, key and all."""
    async with await runtime.create_session(key="k") as session:
        await anyio.to_thread.run_sync(kill, writer_of(store))
        with anyio.fail_after(SECONDS_MAX):
            await say(session, "first")
        assert (await runtime.read("k"))[0].stream == session.id


async def test_a_store_that_is_gone_is_told_to_who_waits(store: Path) -> None:
    """Its flush raises, and keeps its events; leaving is an error too, and takes no longer than it may."""

    async def lose_the_store() -> None:
        async with open_runtime(store) as runtime:
            session = await runtime.create_session()
            await say(session, "one")
            for pid in (node_of(store), writer_of(store)):
                await anyio.to_thread.run_sync(kill, pid)
            shutil.rmtree(store)
            await session.append("user/message", {"text": "two"})
            await session.flush()

    with anyio.fail_after(SECONDS_MAX):
        with pytest.raises(StoreMissing):
            await lose_the_store()
