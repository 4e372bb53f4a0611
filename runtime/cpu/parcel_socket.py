"""A connection that carries parcels: frames, and the memory that goes with one, for any event loop.

A side that wants nothing more says so by ending its half; it may still hear what the other one has to say.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..frame_socket import READ_BYTES, Waiting
from ..frames import FrameDecoder
from ..large_bytes import ANCILLARY_BYTES, Memory, Parcel, memories_in, with_memory


class ParcelSocket:
    """One side of such a connection, for one task at a time; `close` it in the end."""

    def __init__(
        self, connection: socket.socket, waiting: Waiting, read: Callable[[memoryview], Any] | None = None
    ) -> None:
        """Take over a socket. `read` decodes what comes, as in `FrameDecoder`."""
        connection.setblocking(False)
        self.memories: deque[Memory] = deque()
        """The memory that has come with frames, for whoever takes it out."""
        self._connection = connection
        self._waiting = waiting
        self._decoder = FrameDecoder(read)
        self._received: deque[Any] = deque()

    async def send(self, parcel: Parcel) -> None:
        """Send a parcel. Cancelled in the middle, it was not sent. Raises OSError: The other side has ended."""
        rest, memory = memoryview(parcel.frame), parcel.memory
        while rest:
            try:
                beside = [] if memory is None else with_memory(memory)
                sent = self._connection.sendmsg([rest], beside, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                await self._waiting.wait_writable(self._connection)
            else:
                rest, memory = rest[sent:], None

    async def receive(self) -> Any:
        """Wait for what the next frame says; None if the other side has ended. Cancelling it loses nothing.

        Raises:
            FrameError: It sent what is no frame. OSError: The connection broke.
        """
        while not self._received:
            await self._waiting.wait_readable(self._connection)
            try:
                content, ancillary, _, _ = self._connection.recvmsg(
                    READ_BYTES, ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                continue
            self.memories += memories_in(ancillary)
            if not content:
                return None
            self._received += self._decoder.feed(content)
        return self._received.popleft()

    def end(self) -> None:
        """Tell the other side that nothing more comes from here."""
        with suppress(OSError):  # it has ended, too
            self._connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Give up the connection. Nobody waits for it any more."""
        self._connection.close()
