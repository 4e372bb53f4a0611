"""Hosts that start tasks to be measured: each in a process of its own, with a fresh store, gone with all its tasks.

A part of a benchmark is one async function that gets a `Place` and gives runs. It starts its tasks through the public
API, so each of them ends with the host, also when that is killed: whoever leaves the body of `fresh_store` waits for
this, and kills what is still there.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from turnkeeper import Runtime, open_runtime
from turnkeeper.actors.client.asking import ask_status

from ..measuring.inhabitants import clear
from ..measuring.measured_process import MeasuredProcess
from ..measuring.runs import Run, Tell

LIVES_SECONDS: Final = 600
"""How long a command that only waits does so, at most."""

IDLE_COMMAND: Final = ("sleep", str(LIVES_SECONDS))


@dataclass(frozen=True, slots=True)
class Servers:
    """The processes that keep a store and its tasks."""

    node: int
    writer: int
    spawner: int
    shims: list[int]

    @property
    def lasting(self) -> list[int]:
        """Those that no task's end ends."""
        return [self.node, self.writer, self.spawner]


class Place:
    """Where a part of a benchmark runs: a runtime whose store nobody else uses, and who hears how far it is."""

    def __init__(self, runtime: Runtime, store: Path, starter: Connection) -> None:
        self.runtime = runtime
        self.store = store
        self._starter = starter

    def tell(self, line: str) -> None:
        """Tell people what is being done."""
        self._starter.send(line)

    async def servers(self) -> Servers:
        """Ask who serves the store. There has to have been a task."""
        status = await anyio.to_thread.run_sync(ask_status, str(self.store))
        if status is None:
            raise RuntimeError(f"nobody serves {self.store}")
        return Servers(**status["pids"])

    async def start_idle(self, count: int) -> None:
        """Start so many tasks that do nothing, side by side."""
        await self.start_many([IDLE_COMMAND] * count)

    async def start_many(self, commands: list[tuple[str, ...]], lanes: int = 8) -> list[str]:
        """Start tasks, so many at a time; give their ids when all of them run."""
        started: list[str] = []

        async def start_some() -> None:
            while commands:
                task = await self.runtime.start_task(commands.pop())
                started.append(task.id)
                if len(started) % 50 == 0:
                    self.tell(f"{len(started)} tasks started")

        commands = list(commands)
        async with anyio.create_task_group() as group:
            for _ in range(lanes):
                group.start_soon(start_some)
        return started


Part = Callable[..., Awaitable[list[Run]]]
"""Measures in a `Place` by the arguments behind it."""


def measure_part(store: Path, tell: Tell, part: Part, *arguments: Any) -> list[Run]:
    """Let a new host measure a part in a new store, which is removed; raise what it raised."""
    with fresh_store(store), MeasuredProcess(_be_host, str(store), part, arguments) as host:
        while isinstance(said := host.receive(), str):
            tell(said)
        runs: list[Run] = said
        return runs


@contextmanager
def fresh_store(store: Path) -> Iterator[None]:
    """Remove a store behind the body, once all that serves it and runs its tasks has ended, or was killed."""
    try:
        yield
    finally:
        clear(store)


def _be_host(starter: Connection, store: str, part: Part, arguments: tuple[Any, ...]) -> None:
    starter.send(anyio.run(_host, starter, Path(store), part, arguments, backend="trio"))


async def _host(starter: Connection, store: Path, part: Part, arguments: tuple[Any, ...]) -> list[Run]:
    async with open_runtime(store) as runtime:
        gc.collect()
        gc.freeze()
        return await part(Place(runtime, store, starter), *arguments)
