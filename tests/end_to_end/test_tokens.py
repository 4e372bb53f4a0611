"""End to end: text that is written token by token, on trio and asyncio, on the journal and on SQLite."""

from __future__ import annotations

import gc
import os
import random
import signal
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from turnkeeper.actors.client import link as link_module
from turnkeeper.actors.errors import Fenced, ForkedProcess, SessionClosed
from turnkeeper.actors.records import Event
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime

from ..served import LOOPS_AND_STORES, SECONDS_MAX, end_all, kill, read_line, start_python, writer_of

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES, pytest.mark.shared_store]

CHUNK = "assistant/chunk"


def written(events: list[Event]) -> str:
    """Give the text of chunks."""
    return "".join(event.data["text"] for event in events if event.type == CHUNK)


def told(events: list[Event]) -> list[tuple[str, Any]]:
    """Give types, and texts where there are any."""
    return [(event.type, event.data.get("text")) for event in events]


async def test_ten_thousand_tokens_are_tens_of_lines_and_none_is_lost(runtime: Runtime) -> None:
    """While the loop goes on; after the flush every process reads what was written, in order."""
    tokens = [f" {number}" for number in range(10_000)]
    async with await runtime.create_session() as session:
        for number, token in enumerate(tokens):
            session.write(token)
            if number % 50 == 0:
                await anyio.lowlevel.checkpoint()
        position = await session.flush()
        events = await runtime.read(session.id)
    assert written(events) == "".join(tokens)
    assert 10 <= len(events) <= 100
    assert events[-1].position == position


@pytest.mark.shared_store(False)
async def test_text_that_nobody_flushed_is_stored_by_itself(runtime: Runtime) -> None:
    """Write-behind: a follower sees it as an event, though nothing asked for it."""
    async with await runtime.create_session() as session:
        session.write("al")
        session.write("one")
        with anyio.fail_after(SECONDS_MAX):
            event = await anext(runtime.follow(after=0))
    assert (event.stream, event.seq, event.data) == (session.id, 0, {"text": "alone"})


async def test_a_session_reads_what_it_wrote_before_it_is_durable(runtime: Runtime) -> None:
    """As an event with its number; what is written later is another one."""
    async with await runtime.create_session() as session:
        session.write("a")
        assert told(await session.read()) == [(CHUNK, "a")]
        session.write("b")
        assert (session.head, told(await session.read(last=1))) == (1, [(CHUNK, "b")])


async def test_text_stands_before_whatever_is_called_after_it(runtime: Runtime) -> None:
    """Before events, tools, the ends of calls and turns, and the session's own."""
    async with await runtime.create_session() as session:
        async with session.turn():
            session.write("1")
            await session.append("my/type", {"text": "2"})
            session.write("3")
            async with session.tool("a", "bash", {}):
                session.write("4")
            session.write("5")
        session.write("6")
    assert told(await runtime.read(session.id)) == [
        ("turn/start", None),
        (CHUNK, "1"),
        ("my/type", "2"),
        (CHUNK, "3"),
        ("tool/started", None),
        (CHUNK, "4"),
        ("tool/finished", None),
        (CHUNK, "5"),
        ("turn/end", None),
        (CHUNK, "6"),
    ]


async def test_a_body_that_fails_or_is_cancelled_keeps_what_it_wrote(runtime: Runtime) -> None:
    """The text stands before the turn's end, and the exception passes unchanged."""
    session = await runtime.create_session()

    async def fail() -> None:
        async with session.turn():
            session.write("before the error")
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fail()
    with anyio.CancelScope() as scope:
        async with session.turn():
            session.write("before the cancellation")
            scope.cancel()
            await anyio.sleep_forever()
    events = told(await runtime.read(session.id))
    assert events[1:3] == [(CHUNK, "before the error"), ("turn/end", None)]
    assert events[4:] == [(CHUNK, "before the cancellation"), ("turn/end", None)]
    await session.aclose()


async def test_what_was_written_outlives_the_runtime_and_a_forgotten_session(store: Path) -> None:
    """Nobody flushed, one session wasn't even closed: all of it is stored when the runtime is left."""
    async with open_runtime(store) as runtime:
        closed = await runtime.create_session(key="closed")
        closed.write("of a session that is left open")
        forgotten = await runtime.create_session(key="forgotten")
        forgotten.write("of a session that nobody has")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del forgotten
            gc.collect()
    async with open_runtime(store) as runtime:
        assert written(await runtime.read("closed")) == "of a session that is left open"
        assert written(await runtime.read("forgotten")) == "of a session that nobody has"


