"""The node: serves one store by keeping its writer alive and knowing who has the store open.

One process per store, the first of the two that hold the store's lock. It lives while a client is attached, or until
TERM or `stop` ends it, and ends its writer in order before itself. A client is gone when its connection ends *or* its
process does: forked children keep a connection open. The node touches no byte of the journal, and all that it knows
dies with it: clients come back by the opening loop. Latest values of what isn't durable pass through it too. Its writer
and, once there is a task, its process supervisor are kept alive by its tree; unfinished tasks that are to be kept keep
the node, too.

Runs on trio, in a process of its own, with the store as its working directory.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import trio

from turnkeeper.runtime.frame_socket import FrameSocket
from turnkeeper.runtime.frames import FrameError, encode_frame
from turnkeeper.runtime.identity import Identity, identity_of
from turnkeeper.storage.errors import StorageError
from turnkeeper.storage.store import STORE_FILE, StoreDescription

from .. import launch, protocol
from ..node_log import log
from ..own_loop import watch_own_loop
from ..peers import Peer, stop_listening, welcome
from .switchboard import Place, Switchboard
from .tasks.owners import Owner
from .tasks.supervisor_keeper import SupervisorKeeper
from .tree import NodeTree
from .writer_keeper import WriterKeeper

_SOCKETS = (protocol.NODE_SOCKET, protocol.WRITER_SOCKET)

LOOK_SECONDS = 1.0
"""How often the node looks whether the store that it opened still stands at its place."""

STATISTICS_SECONDS = 2.0
"""How long `status` waits for the writer's figures."""


class Visitor(Peer):
    """A connection to the node. It is a client once it has attached; one that `serves` doesn't keep `stop` off.

    One that is `leaving` is no client any more, and keeps the node until what it owns has ended.

    `owner` is the runtime that has attached by it, `requests` are those numbered ones that aren't answered.
    """

    attached = False
    leaving = False
    serves = False
    name = ""
    owner: Owner | None = None

    def __init__(self, connection: socket.socket, nursery: trio.Nursery, state: Callable[[], bytes]) -> None:
        super().__init__(connection, nursery)
        self.place = Place(self)
        self.requests: dict[int, trio.CancelScope] = {}
        self._state = state
        self._is_state_owed = False

    def tell_state(self) -> None:
        """Tell it the state; one who is behind is told the newest one when it has read what waits for it."""
        if self.is_behind:
            self._is_state_owed = True
        else:
            self.tell(self._state())

    def caught_up(self) -> None:
        if self._is_state_owed:
            self._is_state_owed = False
            self.tell(self._state())
        self.place.catch_up()


