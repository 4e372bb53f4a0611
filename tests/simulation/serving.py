"""Simulated nodes and writers: the real ones, in simulated processes, which may die at each step that they take."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import trio

from turnkeeper.actors import protocol
from turnkeeper.actors.node.node import Node
from turnkeeper.actors.writer.writer import FAILED_EXIT_CODE, Writer
from turnkeeper.runtime.identity import is_gone
from turnkeeper.storage.backend import open_backend
from turnkeeper.storage.errors import Failed, IndexFailed
from turnkeeper.storage.store import describe

from ..simulated_disk import Death
from .processes import PROCESS, Machine, Process
from .sockets import SimulatedListener

_BUSY, _READY = b"busy", b"ready"


# -- The writer


class SimulatedWriter(Writer):
    """The real writer, which commits when it is its turn."""

    machine: Machine

    async def _commit_all(self) -> None:
        """Commit and answer what is queued, turn by turn, until the end was ordered and nothing is queued."""
        while True:
            await self._work.wait()
            if self._queue:
                await self.machine.turn("commits what is queued")
                await do_or_die(self.machine, lambda: self._commit(self._take_queued()))
            if not self._queue:
                if self._ending:
                    break
                self._work = trio.Event()

    async def _obey_stdin(self) -> None:
        await PROCESS.get().stdin_ended.wait()
        await self.machine.turn("hears that it is to end")
        self._end()

    async def _obey_term(self) -> None:
        await trio.sleep_forever()


async def do_or_die(machine: Machine, action: Callable[[], Any]) -> Any:
    """Do something to the disk; the process may die in the middle of it, or end because it failed."""
    process = PROCESS.get()
    try:
        return action()
    except Death:
        machine.die()
    except Exception as error:
        machine.tell(f"{process.name} fails: {error!r:.200}, and ends")
        machine.note_failure(error)
        is_of_disk = isinstance(error, Failed | OSError) and not isinstance(error, IndexFailed)
        machine.end(process, FAILED_EXIT_CODE if is_of_disk else protocol.INDEX_FAILED_EXIT_CODE)
    await trio.sleep_forever()
    raise AssertionError


async def _be_writer(process: Process, *, machine: Machine, distrust_index: bool) -> None:
    """Open the store when it is the process's turn, and serve it."""
    await machine.turn("opens the journal" + (", and distrusts its index" if distrust_index else ""))
    root = str(machine.disk.index_root)
    opened = partial(
        open_backend,
        root,
        boot=f"boot-{machine.boot}",
        is_gone=is_gone,
        holder={"pid": process.pid},
        distrust_index=distrust_index,
        fs=machine.disk,
        clock=lambda: machine.time_ns() // 1_000_000,
    )
    backend = await do_or_die(machine, opened)
    machine.note_opening(backend.report)
    process.say(json.dumps({"op": protocol.SERVING, "report": {}}).encode() + b"\n")
    listener: Any = machine.listeners[protocol.WRITER_SOCKET]
    listener.holders.append(process)
    writer = SimulatedWriter(backend, listener, root, describe(root).store, f"boot-{machine.boot}")
    writer.machine = machine
    backend_close, backend.close = backend.close, lambda: None
    await writer.run()
    await do_or_die(machine, backend_close)


def start_writer(machine: Machine, path: str, store: str, *, distrust_index: bool, **_: object) -> Process:
    """Start the writer of the node that runs now."""
    node = PROCESS.get()
    process = machine.start(
        "writer", "writer", partial(_be_writer, machine=machine, distrust_index=distrust_index), node
    )
    machine.lock[process] = None
    return process


# -- The node


class SimulatedNode(Node):
    """The real node, in a process that nobody sends a signal but KILL, STOP and CONT."""

    async def _obey_term(self) -> None:
        await trio.sleep_forever()

    async def _watch_store(self) -> None:
        await trio.sleep_forever()


async def _be_node(process: Process, *, machine: Machine) -> None:
    """Take the lock when it is the process's turn, if nobody holds it, and serve the store."""
    await machine.turn("asks for the lock")
    if machine.is_held:
        machine.tell(f"{process.name} finds it held")
        process.say(_BUSY)
        return
    machine.lock[process] = None
    node_listener = SimulatedListener(machine, protocol.NODE_SOCKET, process)
    writer_listener = SimulatedListener(machine, protocol.WRITER_SOCKET, process)
    process.say(_READY)
    path = str(machine.disk.index_root)
    description = describe(path)
    first = start_writer(machine, path, description.store, distrust_index=False)
    listeners = cast("Any", node_listener), cast("Any", writer_listener)
    await SimulatedNode(path, description, 0, *listeners, cast("Any", first), 64).run()


def start_candidate(machine: Machine, path: str, **_: object) -> Process:
    """Start a process that may become the node."""
    return machine.start("node", "node", partial(_be_node, machine=machine), PROCESS.get())


class Candidate:
    """A candidate, as whoever started it sees it."""

    def __init__(self, process: Process) -> None:
        self.pid = process.pid
        self.stdout = process.stdout.fileno()
        self._process = process

    @property
    def returncode(self) -> int | None:
        """How it ended."""
        return self._process.exit_code

    async def wait(self) -> int | None:
        """Wait until it has ended, and give its exit code."""
        await self._process.ended.wait()
        return self._process.exit_code

    def poll(self) -> bool:
        """Say whether it has ended."""
        return not self._process.is_alive

    def leave(self) -> None:
        """Let it live on."""

    def close(self) -> None:
        """Give it up, as it has ended."""
