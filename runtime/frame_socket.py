"""A Unix stream socket that carries frames, for any event loop: processes of a store talk to each other through it.

The socket is non-blocking and nothing here imports a loop: waiting is done by three functions that trio.lowlevel and
anyio both have. What can be sent at once is sent at once; the rest stays in order in `unsent`, which `drain` sends.
A connection that broke, or whose send was cancelled in the middle, is never used again.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections import deque
from collections.abc import Awaitable
from typing import Any, Protocol

from .frames import FrameDecoder, encode_frame

READ_BYTES = 64 * 1024
"""What one call reads at most. From 128 KiB on the C library maps memory for each call, at ten times a read's cost."""

_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid


class Waiting(Protocol):
    """How a loop waits for a socket: the modules trio.lowlevel and anyio are such objects."""

    def wait_readable(self, obj: socket.socket, /) -> Awaitable[None]: ...
    def wait_writable(self, obj: socket.socket, /) -> Awaitable[None]: ...
    def notify_closing(self, obj: socket.socket, /) -> None: ...


class FrameSocket:
    """One connection; one task receives, and what is sent comes from one task at a time."""

    def __init__(self, connection: socket.socket, waiting: Waiting) -> None:
        connection.setblocking(False)
        self.unsent = bytearray()
        self._socket = connection
        self._waiting = waiting
        self._decoder = FrameDecoder()
        self._received: deque[Any] = deque()

    async def receive_all(self) -> list[Any]:
        """Wait for frames and return all that arrived; an empty list means that the other side has ended.

        Raises:
            FrameError: The other side sent what is no frame.
            OSError: The connection broke.
        """
        while True:
            self._require_open()
            await self._waiting.wait_readable(self._socket)
            try:
                content = self._socket.recv(READ_BYTES)
            except (BlockingIOError, InterruptedError):
                continue
            if not content:
                return []
            if frames := self._decoder.feed(content):
                return frames

    async def receive(self) -> Any:
        """Return the next frame, or None when the other side has ended; raise as receive_all.

        Cancelling it loses nothing.
        """
        if not self._received:
            self._received.extend(await self.receive_all())
        return self._received.popleft() if self._received else None

    def send_nowait(self, frame: bytes) -> bool:
        """Send an encoded frame, or what the system takes of it now; say whether nothing is left for `drain`.

        Raises:
            OSError: The connection broke.
        """
        if self.unsent:
            self.unsent += frame
            return False
        try:
            sent = self._socket.send(frame)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent < len(frame):
            self.unsent += memoryview(frame)[sent:]
        return not self.unsent

    async def drain(self) -> None:
        """Send what is left; wait as long as the other side doesn't read. Raises OSError as send_nowait."""
        while self.unsent:
            self._require_open()
            await self._waiting.wait_writable(self._socket)
            try:
                sent = self._socket.send(memoryview(self.unsent)[:READ_BYTES])
            except (BlockingIOError, InterruptedError):
                continue
            del self.unsent[:sent]

    async def send(self, message: Any) -> None:
        """Send a message whole. Cancelled in the middle, the connection is of no more use. Raises as send_nowait."""
        if not self.send_nowait(encode_frame(message)):
            await self.drain()

    def _require_open(self) -> None:
        # The loops disagree about what waiting for a closed socket raises.
        if self._socket.fileno() < 0:
            raise OSError(errno.EBADF, "this side has closed the connection")

    def close(self) -> None:
        """End the connection; tasks that wait for it are woken with the loop's error for a closed resource."""
        if self._socket.fileno() >= 0:
            self._waiting.notify_closing(self._socket)
            self._socket.close()


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return pid and user of who connected (of who listens, seen from the client). The pid is 0 for a foreign one."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, user, _ = _PEER.unpack(found)
    return pid, user
