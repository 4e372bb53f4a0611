"""Sessions that are put under a load, through the public client: in the loop of a host, or in worker processes.

In workers they belong to actors, one a process, which open the store themselves and append where they are, as agents in
worker processes do. All begin at the same moment, which the host gives them; their latencies come back to it.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

import anyio

from turnkeeper import ActorRef, Runtime, Session, open_runtime

from ..measuring.runs import Figures
from ..stores.contents import EVENT_TYPE, Contents, EventSizes
from .loads import Load, Tally, beginning, drive_some


class DrivenSessions:
    """Sessions of this process, by their numbers, which append what `sizes` say."""

    def __init__(self, sessions: Mapping[int, Session], sizes: EventSizes) -> None:
        self._sessions = sessions
        self._contents = Contents(sizes)

    async def drive(self, load: Load, began: float) -> Tally:
        """Put as many of them under a load that begins at this moment as it is for."""
        taking_part = [number for number in self._sessions if number < load.sessions]
        return await drive_some(partial(self._flush, load.events), load, taking_part, began)

    async def _flush(self, events: int, number: int) -> None:
        """Append so many events to one of the sessions, and wait until they are durable."""
        session = self._sessions[number]
        for data in self._contents.take(number, events):
            await session.append(EVENT_TYPE, data)
        await session.flush()


async def open_workers(runtime: Runtime, store: str, sessions: int, workers: int, sizes: EventSizes) -> Workers:
    """Start so many workers that share so many sessions, and wait until these are open."""
    refs: list[ActorRef] = []
    for worker in range(workers):
        arguments = (store, worker, sessions, workers, sizes.words)
        refs.append(await runtime.spawn(SessionWorker, *arguments, process=True, blocked_seconds=None))
    return Workers(refs)


class Workers:
    """Worker processes with sessions in them."""

    def __init__(self, workers: list[ActorRef]) -> None:
        self._workers = workers

    async def drive(self, load: Load) -> Figures:
        """Put the sessions of all workers under one load."""
        all_of_them, began = Tally(load.events), beginning(load)
        async with anyio.create_task_group() as tasks:
            for worker in self._workers:
                tasks.start_soon(self._drive, worker, load, began, all_of_them)
        return all_of_them.figures()

    async def _drive(self, worker: ActorRef, load: Load, began: float, all_of_them: Tally) -> None:
        seconds, latencies = await worker.ask("drive", asdict(load), began)
        all_of_them.latencies.extend(array("d", bytes(latencies)))
        all_of_them.seconds = max(all_of_them.seconds, seconds)


class SessionWorker:
    """An actor with every `workers`-th of so many sessions, from number `worker` on."""

    def __init__(self, store: str, worker: int, sessions: int, workers: int, sizes: str) -> None:
        self._store = store
        self._numbers = range(worker, sessions, workers)
        self._sizes = EventSizes.parse(sizes)

    async def __aenter__(self) -> None:
        async with AsyncExitStack() as opened:
            runtime = await opened.enter_async_context(open_runtime(self._store, blocked_seconds=None))
            sessions = {number: await runtime.create_session() for number in self._numbers}
            self._opened = opened.pop_all()
        self._driven = DrivenSessions(sessions, self._sizes)
        gc.collect()
        gc.freeze()

    async def __aexit__(self, *error: object) -> None:
        await self._opened.aclose()

    async def drive(self, load: dict[str, Any], began: float) -> tuple[float, bytes]:
        """Put its sessions under a load; give how long that took, and each flush's seconds as doubles."""
        tally = await self._driven.drive(Load(**load), began)
        return tally.seconds, array("d", tally.latencies).tobytes()
