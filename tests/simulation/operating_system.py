"""What the product's modules see instead of the operating system while a story is told.

The product is not told that it is simulated: the names by which its modules reach clocks, pids, random bytes, threads,
sockets and processes stand for the machine's here, and all else is as it is. A name that is gone from its module is an
error, so this can't silently miss what it is to replace.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import random
import secrets
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar
from zlib import crc32

import anyio
import trio

from turnkeeper import actors, storage
from turnkeeper.actors import blob_references, ids, protocol
from turnkeeper.actors.client import blobs as client_blobs
from turnkeeper.actors.client import joining, reads, spilling
from turnkeeper.actors.client.chunks import Chunks
from turnkeeper.actors.client.link import Link
from turnkeeper.actors.client.owned_stream import OwnedStream
from turnkeeper.actors.directory import StoreDirectory
from turnkeeper.actors.errors import NodeNotAnswering
from turnkeeper.actors.launch import start_candidate, start_writer
from turnkeeper.actors.node import node, writer_keeper
from turnkeeper.actors.node.node import Visitor
from turnkeeper.actors.node.switchboard import Place
from turnkeeper.actors.node.tasks import adoption, live_task, owners, supervisor
from turnkeeper.actors.node.tasks.leftovers import Leftovers
from turnkeeper.actors.node.tasks.spawner_keeper import SpawnerKeeper
from turnkeeper.actors.node_log import log
from turnkeeper.actors.own_loop import watch_own_loop
from turnkeeper.actors.peers import stop_listening, welcome
from turnkeeper.actors.session.session import Session
from turnkeeper.actors.tasks import starting, task
from turnkeeper.actors.writer.writer import Client, Writer
from turnkeeper.benchmarks.chaos import notes
from turnkeeper.runtime import identity
from turnkeeper.runtime.frame_socket import FrameSocket, peer_of
from turnkeeper.runtime.identity import boot_id
from turnkeeper.runtime.processes import ChildProcess
from turnkeeper.runtime.restart import RestartHistory
from turnkeeper.runtime.tasks import directory, survivors, tree
from turnkeeper.storage import backend, blobs, journal, opening
from turnkeeper.storage.index import Index
from turnkeeper.storage.lock import store_is_held

from ..simulated_disk import Death
from . import serving, tasks
from .index_files import IndexFiles, open_reader
from .processes import PROCESS, Machine
from .sockets import SimulatedFrameSocket, SimulatedListener, SimulatedSocket, connect

Answer = TypeVar("Answer")

OWN_USER = 1000

SEGMENT_BYTES = 24_000
FILLING_BYTES = 8192
"""Files of some dozen batches, so that a story goes through several of them."""

SPILL_BYTES = 2000
"""What lies in a file of its own, of data of which none is large."""


class StandIn:
    """A module of which some names are others."""

    def __init__(self, module: ModuleType, **names: Any) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__[name] = getattr(self._module, name)  # so it is asked for each name once
        return found


class Directory:
    """A store's directory: there, and with sockets of the machine's."""

    descriptor = -1

    def __init__(self, machine: Machine, path: str) -> None:
        self.path = path
        self._machine = machine

    def connect(self, name: str) -> SimulatedSocket:
        """Connect to one of the store's sockets. Raises OSError."""
        return connect(self._machine, name)

    def not_answering(self, pid: int | None) -> NodeNotAnswering:
        """Make the error for a store that wasn't served in time."""
        return NodeNotAnswering(pid, "said nothing")

    def close(self) -> None:
        """Do nothing."""


class Secrets:
    """Random bytes and words that follow from the story's seed."""

    def __init__(self, machine: Machine) -> None:
        self._rng = machine.rng

    def token_hex(self, size: int) -> str:
        """Give so many random bytes as hexadecimal digits."""
        return self._rng.randbytes(size).hex()

    def generate_slug(self, words: int) -> str:
        """Give random words."""
        return "-".join(self._rng.choice(("brave", "calm", "eager", "otter", "heron", "lynx")) for _ in range(words))


async def _run_as_thread(
    function: Callable[..., Answer], *args: Any, abandon_on_cancel: bool = False, machine: Machine
) -> Answer:
    """Run what would run in a thread, when it is its process's turn; as there, cancelling waits for its end."""
    with anyio.CancelScope(shield=PROCESS.get().is_alive and not abandon_on_cancel):
        await machine.turn("reads")
    return function(*args)


