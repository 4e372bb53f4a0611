"""Simulated hosts: a program that has the store open, with some agents and a follower, until it leaves or is killed."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import trio

from turnkeeper.actors.errors import SessionClosed
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.benchmarks.chaos.notes import Note
from turnkeeper.storage.errors import StorageError

from .agent import Agent
from .notebook import MemoryNotebook
from .processes import Machine, Process

AGENTS = 2
"""Agents of one host: of several that want the same sessions."""

LIVE_SHARE = 0.6
"""How many of the followers see text before it is stored."""


@dataclass(slots=True)
class Common:
    """What outlives the processes of a story: its notes, where its followers are, which sessions are known."""

    notes: list[Note] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    known: dict[str, None] = field(default_factory=dict)
    tasks: dict[str, str] = field(default_factory=dict)
    counter: int = 0


class Host:
    """One run of a host's program, in a process of its own."""

    def __init__(self, machine: Machine, common: Common, name: str) -> None:
        self.is_leaving = trio.Event()
        self.name = name
        self._machine = machine
        self._common = common
        self.process = machine.start("host", name, self._main)

    async def _main(self, process: Process) -> None:
        machine, common = self._machine, self._common
        book = partial(MemoryNotebook, machine, process, common.notes)
        try:
            async with open_runtime(self._machine.disk.index_root, blocked_seconds=None) as runtime:
                process.dies = partial(_die, runtime)
                async with trio.open_nursery() as nursery:
                    name = f"{process.name} follower"
                    nursery.start_soon(follow, machine, runtime, book(name), self.name, common.positions)
                    names = [f"{process.name} agent {number}" for number in range(AGENTS)]
                    agents = [Agent(machine, common, runtime, book(name)) for name in names]
                    async with trio.open_nursery() as work:
                        for agent in agents:
                            work.start_soon(agent.work, self.is_leaving)
                    nursery.cancel_scope.cancel()
                book(name).leaving()
        except StorageError as error:
            book(f"{process.name} itself").failed("running", error)


async def follow(
    machine: Machine, runtime: Runtime, notes: MemoryNotebook, name: str, positions: dict[str, int]
) -> None:
    """Follow the store from where this follower was, mostly with the text that isn't stored yet."""
    following = runtime.follow(after=positions.setdefault(name, 0), ephemeral=machine.rng.random() < LIVE_SHARE)
    notes.following(name, positions[name])
    heads: dict[str, int] = {}
    while True:
        try:
            event = await anext(following)
        except SessionClosed:
            return  # the runtime was left, or its process killed
        except StorageError as error:
            notes.failed("following", error)
            continue
        if not notes.counts:
            continue
        if event.position:
            notes.followed(name, [event])
            positions[name] = event.position
            heads[event.stream] = event.seq + 1
        elif event.seq != heads.get(event.stream, event.seq):
            due = heads[event.stream]
            machine.errors.append(f"{name} saw {event.stream} live as number {event.seq}, where {due} was next")


def _die(runtime: Runtime) -> None:
    """Make everything that the program waits for end at once, without a word to anybody."""
    runtime._client.end(SessionClosed("the store"))


class Caretaker:
    """The last host of a story: opens every session once more, and closes it in order; waits for the followers."""

    def __init__(self, machine: Machine, common: Common) -> None:
        self._machine = machine
        self._common = common
        self.process = machine.start("host", "caretaker", self._main)

    async def _main(self, process: Process) -> None:
        notes = MemoryNotebook(self._machine, process, self._common.notes, process.name)
        async with open_runtime(self._machine.disk.index_root, blocked_seconds=None) as runtime:
            for task in await runtime.tasks(limit=1000):
                await runtime.task(task.id).wait(tree=True)  # the end of its records, too
            listed = await runtime.sessions(limit=1000)
            notes.listed(row.id for row in listed)
            for row in listed:
                session = await runtime.open_session(row.id)
                notes.opened(session.id, session._stream.epoch, session.head)
                page = await session.read(limit=100_000)
                notes.read(session.id, 0, page.head, page)
                await session.aclose()
                notes.closed(session.id)
            last = await runtime._client.next_position() - 1
            for name, position in self._common.positions.items():
                await self._catch_up(runtime, notes, name, position, last)

    async def _catch_up(self, runtime: Runtime, notes: MemoryNotebook, name: str, position: int, last: int) -> None:
        following = runtime.follow(after=position)
        notes.following(name, position)
        while position < last:
            event = await anext(following)
            notes.followed(name, [event])
            position = event.position
        notes.awaited(name, last)