class Node:
    """What the node knows: its store, its writer and its visitors."""

    def __init__(
        self,
        path: str,
        description: StoreDescription,
        store_file: int,
        node_listener: socket.socket,
        writer_listener: socket.socket,
        writer: subprocess.Popen[bytes],
        descriptors: int,
    ) -> None:
        self._path = path
        self._description = description
        own = os.fstat(store_file), *map(os.stat, _SOCKETS)
        self._own_files = [(each.st_dev, each.st_ino) for each in own]
        self._listener = node_listener
        self._since = time.time_ns() // 1_000_000
        self._visitors: set[Visitor] = set()
        self._switchboard = Switchboard()
        self._ending = trio.Event()
        self._is_expecting = True

        def start_writer(distrust_index: bool) -> subprocess.Popen[bytes]:
            return launch.start_writer(
                path,
                description.store,
                store_file=store_file,
                listener=writer_listener.fileno(),
                distrust_index=distrust_index,
            )

        self._writer = WriterKeeper(path, writer, start_writer, self._tell_state, self._refuse)
        self._tasks = SupervisorKeeper(
            self._switchboard, self._is_attached, self._end_if_unused, self._end, descriptors=descriptors
        )
        self._tree = NodeTree(path, self._writer, self._tasks, self._refuse, self._end)

    async def run(self) -> None:
        """Serve until the last client has left, TERM, `stop` or the store's disappearance; then end the children."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(welcome, self._listener, self._path, self._receive, nursery)
            for task in (self._obey_term, self._tree.run, self._watch_store, self._expect_a_client):
                nursery.start_soon(task)
            nursery.start_soon(watch_own_loop, trio.sleep)
            if _has_tasks():
                self._tasks.wanted.set()
            await self._ending.wait()
            self._tell_state()
            stop_listening(self._listener)
            await self._tree.end()
            nursery.cancel_scope.cancel()

    def _end(self, why: str) -> None:
        if not self._ending.is_set():
            log(f"the node ends: {why}")
            self._ending.set()

    # -- What makes it end

    async def _obey_term(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                self._end("SIGTERM")

    def _refuse(self, refusal: StorageError) -> None:
        """End because the store can't be served, which all are told."""
        for visitor in self._visitors:
            visitor.tell(encode_frame({"op": protocol.ERROR, **protocol.error_to_wire(refusal)}))
        self._end(str(refusal))

    async def _watch_store(self) -> None:
        """End when the store was removed, or others stand at its place: what is written here may be lost to all."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            if not self._stands():
                self._end("the store was removed or replaced")

    def _stands(self) -> bool:
        """Say whether the directory still has a name, and in it the files that this node opened and made."""
        try:
            found = os.stat(STORE_FILE), *map(os.stat, _SOCKETS)
            is_linked = os.stat(".").st_nlink > 0
        except OSError:
            return False
        return is_linked and [(each.st_dev, each.st_ino) for each in found] == self._own_files

    async def _expect_a_client(self) -> None:
        """End when nobody has attached for a while: whoever started this node has died."""
        await trio.sleep(protocol.PATIENCE_SECONDS)
        self._is_expecting = False
        self._end_if_unused("nobody came")

    def _end_if_unused(self, why: str = "the last client is gone") -> None:
        """End when no client is there, none is expected, and no task needs the node."""
        is_needed = any(each.attached or each.leaving for each in self._visitors)
        if not (is_needed or self._is_expecting or self._tasks.holds_node):
            self._end(why)

    def _clients(self) -> list[Visitor]:
        return [each for each in self._visitors if each.attached]

    def _is_attached(self, token: str) -> bool:
        return any(each.owner is not None and each.owner.token == token for each in self._clients())

    # -- Visitors

    async def _receive(self, connection: socket.socket) -> None:
        """Greet a visitor and answer it until its connection ends or its process does."""
        visitor = Visitor(connection, self._nursery, self._state_frame)
        self._visitors.add(visitor)
        visitor.tell(encode_frame(self._hello(protocol.HELLO)))
        async with trio.open_nursery() as nursery:
            answer_all = partial(self._answer_all, nursery)
            for task in (answer_all, _wait_for_process):
                nursery.start_soon(_then_cancel, nursery.cancel_scope, task, visitor)
        if self._ending.is_set():
            return  # all connections end together, with this process
        self._visitors.discard(visitor)
        self._switchboard.leave(visitor.place)
        visitor.frames.close()
        if visitor.attached and visitor.owner is not None:
            self._tasks.owner_left(visitor.owner)
        self._end_if_unused()

    async def _answer_all(self, nursery: trio.Nursery, visitor: Visitor) -> None:
        try:
            while messages := await visitor.frames.receive_all():
                for message in messages:
                    if not self._take_value(visitor, message) and not self._take_request(nursery, visitor, message):
                        visitor.tell(encode_frame(await self._answer(visitor, message)))
                    if visitor.attached:
                        self._switchboard.join(visitor.place)
                await visitor.wait_drained()
        except FrameError as error:
            visitor.tell(encode_frame({"op": protocol.ERROR, **protocol.error_to_wire(StorageError(error.reason))}))

    def _take_value(self, visitor: Visitor, message: Any) -> bool:
        """Take what a client says about latest values, which nobody answers, and say whether it is that."""
        match message:
            case {"op": protocol.PUBLISH, "topic": str(topic), "type": str(type), "value": dict(value)}:
                self._switchboard.publish(topic, type, value)
            case {"op": protocol.LISTEN, "topics": topics} if visitor.attached:
                self._switchboard.listen(visitor.place, topics)
            case _:
                return False
        return True

    def _take_request(self, nursery: trio.Nursery, visitor: Visitor, message: Any) -> bool:
        """Begin with what a client asks about tasks, which is answered beside all else, and say whether it is that."""
        match message:
            case {"op": protocol.FORGET, "ids": list(numbers)}:
                for number in numbers:
                    if number.__class__ is int and number in visitor.requests:
                        visitor.requests[number].cancel()
            case {"op": str(), "id": int(number)} if visitor.owner is not None and visitor.attached:
                if number in visitor.requests or len(visitor.requests) >= protocol.REQUESTS_MAX:
                    raise FrameError(f"request {number} isn't answered yet, or {protocol.REQUESTS_MAX:,} others aren't")
                answer = self._tasks.request(visitor.owner, message)
                visitor.requests[number] = trio.CancelScope()
                nursery.start_soon(self._answer_numbered, visitor, number, answer)
            case _:
                return False
        return True

    async def _answer_numbered(
        self, visitor: Visitor, number: int, answer: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        with visitor.requests[number]:
            try:
                frame = encode_frame({"re": number, **await answer()})
            except StorageError as error:
                frame = encode_frame({"re": number, **protocol.error_to_wire(error)})
            except FrameError as error:
                frame = encode_frame({"re": number, **protocol.error_to_wire(StorageError(error.reason))})
            visitor.tell(frame)
        del visitor.requests[number]

    async def _answer(self, visitor: Visitor, message: Any) -> dict[str, Any]:
        """Do what a visitor asks and return the answer. Raises FrameError for what is no request."""
        match message:
            case {"op": protocol.ATTACH} if self._ending.is_set():
                return self._hello(protocol.STATE)  # too late to become a client: it has to come again
            case {"op": protocol.ATTACH, "name": str(name)}:
                visitor.name, visitor.serves, visitor.attached = name, bool(message.get("serves")), True
                visitor.owner = _owner_from_wire(visitor.pid, message)
                self._is_expecting = False
                self._tree.greeted.set()
                return {"op": protocol.ATTACHED}
            case {"op": protocol.BYE}:
                return await self._take_leave(visitor)
            case {"op": protocol.STATUS}:
                return await self._status()
            case {"op": protocol.STOP}:
                return self._stop()
            case {"op": protocol.REBUILD}:
                return {"op": protocol.REBUILT, "report": await self._tree.rebuild()}
            case _:
                raise FrameError(f"what was sent is no request to a node: {message!r:.100}")

    async def _take_leave(self, visitor: Visitor) -> dict[str, Any]:
        was_attached, visitor.attached = visitor.attached, False
        visitor.leaving = was_attached
        self._switchboard.leave(visitor.place)
        if was_attached and self._tasks.wanted.is_set():
            await self._tasks.wait_adopted()
            if visitor.owner is not None and not self._is_attached(visitor.owner.token):
                await self._tasks.end_owned(visitor.owner.token)
        visitor.leaving = False
        if was_attached:
            self._end_if_unused("the last client has left")
        return {"op": protocol.ENDING if was_attached and self._ending.is_set() else protocol.STAYING}

    def _stop(self) -> dict[str, Any]:
        clients = [{"pid": each.pid, "name": each.name} for each in self._clients() if not each.serves]
        if clients:
            return {"op": protocol.REFUSED, "clients": clients}
        self._end("it was told to stop")
        return {"op": protocol.STOPPING}

    async def _status(self) -> dict[str, Any]:
        figures = await _ask_writer()
        clients = [{"pid": each.pid, "name": each.name} for each in self._clients() if not each.serves]
        if self._tasks.wanted.is_set():
            await self._tasks.wait_adopted()
        tasks = self._tasks.present
        return {
            "op": protocol.STATUS,
            "pids": {
                "node": os.getpid(),
                "writer": self._writer.pid,
                "spawner": None if tasks is None else tasks.spawner_pid,
                "shims": [] if tasks is None else tasks.shim_pids,
            },
            "since": self._since,
            "clients": len(clients),
            "attached": clients,
            "state": self._state(),
            "opening": _opening(self._writer.opening, figures.get("serving")),
            "position": figures.get("position"),
            "sessions": figures.get("sessions"),
            "tasks": 0 if tasks is None else tasks.unfinished,
            "queue_bytes": figures.get("queue_bytes"),
            "flush_ms": figures.get("flush_ms", {"p50": None, "p99": None}),
            "full": figures.get("full"),
        }

    # -- What it tells

    def _state(self) -> str:
        return protocol.ENDING if self._ending.is_set() else self._writer.state

    def _hello(self, op: str) -> dict[str, Any]:
        return {
            "op": op,
            "protocol": protocol.PROTOCOL,
            "version": protocol.VERSION,
            "pid": os.getpid(),
            "store": self._description.store,
            "state": self._state(),
            "progress": self._writer.progress,
            "writer": self._writer.pid,
        }

    def _state_frame(self) -> bytes:
        return encode_frame(self._hello(protocol.STATE))

    def _tell_state(self) -> None:
        for visitor in self._visitors:
            visitor.tell_state()


async def _then_cancel(scope: trio.CancelScope, task: Callable[[Visitor], Awaitable[None]], visitor: Visitor) -> None:
    """Run one of a visitor's tasks; the first to end, also by a broken connection, ends the others."""
    with suppress(OSError):
        await task(visitor)
    scope.cancel()


