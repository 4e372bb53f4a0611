"""Those who connect to our own processes: accepted if they are this user's, answered without waiting for them.

Used by node and writer alike, on trio. An answer that a peer doesn't take at once is sent by a task of its own, in
order; whoever serves the peer reads no more from it until that is done, so what waits stays bounded.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from turnkeeper.runtime.frame_socket import FrameSocket, peer_of
from turnkeeper.runtime.frames import encode_frame
from turnkeeper.storage.errors import StoreRefused

from .node_log import log
from .protocol import ERROR, error_to_wire

ACCEPT_RETRY_SECONDS = 0.1
"""Pause when a connection can't be accepted because no descriptor or memory is left."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Peer:
    """A connection and the process behind it; `pid` is 0 where it means nothing here (another pid namespace)."""

    def __init__(self, connection: socket.socket, nursery: trio.Nursery) -> None:
        self.pid = peer_of(connection)[0]
        self.frames = FrameSocket(connection, trio.lowlevel)
        self._nursery = nursery
        self._drained: trio.Event | None = None

    @property
    def is_behind(self) -> bool:
        """Say whether something waits for the peer to read."""
        return self._drained is not None

    def tell(self, frame: bytes) -> None:
        """Send an encoded frame without waiting. A broken connection is noticed by who reads from it."""
        with suppress(OSError):
            if not self.frames.send_nowait(frame) and self._drained is None:
                self._drained = trio.Event()
                self._nursery.start_soon(self._drain)

    async def wait_drained(self) -> None:
        """Wait until nothing is left to be sent, or the connection has ended."""
        while self._drained is not None:
            await self._drained.wait()

    def caught_up(self) -> None:
        """Do what was put off while the peer was behind; for subclasses."""

    async def _drain(self) -> None:
        with suppress(OSError, trio.ClosedResourceError):
            await self.frames.drain()
        if self._drained is not None:
            self._drained.set()
            self._drained = None
        self.caught_up()


async def welcome(
    listener: socket.socket, path: str, handle: Callable[[socket.socket], Awaitable[None]], nursery: trio.Nursery
) -> None:
    """Accept connections until the listening socket is closed; `handle` each of this user's in a task.

    Others are told why the store at `path` isn't for them.
    """
    while True:
        try:
            await trio.lowlevel.wait_readable(listener)
            connection, _ = listener.accept()
        except trio.ClosedResourceError:
            return
        except (BlockingIOError, ConnectionAbortedError):
            continue
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            log(f"a connection has to wait: {error}")
            await trio.sleep(ACCEPT_RETRY_SECONDS)
            continue
        if peer_of(connection)[1] == os.geteuid():
            nursery.start_soon(handle, connection)
        else:
            refusal = StoreRefused(path, f"is served by user {os.geteuid()}; only that user may open it")
            with connection, suppress(OSError):
                connection.send(encode_frame({"op": ERROR, **error_to_wire(refusal)}))


def stop_listening(listener: socket.socket) -> None:
    """Close a listening socket, which ends its `welcome`."""
    trio.lowlevel.notify_closing(listener)
    listener.close()
