"""Simulated connections: streams of bytes that arrive when the story says so, in pieces of any size, or not at all.

A `SimulatedSocket` is what `FrameSocket` takes for a socket, and how it waits for one, too. What one end sends is under
way until some of it arrives at the other; each end has only so much room, so who isn't read from has to wait. A
connection that is cut ends for both, anywhere in a frame.
"""

from __future__ import annotations

import errno
import random
from collections import deque
from typing import TYPE_CHECKING, Any

import anyio
import trio

from turnkeeper.runtime.frame_socket import FrameSocket

from .processes import PROCESS

if TYPE_CHECKING:
    from .processes import Machine, Process

ROOM_BYTES = 16 * 1024
"""What may be under way to one end, or wait there to be read."""


class SimulatedSocket:
    """One end of a connection, held by `process`; `peer` is the other one."""

    peer: SimulatedSocket

    def __init__(self, machine: Machine, process: Process, name: str) -> None:
        self.process = process
        self.name = name
        self.arrived = bytearray()
        self.under_way = bytearray()
        self.closed_error: type[Exception] = OSError
        self._machine = machine
        self._is_closed = False
        self._is_ending = False
        self._has_ended = False
        self._changed: trio.Event | None = None
        machine.sockets[self] = None

    # -- What the story does

    @property
    def has_something_under_way(self) -> bool:
        """Say whether bytes, or the connection's end, are under way to here, and somebody may take them."""
        is_coming = self.under_way or (self._is_ending and not self._has_ended)
        return bool(is_coming) and not self._is_closed and self.process.runs

    def arrive(self, size: int) -> None:
        """Let so many of the bytes that are under way arrive; behind the last one the end, if it comes."""
        self.arrived += self.under_way[:size]
        del self.under_way[:size]
        if self._is_ending and not self.under_way:
            self._has_ended = True
        self._tell_change()
        self.peer._tell_change()

    def lose_some(self, rng: random.Random) -> None:
        """Lose an end of what is under way to here."""
        del self.under_way[rng.randint(0, len(self.under_way)) :]

    def cut(self, rng: random.Random) -> None:
        """Cut the connection, for both sides."""
        for each in (self, self.peer):
            each.lose_some(rng)
            each._is_ending = True
            each._tell_change()

    # -- What FrameSocket does with a socket

    def setblocking(self, flag: bool) -> None:
        """Be as it always is: non-blocking."""

    def fileno(self) -> int:
        """Give something like a descriptor; -1 once it is closed."""
        return -1 if self._is_closed else 3

    def send(self, content: bytes | memoryview) -> int:
        """Send what there is room for. Raises BlockingIOError, OSError."""
        if self._is_closed or not self.process.is_alive:
            raise OSError(errno.EBADF, "this side has closed the connection")
        if self._is_ending or self.peer._is_ending or self.peer._is_closed:
            raise BrokenPipeError(errno.EPIPE, "the other side is gone")
        room = ROOM_BYTES - len(self.peer.under_way) - len(self.peer.arrived)
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "the other side doesn't read")
        self.peer.under_way += content[:room]
        return min(room, len(content))

    def recv(self, size: int) -> bytes:
        """Read what has arrived. Raises BlockingIOError."""
        if not self.arrived:
            if self._has_ended:
                return b""
            raise BlockingIOError(errno.EAGAIN, "nothing is here")
        content = bytes(self.arrived[:size])
        del self.arrived[:size]
        self.peer._tell_change()
        return content

    def close(self) -> None:
        """End the connection; what was sent still arrives."""
        if not self._is_closed:
            self._is_closed = True
            self.peer._is_ending = True
            self._machine.sockets.pop(self, None)
            self._tell_change()
            self.peer._tell_change()

    # -- How FrameSocket waits

    async def wait_readable(self, _: object) -> None:
        """Wait until something has arrived, or the end."""
        if self.arrived or self._has_ended:
            await trio.lowlevel.checkpoint()
        while not (self.arrived or self._has_ended):
            await self._wait_change()

    async def wait_writable(self, _: object) -> None:
        """Wait until there is room, or nobody to send to."""
        await trio.lowlevel.checkpoint()
        while not (self._is_ending or self.peer._is_closed):
            if len(self.peer.under_way) + len(self.peer.arrived) < ROOM_BYTES:
                return
            await self._wait_change()

    def notify_closing(self, _: object) -> None:
        """Wake who waits; the closing follows."""

    async def _wait_change(self) -> None:
        if not self._is_closed:
            if self._changed is None:
                self._changed = trio.Event()
            await self._changed.wait()
        if not self.process.is_alive:
            raise OSError(errno.EBADF, "this process is dead")
        if self._is_closed:
            raise self.closed_error

    def _tell_change(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()


class SimulatedFrameSocket(FrameSocket):
    """The real one over a simulated connection."""

    def __init__(self, connection: Any, waiting: object) -> None:
        connection.closed_error = anyio.ClosedResourceError if waiting is anyio else trio.ClosedResourceError
        super().__init__(connection, connection)


class SimulatedListener:
    """A listening socket, which lives as long as one of its holders; connections wait in its backlog."""

    def __init__(self, machine: Machine, name: str, holder: Process) -> None:
        self.name = name
        self.holders = [holder]
        self.backlog: deque[SimulatedSocket] = deque()
        self._machine = machine
        self._arrived = trio.Event()
        machine.listeners[name] = self

    def fileno(self) -> int:
        """Give something like a descriptor."""
        return 4

    @property
    def listens(self) -> bool:
        """Say whether a process holds it."""
        return any(each.is_alive for each in self.holders)

    def connect(self) -> SimulatedSocket:
        """Connect to it as the running process. Raises ConnectionRefusedError where nobody listens."""
        if not self.listens:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens")
        process = PROCESS.get()
        own = SimulatedSocket(self._machine, process, f"{self.name} at {process.name}")
        holder = next(each for each in self.holders if each.is_alive)
        other = SimulatedSocket(self._machine, holder, f"{self.name} from {process.name}")
        own.peer, other.peer = other, own
        self.backlog.append(other)
        self._arrived.set()
        return own

    async def accept(self) -> SimulatedSocket:
        """Wait for a connection, and take it for the running process. Raises ClosedResourceError when it is closed."""
        process = PROCESS.get()
        while process in self.holders:
            if self.backlog:
                accepted = self.backlog.popleft()
                accepted.process = process
                return accepted
            self._arrived = trio.Event()
            await self._arrived.wait()
        raise trio.ClosedResourceError

    def leave(self) -> None:
        """Hold it no more, in the running process."""
        process = PROCESS.get()
        if process in self.holders:
            self.holders.remove(process)
        self._arrived.set()


def connect(machine: Machine, name: str) -> SimulatedSocket:
    """Connect to one of the store's sockets. Raises OSError."""
    listener = machine.listeners.get(name)
    if listener is None:
        raise FileNotFoundError(errno.ENOENT, "no such socket", name)
    return listener.connect()
