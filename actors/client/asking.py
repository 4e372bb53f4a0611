"""Ask who serves a store, without becoming a client: for commands that only look. Blocking, and without an event loop.

Nobody is started, kept alive or stopped by being asked (but by `ask_stop`, which asks for that). While somebody holds
the store's lock, whoever starts or restarts is waited for; with the lock free the answer is at once that nobody serves.
"""

from __future__ import annotations

import random
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from turnkeeper.runtime.frame_socket import READ_BYTES, peer_of
from turnkeeper.runtime.frames import FrameDecoder, FrameError, encode_frame

from ..directory import StoreDirectory
from ..protocol import (
    ERROR,
    NODE_SOCKET,
    PATIENCE_SECONDS,
    REFUSED,
    STATE,
    STATUS,
    STOP,
    WRITER_SOCKET,
    check_hello,
    error_from_wire,
)
from .opening_loop import OpeningLoop, Pause

Answer = dict[str, Any]


def ask_hello(path: str, patience: float = PATIENCE_SECONDS) -> Answer | None:
    """Return what the node of the store at `path` says of itself; None if nobody serves it.

    Raises StoreMissing or StoreRefused for the path, VersionMismatch, and NodeNotAnswering after `patience` seconds.
    """
    return _ask(path, NODE_SOCKET, patience, lambda visit: visit.hello)


def ask_writer_hello(path: str, patience: float = PATIENCE_SECONDS) -> Answer | None:
    """Return what the writer says of itself: the `index` that readers may open, the next `position`. As ask_hello."""
    return _ask(path, WRITER_SOCKET, patience, lambda visit: visit.hello)


def ask_status(path: str, patience: float = PATIENCE_SECONDS) -> Answer | None:
    """Return what node and writer are doing; figures of a writer that doesn't answer are None. As ask_hello."""
    return _ask(path, NODE_SOCKET, patience, lambda visit: visit.request({"op": STATUS}))


def ask_stop(path: str, patience: float = PATIENCE_SECONDS) -> Answer | None:
    """Ask the node to end in order, and wait until it has; or return its refusal, with the clients it has.

    As ask_hello. A node that takes longer to end than `patience` raises NodeNotAnswering, and goes on ending.
    """

    def stop(visit: _Visit) -> Answer:
        answer = visit.request({"op": STOP})
        if answer["op"] != REFUSED:
            visit.wait_for_end()
        return answer

    return _ask(path, NODE_SOCKET, patience, stop)


def node_pid(path: str) -> int | None:
    """Return the process that listens at the store's node.sock, also one that is stopped or stuck; None if nobody does.

    Raises StoreMissing or StoreRefused for the path.
    """
    directory = StoreDirectory(path)
    try:
        with directory.connect(NODE_SOCKET) as connection:
            return peer_of(connection)[0]
    except OSError:
        return None
    finally:
        directory.close()


class _Visit:
    """A connection to node or writer, and the hello that it began with. Raises TimeoutError when patience is over."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self._decoder = FrameDecoder()
        self._received: deque[Any] = deque()
        self.hello: Answer = check_hello(self._receive())

    def request(self, message: Answer) -> Answer:
        """Ask, and return the answer, which is what comes next but for news of the state."""
        self._connection.sendall(encode_frame(message))
        while True:
            answer = self._receive()
            if not isinstance(answer, dict):
                raise FrameError("the answer is no map")
            if answer.get("op") == ERROR:
                raise error_from_wire(answer)
            if answer.get("op") != STATE:
                return answer

    def wait_for_end(self) -> None:
        """Wait until the other side has ended."""
        try:
            while True:
                self._receive()
        except ConnectionError:
            pass

    def _receive(self) -> Any:
        while not self._received:
            self._connection.settimeout(max(0.001, self._deadline - time.monotonic()))
            content = self._connection.recv(READ_BYTES)
            if not content:
                raise ConnectionResetError("the other side has ended")
            self._received.extend(self._decoder.feed(content))
        return self._received.popleft()


def _ask(path: str, name: str, patience: float, question: Callable[[_Visit], Answer]) -> Answer | None:
    """Connect to a socket of the store, again while it comes to nothing and somebody holds the lock."""
    loop = OpeningLoop(first=False, patience=patience, clock=time.monotonic, chance=random.random)
    directory = StoreDirectory(path)
    pid: int | None = None
    try:
        while True:
            try:
                with directory.connect(name) as connection:
                    # Both sockets are the node's; it is the writer that doesn't answer at the writer's.
                    pid = peer_of(connection)[0] if name == NODE_SOCKET else None
                    return question(_Visit(connection, time.monotonic() + loop.remaining()))
            except (OSError, FrameError):
                if not directory.is_held():
                    return None
            step = loop.next_step(is_held=True)
            if not isinstance(step, Pause):
                raise directory.not_answering(pid)
            time.sleep(step.seconds)
    finally:
        directory.close()