@pytest.mark.parametrize("seed", range(3))
async def test_the_order_of_events_is_the_order_of_calls(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Several tasks write, append, append once for a key, append what spills, flush, are cancelled, with a tiny buffer.

    Whatever makes calls wait, tokens and events are stored in the order in which the calls were made.
    """
    chance = random.Random(seed)
    calls: list[str] = []
    missing: set[str] = set()
    monkeypatch.setattr(link_module, "BUFFER_BYTES_MAX", 3_000)

    async def append(label: str, size: int, key: str | None) -> None:
        calls.append(label)
        missing.add(label)
        await session.append("my/type", {"label": label, "filling": "x" * size}, key=key)
        missing.discard(label)

    async def work(name: str) -> None:
        for number in range(60):
            label = f"{name}{number};"
            kind = chance.choices(["write", "append", "key", "spill", "flush", "cancel"], [60, 12, 8, 2, 6, 4])[0]
            if kind == "write":
                calls.append(label)
                session.write(label, channel=chance.choice(["text", "text", "text", "thinking"]))
            elif kind == "flush":
                await session.flush()
            elif kind == "cancel":
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await append(label, 10, None)
            else:
                await append(
                    label, 300_000 if kind == "spill" else chance.randrange(2_000), label if kind == "key" else None
                )
            if chance.random() < 0.5:
                await anyio.lowlevel.checkpoint()

    with anyio.fail_after(SECONDS_MAX):
        async with await runtime.create_session() as session, anyio.create_task_group() as tasks:
            for name in "abc":
                tasks.start_soon(work, name)
    found: list[str] = []
    for event in await runtime.read(session.id, limit=10_000):
        found += event.data["text"].split(";")[:-1] if event.type == CHUNK else [event.data["label"].rstrip(";")]
    stored = set(found)
    assert missing, "no call was cancelled"
    assert found == [call.rstrip(";") for call in calls if call not in missing or call.rstrip(";") in stored]


async def test_a_flush_waits_for_text_behind_calls_that_wait(runtime: Runtime, store: Path) -> None:
    """The writer is stopped while a keyed event is on its way: text behind it is durable when the flush returns."""
    async with await runtime.create_session() as session:
        await session.append("my/type", {})
        await session.flush()
        writer = writer_of(store)
        os.kill(writer, signal.SIGSTOP)
        try:
            with anyio.fail_after(SECONDS_MAX):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(partial(session.append, "my/type", {"text": "keyed"}, key="k"))
                    await anyio.wait_all_tasks_blocked()
                    session.write("behind it")
                    with anyio.move_on_after(0.05) as scope:
                        await session.flush()
                    assert scope.cancelled_caught
                    os.kill(writer, signal.SIGCONT)
                    await session.flush()
                    assert told(await runtime.read(session.id, start=1)) == [("my/type", "keyed"), (CHUNK, "behind it")]
        finally:
            os.kill(writer, signal.SIGCONT)


async def test_a_close_among_calls_that_wait_keeps_the_text_within_its_turn(runtime: Runtime, store: Path) -> None:
    """What was written stands before the turn's end; the call that came after the close is refused."""
    session = await runtime.create_session()
    await session.append("turn/start", {})
    await session.flush()
    refused: list[Exception] = []

    async def append_too_late() -> None:
        try:
            await session.append("my/type", {"text": "too late"})
        except SessionClosed as error:
            refused.append(error)

    writer = writer_of(store)
    os.kill(writer, signal.SIGSTOP)
    try:
        with anyio.fail_after(SECONDS_MAX):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(session.append, "my/type", {"text": "keyed"}, key="k"))
                await anyio.wait_all_tasks_blocked()
                session.write("behind it")
                tasks.start_soon(session.aclose)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(append_too_late)
                await anyio.wait_all_tasks_blocked()
                os.kill(writer, signal.SIGCONT)
    finally:
        os.kill(writer, signal.SIGCONT)
    assert len(refused) == 1
    events = told(await runtime.read(session.id, start=1))
    assert events == [("my/type", "keyed"), (CHUNK, "behind it"), ("turn/end", None)]


