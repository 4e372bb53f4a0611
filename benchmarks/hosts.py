"""Host processes: each opens a store through the public client, on trio or on asyncio, and flushes when it is told to.

A host has sessions of its own from its beginning to its end; between bursts it does nothing at all. What it has made
before it is measured is kept from its garbage collector (`gc.freeze`), as in a host that has run for a while.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Literal, Self, TypeAlias

import anyio

from turnkeeper import Session, open_runtime

from .loads import EVENT_DATA, EVENT_TYPE, Load, drive_sessions
from .measured_process import MeasuredProcess
from .measuring import Figures

Loop: TypeAlias = Literal["trio", "asyncio"]

FlushSome: TypeAlias = Callable[[int, int], Awaitable[None]]
"""Appends so many events to the session of this number, and waits until they are durable."""

LEAVE_SECONDS = 10.0
"""How long a host may take to leave its store when it is no longer needed."""


class Host:
    """A host process on `store` (a directory, or `sqlite:DIR`), with so many sessions.

    Left as a context manager, it leaves the store in order; if it is in the middle of a burst it is killed.
    """

    def __init__(self, store: str, sessions: int, loop: Loop = "trio") -> None:
        self._process = MeasuredProcess(_be_host, store, sessions, loop, ending_seconds=LEAVE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.__exit__(*exception)

    def wait_ready(self) -> None:
        """Wait until its sessions are open. Raises what kept it from opening them."""
        self._process.receive()

    def burst(self, load: Load) -> Figures:
        """Let its sessions flush under a load, and give the figures."""
        self.begin(load)
        return self.figures()

    def begin(self, load: Load) -> None:
        """Let its sessions begin to flush under a load."""
        self._process.ending_seconds = 0.0  # it hears of nothing before the end of what it begins now
        self._process.send(load)

    def has_ended(self, seconds: float) -> bool:
        """Wait at most so long for the end of what was begun, and say whether it has come."""
        return self._process.has_said(seconds)

    def figures(self) -> Figures:
        """Give the figures of what was begun, when it has ended."""
        figures: Figures = self._process.receive()
        self._process.ending_seconds = LEAVE_SECONDS
        return figures


def _be_host(starter: Connection, store: str, sessions: int, loop: Loop) -> None:
    anyio.run(_host, starter, store, sessions, backend=loop)


async def _host(starter: Connection, store: str, count: int) -> None:
    async with open_runtime(store) as runtime:
        sessions = [await runtime.create_session() for _ in range(count)]
        gc.collect()
        gc.freeze()
        starter.send("ready")
        await serve_loads(starter, partial(_flush, sessions))


async def serve_loads(starter: Connection, flush: FlushSome) -> None:
    """Flush under load after load, until the starter wants nothing more, which is EOFError."""
    while True:
        await anyio.wait_readable(starter)
        load: Load = starter.recv()
        starter.send(await drive_sessions(partial(flush, load.events), load))


async def _flush(sessions: list[Session], events: int, number: int) -> None:
    """Append so many events to one of the sessions, and wait until they are durable."""
    session = sessions[number]
    for _ in range(events):
        await session.append(EVENT_TYPE, EVENT_DATA)
    await session.flush()
