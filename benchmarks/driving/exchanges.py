"""Processes that exchange messages when they are told to: our actors, and what trio and msgpack alone can do.

An exchange is one way to get messages across: told how many, it does so in one burst and gives its figures. Each one
lives in a process of its own, between bursts it does nothing. The receiver is the same everywhere: it keeps a count,
and a burst after which the count is wrong is an error and no figure.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import chdir
from functools import partial
from multiprocessing.connection import Connection
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

import anyio
import trio
from msgpack import Unpacker, packb

from turnkeeper import ActorRef, open_runtime
from turnkeeper.runtime.mailbox import MESSAGES_MAX

from ..measuring.measured_process import LEAVE_SECONDS, MeasuredProcess, StandingProcess, stand_by
from ..measuring.runs import Figures, percentile

Loop: TypeAlias = Literal["trio", "asyncio"]

TEXT = "x" * 100
"""What each message carries, and each reply to one that is asked."""

ACTOR_NAME = "taker"

_READ_BYTES = 64 * 1024
_SOCKET = "socket"

Exchange: TypeAlias = Callable[[int], Awaitable[Figures]]


class Exchanger(StandingProcess):
    """A process that runs `function(connection, *arguments)`, which stands by for bursts."""

    def burst(self, messages: int) -> Figures:
        """Let it exchange so many messages, and give the figures."""
        self.tell(messages)
        figures: Figures = self.outcome()
        return figures


class Taker:
    """The actor that is told and asked."""

    def __init__(self) -> None:
        self._taken = 0

    async def take(self, text: str) -> None:
        """Do nothing but count."""
        self._taken += 1

    async def echo(self, text: str) -> str:
        """Give it back."""
        return text

    async def taken(self) -> int:
        """Tell how many were taken since this was asked last, after all that was told before."""
        taken, self._taken = self._taken, 0
        return taken


# -- What a burst is


async def time_tells(
    messages: int, tell: Callable[[str], Awaitable[Any]], taken: Callable[[], Awaitable[int]]
) -> Figures:
    """Tell a receiver so many texts, one after another, and wait until it has taken all of them."""
    begin = time.perf_counter_ns()
    for _ in range(messages):
        await tell(TEXT)
    count = await taken()
    return tell_figures(begin, messages, count)


def tell_figures(begin_ns: int, messages: int, taken: int) -> Figures:
    """Give the figures of a burst that began then and has ended now. Raises RuntimeError where some weren't taken."""
    spent = time.perf_counter_ns() - begin_ns
    require_all(messages, taken)
    return {"us_a_tell": spent / messages / 1_000}


async def time_asks(messages: int, ask: Callable[[str], Awaitable[Any]]) -> Figures:
    """Ask for so many texts, each when the one before is there."""
    spent, right = [], 0
    for _ in range(messages):
        begin = time.perf_counter_ns()
        right += await ask(TEXT) == TEXT
        spent.append(time.perf_counter_ns() - begin)
    return ask_figures(spent, right)


def ask_figures(spent_ns: list[int], right: int) -> Figures:
    """Give the figures of asks that took so long. Raises RuntimeError where not all got the right reply."""
    require_all(len(spent_ns), right)
    return {"p50_us": median(spent_ns) / 1_000, "p99_us": percentile(spent_ns, 99) / 1_000}


def require_all(messages: int, arrived: int) -> None:
    """Raise RuntimeError if a burst lost messages."""
    if arrived != messages:
        raise RuntimeError(f"of {messages} messages {arrived} arrived")


# -- Ours


def tell_in_loop(starter: Connection, store: str, loop: Loop) -> None:
    """Tell an actor of the same loop."""
    anyio.run(_use_actor, starter, store, False, _tells, backend=loop)


def tell_worker(starter: Connection, store: str, loop: Loop) -> None:
    """Tell an actor in a worker process."""
    anyio.run(_use_actor, starter, store, True, _tells, backend=loop)


def ask_worker(starter: Connection, store: str, loop: Loop) -> None:
    """Ask an actor in a worker process."""
    anyio.run(_use_actor, starter, store, True, _asks, backend=loop)


async def _use_actor(
    starter: Connection, store: str, process: bool, exchange_with: Callable[[ActorRef], Exchange]
) -> None:
    async with open_runtime(store) as runtime:
        await stand_by(starter, exchange_with(await runtime.spawn(Taker, process=process)))


def _tells(ref: ActorRef) -> Exchange:
    return partial(time_tells, tell=partial(ref.tell, "take"), taken=partial(ref.ask, "taken"))


def _asks(ref: ActorRef) -> Exchange:
    return partial(time_asks, ask=partial(ref.ask, "echo"))


def serve_named(starter: Connection, store: str) -> None:
    """Have the actor that others ask by its name."""
    anyio.run(_serve_named, starter, store, backend="trio")


async def _serve_named(starter: Connection, store: str) -> None:
    async with open_runtime(store) as runtime:
        await runtime.spawn(Taker, name=ACTOR_NAME)
        await stand_by(starter)


def ask_named(starter: Connection, store: str, loop: Loop) -> None:
    """Ask the actor that another process serves."""
    anyio.run(_ask_named, starter, store, backend=loop)


async def _ask_named(starter: Connection, store: str) -> None:
    async with open_runtime(store) as runtime:
        ref = runtime.actor(ACTOR_NAME)
        await stand_by(starter, partial(time_asks, ask=partial(ref.ask, "echo")))


# -- What trio and msgpack alone can do


def send_through_channel(starter: Connection) -> None:
    """Send through a memory channel of trio, as long as our mailboxes are, to a task that does what our actor does."""
    trio.run(stand_by, starter, _time_sends)


async def _time_sends(messages: int) -> Figures:
    taker = Taker()
    begin = time.perf_counter_ns()
    sending, receiving = trio.open_memory_channel[str](MESSAGES_MAX)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_take_all, receiving, taker)
        async with sending:
            for _ in range(messages):
                await sending.send(TEXT)
    return tell_figures(begin, messages, await taker.taken())


async def _take_all(receiving: trio.MemoryReceiveChannel[str], taker: Taker) -> None:
    async for text in receiving:
        await taker.take(text)


def play_ping_pong(starter: Connection, directory: str) -> None:
    """Send a text in msgpack to a child process, which sends it back, over a Unix socket below a directory."""
    # Both work where the socket is: a socket's path has to be short, and the directory may lie deep.
    with (
        TemporaryDirectory(dir=directory) as place,
        chdir(place),
        MeasuredProcess(_return_pings, ending_seconds=LEAVE_SECONDS) as child,
    ):
        child.receive()
        trio.run(_play, starter)


async def _play(starter: Connection) -> None:
    async with await trio.open_unix_socket(_SOCKET) as stream:
        unpacker = Unpacker()

        async def ping(text: str) -> Any:
            await stream.send_all(packb(text))
            while True:
                for reply in unpacker:
                    return reply
                unpacker.feed(await stream.receive_some(_READ_BYTES))

        await stand_by(starter, partial(time_asks, ask=ping))


def _return_pings(starter: Connection) -> None:
    trio.run(_return_all, starter)


async def _return_all(starter: Connection) -> None:
    listening = trio.socket.socket(trio.socket.AF_UNIX)
    with listening:
        await listening.bind(_SOCKET)
        listening.listen()
        starter.send("ready")
        connection, _ = await listening.accept()
    async with trio.SocketStream(connection) as stream:
        unpacker, taker = Unpacker(), Taker()
        async for content in stream:
            unpacker.feed(content)
            for text in unpacker:
                await stream.send_all(packb(await taker.echo(text)))
