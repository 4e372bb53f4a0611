"""Host processes of peers that keep sessions: each sets one up on asyncio, and flushes or reads when it is told to.

They are to a peer what `driving.hosts` is to ours: one process for all its sessions, which does nothing between bursts.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

import anyio

from ..driving.hosts import LoadedProcess
from ..driving.loads import drive_sessions, latency_figures
from ..measuring.asked_process import AskedProcess, answer_all
from ..measuring.durability import Durability
from ..measuring.measured_process import stand_by
from ..measuring.runs import Figures
from ..stores.contents import USUAL, Contents, EventSizes
from .catalogue import KeeperPeer
from .keeping import Keeper, OpenKeeper

Use: TypeAlias = Callable[[Connection, Keeper], Awaitable[None]]


class KeeperHost(LoadedProcess):
    """A host process of a peer with so many sessions in a directory, which is made."""

    def __init__(self, peer: KeeperPeer, directory: Path, sessions: int, sizes: EventSizes = USUAL) -> None:
        directory.mkdir()
        use = partial(_flush, sizes=sizes)
        super().__init__(_use, peer, directory, sessions, use)

    def durability(self) -> Durability:
        """Wait until its sessions are open, and say what their flushes outlive. Raises what kept it from that."""
        found: Durability = self.wait_ready()
        return found


class KeeperReader(AskedProcess):
    """A process that has filled one session of a peer with so many events, in a directory that is made."""

    def __init__(self, peer: KeeperPeer, directory: Path, events: int) -> None:
        directory.mkdir()
        super().__init__(_use, peer, directory, 1, partial(_read, events=events))

    def read(self, times: int) -> Figures:
        """Let it read the session so often. Raises RuntimeError where an event is missing."""
        figures: Figures = self.ask("read", times)
        return figures


def _use(starter: Connection, peer: KeeperPeer, directory: Path, sessions: int, use: Use) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # connections for each session and thread
    opener: OpenKeeper = getattr(import_module(f"turnkeeper.benchmarks.peers.{peer.module}"), peer.opener)
    anyio.run(_open, starter, partial(opener, directory, sessions), use, backend="asyncio")


async def _open(starter: Connection, opener: Callable[[], AbstractAsyncContextManager[Keeper]], use: Use) -> None:
    async with opener() as keeper:
        await use(starter, keeper)


async def _flush(starter: Connection, keeper: Keeper, sizes: EventSizes) -> None:
    contents = Contents(sizes)

    async def flush(events: int, session: int) -> None:
        await keeper.flush(session, [data["text"] for data in contents.take(session, events)])

    await keeper.settle()
    await flush(1, 0)
    durability = await keeper.durability()
    await stand_by(starter, lambda load: drive_sessions(partial(flush, load.events), load), ready=durability)


async def _read(starter: Connection, keeper: Keeper, events: int) -> None:
    await keeper.fill(0, events)
    await answer_all(starter, {"read": partial(time_reads, keeper, events)})


async def time_reads(keeper: Keeper, events: int, times: int) -> Figures:
    """Read the first session so often. Raises RuntimeError where not all its events are there."""
    latencies = []
    for _ in range(times):
        began = time.perf_counter()
        found = await keeper.read(0)
        latencies.append(time.perf_counter() - began)
        if found != events:
            raise RuntimeError(f"of {events} events {found} were read")
    return latency_figures(latencies)
