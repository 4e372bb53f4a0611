"""How soon a message that is sent to an idle session of another process is accepted there, durably, over one flush.

The owner waits on the session's inbox, and messages are sent with pauses in which it becomes idle again. A message is
accepted when the record that says so is durable; the message itself is made durable on the way, so this is two flushes
and a wake. In turn with that, the sender flushes a session of its own, with the same pauses.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from pathlib import Path

import anyio

from turnkeeper import Runtime, Session, open_runtime

from ..driving.loads import latency_figures
from ..measuring.asked_process import AskedProcess, answer_all
from ..measuring.runs import Figures, Run, Tell, interleaved, run_of
from ..stores.contents import EVENT_DATA, EVENT_TYPE

MESSAGE_TYPE = "user/message"

PAUSE_SECONDS = 0.004
"""Between two messages, behind the answer to the first: some times as long as it takes to accept it."""

_OWNER_KEY = "the one that is sent to"


def compare_deliveries(store: Path, messages: int, rounds: int, tell: Tell) -> list[Run]:
    """Send so many messages in a round, one after the other."""
    with AskedProcess(_own, store) as owner:
        owner.wait_ready()
        with AskedProcess(_send, store) as sender:
            sender.wait_ready()

            def deliver(count: int = messages) -> Figures:
                owner.begin("accept", count)
                sent: list[float] = sender.ask("send", count)
                accepted: list[float] = owner.outcome()
                return latency_figures(end - begin for begin, end in zip(sent, accepted, strict=True))

            def flush(count: int = messages) -> Figures:
                return latency_figures(sender.ask("flush", count))

            deliver(2)
            flush(2)
            measured = interleaved(
                rounds, {"messages": deliver, "flushes": flush}, lambda line: tell(f"sending: {line}")
            )
    params = {"messages": messages, "owner": "idle, in another process", "against": "a flush"}
    return [
        run_of("send to accepted p50_ms", params, measured["messages"], measured["flushes"], compared="p50_ms"),
    ]


def _own(starter: Connection, store: Path) -> None:
    anyio.run(_accept, starter, store, backend="trio")


async def _accept(starter: Connection, store: Path) -> None:
    async with open_runtime(store) as runtime, await runtime.open_session(_OWNER_KEY, create=True) as session:
        await session.append(EVENT_TYPE, EVENT_DATA)
        await session.flush()
        inbox = session.inbox()

        async def accept(messages: int) -> list[float]:
            """Accept so many messages; give when each was accepted durably."""
            accepted = []
            for _ in range(messages):
                message = await anext(inbox)
                await message.accept()
                await session.flush()
                accepted.append(time.perf_counter())
            return accepted

        await answer_all(starter, {"accept": accept})


def _send(starter: Connection, store: Path) -> None:
    anyio.run(_send_and_flush, starter, store, backend="trio")


async def _send_and_flush(starter: Connection, store: Path) -> None:
    async with open_runtime(store) as runtime, await runtime.create_session() as session:
        await answer_all(
            starter,
            {
                "send": lambda messages: _send_all(runtime, messages),
                "flush": lambda times: _flush_all(session, times),
            },
        )


async def _send_all(runtime: Runtime, messages: int) -> list[float]:
    """Send so many messages; give when each was sent."""
    sent = []
    for _ in range(messages):
        sent.append(time.perf_counter())
        await runtime.send(_OWNER_KEY, MESSAGE_TYPE, EVENT_DATA)
        await anyio.sleep(PAUSE_SECONDS)
    return sent


async def _flush_all(session: Session, times: int) -> list[float]:
    """Append an event and flush it, so many times; give the seconds that each took."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        await session.append(EVENT_TYPE, EVENT_DATA)
        await session.flush()
        taken.append(time.perf_counter() - began)
        await anyio.sleep(PAUSE_SECONDS)
    return taken