async def _put_or_die(function: Callable[..., Answer], *args: Any, machine: Machine) -> Answer:
    """Run what puts blobs as if in a thread; the process may die in the middle of it."""
    try:
        return await _run_as_thread(function, *args, machine=machine)
    except Death:
        machine.die()
        await trio.sleep_forever()
        raise


async def _welcome(listener: SimulatedListener, path: str, handle: Callable[..., Any], nursery: trio.Nursery) -> None:
    """Accept connections until the listener is closed."""
    while True:
        try:
            connection = await listener.accept()
        except trio.ClosedResourceError:
            return
        nursery.start_soon(handle, connection)


async def _do_nothing(*_: object) -> None:
    """Stand for what watches an event loop."""


def _look_at(pid: int, machine: Machine) -> tuple[str, int] | None:
    """Say what the machine knows of a pid: its state and start."""
    process = machine.processes.get(pid)
    if process is None or not process.is_alive:
        return None
    return "T" if process.is_stopped else "R", process.identity.start


async def _hear_word(pipe: int, machine: Machine) -> tuple[str, str]:
    """Hear what a candidate says until it has said its word, or died."""
    return (await machine.processes[pipe].hear()).decode(), ""


async def _read(pipe: int, machine: Machine) -> bytes:
    """Read what a writer says; nothing when it has ended."""
    return await machine.processes[pipe].hear()


async def _wait_ended(pid: int, machine: Machine) -> None:
    """Wait until a process has ended, whose pid stands for a descriptor of it."""
    await machine.processes[pid].ended.wait()
    await machine.turn(f"hears that {machine.processes[pid].name} has ended")


def _stand_ins(machine: Machine) -> list[tuple[object, object]]:
    """List what is another thing, wherever a module of ours has a name for it."""
    return [
        (time, StandIn(time, monotonic=machine.monotonic, time_ns=machine.time_ns, time=machine.time)),
        (time.monotonic, machine.monotonic),
        (time.time_ns, machine.time_ns),
        (random, machine.rng),
        (secrets, Secrets(machine)),
        (ids._words, lambda: Secrets(machine)),
        (boot_id, lambda: f"boot-{machine.boot}"),
        (identity._look_at, partial(_look_at, machine=machine)),
        (Link, partial(Link, clock=machine.monotonic)),
        (FrameSocket, SimulatedFrameSocket),
        (peer_of, lambda connection: (connection.peer.process.pid, OWN_USER)),
        (StoreDirectory, partial(Directory, machine)),
        (store_is_held, lambda path: machine.is_held),
        (start_candidate, partial(serving.start_candidate, machine)),
        (start_writer, partial(serving.start_writer, machine)),
        (ChildProcess, serving.Candidate),
        (joining._hear_word, partial(_hear_word, machine=machine)),
        (backend.open_reader, partial(open_reader, machine)),
        (Index, IndexFiles(machine)),
        (welcome, _welcome),
        (stop_listening, SimulatedListener.leave),
        (watch_own_loop, _do_nothing),
        (log, lambda what: machine.tell(f"    {PROCESS.get().name}: {what}")),
        (writer_keeper._read, partial(_read, machine=machine)),
        (SpawnerKeeper, partial(tasks.SimulatedSpawner, machine)),
    ]


def _of_tasks(machine: Machine, waiting: StandIn) -> list[tuple[object, str, object]]:
    """List what is another thing for tasks: their place, their processes, and how they are heard of."""
    place = tasks.tasks_directory(machine)
    descriptors = StandIn(os, close=lambda descriptor: None, pidfd_open=lambda pid: pid)
    hearing = StandIn(trio, lowlevel=StandIn(trio.lowlevel, wait_readable=tasks.Bell.wait_readable))
    command_os = StandIn(os, environb={b"PATH": b"/bin"}, getcwdb=lambda: b"/")
    threads = SimpleNamespace(run_sync=partial(_run_as_thread, machine=machine))

    async def find_nothing(*_: object) -> list[object]:
        return []

    def send_signal(pid: int, start: int, number: int) -> bool:
        machine.processes[pid].ordered.set()
        return machine.processes[pid].is_alive

    return [
        *((module, "TASKS_DIRECTORY", place) for module in (protocol, live_task, adoption)),
        *((module, "os", descriptors) for module in (live_task, owners)),
        *((module, "trio", waiting) for module in (live_task, owners)),
        (supervisor, "socket", StandIn(socket, socket=lambda *_: tasks.Bell(machine))),
        (supervisor, "os", StandIn(os, unlink=lambda path: None)),
        (supervisor, "trio", hearing),
        (Leftovers, "find", find_nothing),
        (Leftovers, "stop", find_nothing),
        (directory, "boot_id", lambda: f"boot-{machine.boot}"),
        (tree, "is_alive", lambda pid, start: machine.processes[pid].is_alive),
        (tree, "open_process", lambda pid, start: pid if machine.processes[pid].is_alive else None),
        (tree, "children", lambda pid: []),
        (tree, "below", lambda pid: []),
        (tree, "send_signal", send_signal),
        (survivors, "living", lambda found: []),
        (starting, "os", command_os),
        (starting, "_umask", lambda: 0o077),
        (task, "anyio", StandIn(anyio, to_thread=threads)),
    ]


