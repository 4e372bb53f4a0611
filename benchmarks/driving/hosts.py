"""Host processes: each opens a store through the public client, on trio or on asyncio, and flushes when it is told to.

A host has sessions of its own from its beginning to its end, in its loop or in worker processes; between bursts it does
nothing at all. What it has made before it is measured is kept from its garbage collector (`gc.freeze`), as in a host
that has run for a while.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final, Literal, TypeAlias

import anyio

from turnkeeper import Runtime, open_runtime
from turnkeeper.storage.store import Durability

from ..measuring.measured_process import StandingProcess, stand_by
from ..measuring.runs import Figures
from ..stores.contents import USUAL, EventSizes
from .loads import Load, beginning
from .sessions import DrivenSessions, open_workers

Loop: TypeAlias = Literal["trio", "asyncio"]

Drive: TypeAlias = Callable[[Load], Awaitable[Figures]]
"""Puts sessions under a load."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How a host's sessions flush: on which loop, or in so many `workers`, each a process; events of which sizes.

    `durability` is a new store's, and has to be that of one that is there.
    """

    loop: Loop = "trio"
    workers: int = 0
    sizes: EventSizes = USUAL
    durability: Durability = "fsync"

    @property
    def params(self) -> dict[str, Any]:
        """Say it as a run's parameters do."""
        where = {"where": "worker", "workers": self.workers} if self.workers else {"where": "loop"}
        return {"loop": self.loop, **where, "durability": self.durability, **self.sizes.params}


USUAL_TERMS: Final = Terms()


class LoadedProcess(StandingProcess):
    """A process whose function puts its sessions under loads, by `stand_by`."""

    def burst(self, load: Load) -> Figures:
        """Let its sessions flush under a load, and give the figures."""
        self.tell(load)
        figures: Figures = self.outcome()
        return figures


class Host(LoadedProcess):
    """A host process on `store` (a directory, or `sqlite:DIR`); when it is ready, so many sessions are open."""

    def __init__(self, store: str, sessions: int, terms: Terms = USUAL_TERMS) -> None:
        super().__init__(_be_host, store, sessions, terms)


def _be_host(starter: Connection, store: str, sessions: int, terms: Terms) -> None:
    anyio.run(_host, starter, store, sessions, terms, backend=terms.loop)


async def _host(starter: Connection, store: str, count: int, terms: Terms) -> None:
    async with open_runtime(store, durability=terms.durability) as runtime:
        drive = await _open_sessions(runtime, store, count, terms)
        await stand_by(starter, drive)


async def _open_sessions(runtime: Runtime, store: str, count: int, terms: Terms) -> Drive:
    """Open sessions here or in workers; give what puts them under a load."""
    if terms.workers:
        workers = await open_workers(runtime, store, count, terms.workers, terms.sizes)
        return workers.drive
    sessions = {number: await runtime.create_session() for number in range(count)}
    driven = DrivenSessions(sessions, terms.sizes)

    async def drive(load: Load) -> Figures:
        return (await driven.drive(load, beginning(load))).figures()

    return drive