async def _wait_for_process(visitor: Visitor) -> None:
    """Wait until the visitor's process has ended; for ever where its pid means nothing here (another namespace)."""
    if visitor.pid == 0:
        await trio.sleep_forever()
    try:
        pidfd = os.pidfd_open(visitor.pid)
    except ProcessLookupError:
        return
    try:
        await trio.lowlevel.wait_readable(pidfd)
    finally:
        os.close(pidfd)


def _opening(report: dict[str, Any] | None, serving: float | None) -> dict[str, Any] | None:
    """Add to what the writer says of its opening when it began to serve."""
    return None if report is None else {**report, "moments": {**report["moments"], "serving": serving}}


def _owner_from_wire(pid: int, message: dict[str, Any]) -> Owner | None:
    """Read which runtime attaches, by process `pid`, 0 for one that isn't seen from here. Raises FrameError."""
    token, said = message.get("token"), message.get("owner")
    if token is None:
        return None
    if not isinstance(token, str) or not isinstance(said, dict):
        raise FrameError("who attaches with a token says who it is")
    try:
        claimed = Identity.from_map(said)
    except ValueError as error:
        raise FrameError(str(error)) from None
    # What the kernel says of the other side counts: in another pid namespace its own pid is another one's here.
    process = identity_of(pid) if pid else None
    return Owner(token, (process or replace(claimed, pid=pid)).as_map())


def _has_tasks() -> bool:
    """Say whether there has been a task in this store, the present directory."""
    try:
        with os.scandir(protocol.TASKS_DIRECTORY) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


async def _ask_writer() -> dict[str, Any]:
    """Ask the writer for its figures as any client would; none if it doesn't answer in time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, trio.move_on_after(STATISTICS_SECONDS):
        frames = FrameSocket(connection, trio.lowlevel)
        with suppress(OSError, FrameError, StorageError):  # it died before its hello, or behind it
            connection.connect(protocol.WRITER_SOCKET)
            protocol.check_hello(await frames.receive())
            await frames.send({"op": protocol.STATISTICS, "id": 1})
            answer: dict[str, Any] = await frames.receive() or {}
            return answer
    return {}


def serve(
    path: str,
    description: StoreDescription,
    store_file: int,
    node_listener: socket.socket,
    writer_listener: socket.socket,
    writer: subprocess.Popen[bytes],
    descriptors: int,
) -> None:
    """Be the node of the store whose lock `store_file` carries, until it has ended in order.

    `descriptors` is how many files a task may have open.
    """
    trio.run(Node(path, description, store_file, node_listener, writer_listener, writer, descriptors).run)