async def test_fifty_flushes_of_one_session_share_a_commit(runtime: Runtime, store: Path) -> None:
    """Those that come while one is on its way are one more, with everything that was written meanwhile."""
    client = runtime._client

    async def batches() -> int:
        reply = await client.answered(client.link.ask({"op": "statistics"}, for_caller=True))
        count: int = reply["batches"]
        return count

    async def write(number: int) -> None:
        session.write(f"{number};")
        await session.flush()

    async with await runtime.create_session() as session:
        await write(-1)
        before = await batches()
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(write, number)
        assert await batches() - before <= 3
        assert sorted(written(await runtime.read(session.id)).split(";")[1:-1], key=int) == [str(n) for n in range(50)]


async def test_who_lost_the_session_or_closed_it_writes_no_more(store: Path) -> None:
    """The call raises, and what was lost is counted; the new owner's text is the only one behind what was stored."""
    async with open_runtime(store) as runtime, open_runtime(store) as other:
        old = await runtime.create_session()
        old.write("stored")
        await old.flush()
        async with await other.open_session(old.id, takeover=True) as new:
            old.write("too late")
            with pytest.raises(Fenced):
                await old.flush()
            with pytest.raises(Fenced):
                old.write("again")
            assert old.not_stored == range(1, 2)
            new.write("new")
            await new.flush()
            assert written(await runtime.read(old.id)) == "storednew"
        with pytest.raises(SessionClosed):
            new.write("closed")
        await old.aclose()


async def test_a_forked_child_writes_nothing(runtime: Runtime) -> None:
    """It is told whose session that is; the parent's text is stored once."""
    async with await runtime.create_session() as session:
        session.write("the parent's")
        child = os.fork()
        if child == 0:
            try:
                session.write("by the child")
            except ForkedProcess:
                os._exit(7)
            finally:
                os._exit(1)
        _, status = await anyio.to_thread.run_sync(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        await session.flush()
        assert written(await runtime.read(session.id)) == "the parent's"


WRITING = """
import random, sys
import anyio
from turnkeeper.actors.runtime_opening import open_runtime

async def main(store, key, seed):
    chance = random.Random(seed)
    async with open_runtime(store) as runtime, await runtime.open_session(key, create=True) as session:
        number = 0
        while True:
            kind = chance.choices(["write", "append", "flush", "pause"], [90, 3, 2, 5])[0]
            if kind == "write":
                session.write(f"{number};", channel=chance.choice(["text", "text", "text", "thinking"]))
                number += 1
            elif kind == "append":
                await session.append("my/type", {"text": f"{number};"})
                number += 1
            elif kind == "flush":
                await session.flush()
                print(number, flush=True)
            else:
                await anyio.sleep(0.0005)

anyio.run(main, *sys.argv[1:4], backend=sys.argv[4])
"""


async def kill_while_writing(runtime: Runtime, store: Path, loop: str, seed: int) -> None:
    """Kill a host at a random moment, see what it had been promised, and what is in its session."""
    chance = random.Random(seed)
    key = f"killed {seed}"
    host = start_python(WRITING, str(store), key, str(seed), loop)
    try:
        flushed = int(await anyio.to_thread.run_sync(read_line, host))
        await anyio.sleep(chance.uniform(0, 0.3))
        kill(host.pid)
        assert host.stdout is not None
        flushed = max([flushed, *map(int, host.stdout.read().split("\n")[:-1])])
    finally:
        end_all([host])
    async with await runtime.open_session(key) as session:
        events = await session.read(limit=1_000_000)
    assert [event.seq for event in events] == list(range(len(events)))
    found = [int(number) for event in events for number in event.data["text"].split(";")[:-1]]
    assert found == list(range(len(found)))
    assert len(found) >= flushed
    assert all(event.data["text"].endswith(";") for event in events)


async def test_a_host_killed_while_it_writes_loses_nothing_it_had_flushed(
    runtime: Runtime, store: Path, anyio_backend_name: str
) -> None:
    """The log has the beginning of what was written, in whole tokens and in order, and at least what was flushed."""
    for seed in range(3):
        await kill_while_writing(runtime, store, anyio_backend_name, seed)


@pytest.mark.long
async def test_a_host_killed_fifty_times_while_it_writes(
    runtime: Runtime, store: Path, anyio_backend_name: str
) -> None:
    """The long form."""
    for seed in range(100, 150):
        await kill_while_writing(runtime, store, anyio_backend_name, seed)