def _named(machine: Machine) -> list[tuple[object, str, object]]:
    """List what is another thing in one module, or class, alone."""
    own = StandIn(
        os,
        getpid=lambda: PROCESS.get().pid,
        pidfd_open=lambda pid: pid,
        close=lambda descriptor: None,
        fstat=lambda descriptor: SimpleNamespace(st_dev=1, st_ino=1, st_nlink=1),
        stat=lambda path: SimpleNamespace(st_dev=1, st_ino=1, st_nlink=1),
    )
    modules = (identity, node, writer_keeper, sys.modules[Writer.__module__], notes)
    waiting = StandIn(trio, lowlevel=StandIn(trio.lowlevel, wait_readable=partial(_wait_ended, machine=machine)))
    threads = SimpleNamespace(run_sync=partial(_run_as_thread, machine=machine))
    decide = RestartHistory.decide
    filling = [(module, "FILLING_AHEAD_BYTES", FILLING_BYTES) for module in (journal, opening)]
    return [
        *((module, "os", own) for module in modules),
        *((module, "trio", waiting) for module in (node, writer_keeper)),
        *_of_tasks(machine, waiting),
        (identity, "_own", None),
        (identity, "socket", StandIn(socket, gethostname=lambda: "here")),
        (RestartHistory, "decide", lambda self, now: decide(self, now, machine.rng.random)),
        (joining, "sys", StandIn(sys, argv=["program"])),
        (reads, "anyio", StandIn(anyio, to_thread=threads)),
        (client_blobs, "run_sync", partial(_put_or_die, machine=machine)),
        (blobs, "LocalFileSystem", lambda root: machine.disk),
        *((module, "SPILL_BYTES", SPILL_BYTES) for module in (blob_references, spilling)),
        (journal, "SEGMENT_BYTES", SEGMENT_BYTES),
        (journal, "FILLING_STEP_BYTES", FILLING_BYTES),
        *filling,
    ]


@cache
def _bindings() -> dict[int, list[tuple[ModuleType, str]]]:
    """Find every name that a module of ours has for a thing, by the thing's id."""
    for area in (actors, storage):
        for found in pkgutil.walk_packages(area.__path__, f"{area.__name__}."):
            if not found.name.endswith("_main") and ".contract" not in found.name:
                importlib.import_module(found.name)
    bindings: dict[int, list[tuple[ModuleType, str]]] = defaultdict(list)
    for name, module in list(sys.modules.items()):
        if name.startswith(("turnkeeper.actors.", "turnkeeper.storage.", "turnkeeper.runtime.")):
            for attribute, value in vars(module).items():
                bindings[id(value)].append((module, attribute))
    return bindings


def _hash_of_id(stream: OwnedStream | Session) -> int:
    return crc32(stream.id.encode())


def _hashes() -> list[tuple[object, str, object]]:
    """Give hashes to what the product has in sets, whose order would depend on where things lie in memory."""
    numbers = count()

    def hash_of_number(thing: Any) -> int:
        return int(thing.__dict__.setdefault("_number", next(numbers)))

    by_id = [(each, "__hash__", _hash_of_id) for each in (OwnedStream, Session)]
    return [*by_id, *((each, "__hash__", hash_of_number) for each in (Chunks, Client, Place, Visitor))]


@contextmanager
def standing_in(machine: Machine) -> Iterator[None]:
    """Let the machine be what the product's modules see of the operating system, while the body runs."""
    changes: list[tuple[object, str, object]] = [*_named(machine), *_hashes()]
    for thing, stand_in in _stand_ins(machine):
        places = _bindings().get(id(thing), [])
        assert places, f"no module has a name for {thing!r}"
        changes += [(module, name, stand_in) for module, name in places]
    before = [(place, name, getattr(place, name)) for place, name, _ in changes]
    try:
        for place, name, stand_in in changes:
            setattr(place, name, stand_in)
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)
