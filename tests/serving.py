"""A served store for tests: a real node and writer, and a client that only knows frames. Blocking, with deadlines."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from turnkeeper.actors.client.asking import node_pid
from turnkeeper.actors.directory import StoreDirectory
from turnkeeper.actors.launch import start_candidate
from turnkeeper.actors.protocol import NODE_SOCKET, WRITER_SOCKET
from turnkeeper.runtime.frames import FrameDecoder, encode_frame
from turnkeeper.runtime.identity import is_gone, own_identity
from turnkeeper.storage.errors import StorageError
from turnkeeper.storage.lock import store_is_held
from turnkeeper.storage.store import WRITER_FILE

from .stores import event

DEADLINE_SECONDS = 20.0
"""For everything that a test waits for; a quiet machine needs a fraction of a second."""


class FrameClient:
    """A blocking connection to one of a store's sockets; `hello` is what the other side began with."""

    def __init__(self, path: Path, name: str) -> None:
        self._decoder = FrameDecoder()
        self._received: deque[Any] = deque()
        self.connection = _connect(path, name)
        self.connection.settimeout(DEADLINE_SECONDS)
        self.hello: dict[str, Any] = self.receive()

    def send(self, *messages: Any) -> None:
        """Send messages, in one piece."""
        self.connection.sendall(b"".join(encode_frame(message) for message in messages))

    def receive(self) -> Any:
        """Return the next message. Raises ConnectionError when the other side has ended."""
        while not self._received:
            content = self.connection.recv(1 << 20)
            if not content:
                raise ConnectionResetError("the other side has ended")
            self._received.extend(self._decoder.feed(content))
        return self._received.popleft()

    def ask(self, message: Any) -> Any:
        """Send a message and return the next one that comes, but for news of the node's state."""
        self.send(message)
        return self.receive_answer()

    def receive_answer(self) -> Any:
        """Return the next message that isn't news of the node's state: those come whenever it changes."""
        while True:
            answer = self.receive()
            if not (isinstance(answer, dict) and answer.get("op") == "state"):
                return answer

    def wait_for_end(self) -> None:
        """Wait until the other side has ended."""
        with contextlib.suppress(ConnectionError):
            while True:
                self.receive()

    def close(self) -> None:
        """End the connection."""
        self.connection.close()

    def __enter__(self) -> FrameClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _connect(path: Path, name: str) -> socket.socket:
    directory = StoreDirectory(str(path))
    try:
        return directory.connect(name)
    finally:
        directory.close()


def start_node(path: Path) -> subprocess.Popen[bytes]:
    """Start a candidate that must become the node."""
    node = start_candidate(str(path), create=True, durability=None)
    assert word_of(node) == "ready"
    return node


def word_of(candidate: subprocess.Popen[bytes]) -> str:
    """Return a candidate's word."""
    assert candidate.stdout is not None
    ready, _, _ = select.select([candidate.stdout], [], [], DEADLINE_SECONDS)
    assert ready, "the candidate says nothing"
    with candidate.stdout as said:
        return said.read(65536).decode().strip()


class ServedStore:
    """A store with a node that this process has started and is attached to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process = start_node(path)
        self.node = FrameClient(path, NODE_SOCKET)
        assert self.node.ask({"op": "attach", "name": "the test"}) == {"op": "attached"}

    def visit(self) -> FrameClient:
        """Connect to the node once more."""
        return FrameClient(self.path, NODE_SOCKET)

    def writer(self) -> FrameClient:
        """Connect to the writer, waiting for one that starts."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                return FrameClient(self.path, WRITER_SOCKET)
            except ConnectionError:
                assert time.monotonic() < deadline, "no writer answers"

    def writer_pid(self) -> int:
        """Return the process that is the writer now."""
        with self.writer() as writer:
            pid: int = writer.hello["pid"]
            return pid

    def kill_writer(self, number: int = signal.SIGKILL) -> int:
        """Send the writer a signal that ends it, wait until it is gone, and return its pid."""
        pid = self.writer_pid()
        with watched(pid) as wait_until_gone:
            os.kill(pid, number)
            wait_until_gone()
        return pid

    def end(self) -> None:
        """Leave, and see to it that nothing is left: that is what a node has to do by itself."""
        self.node.close()
        try:
            self.process.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        eventually(lambda: not store_is_held(str(self.path)))


@contextlib.contextmanager
def served_store(path: Path) -> Iterator[ServedStore]:
    """Serve a store, and see that node and writer end with their last client."""
    store = ServedStore(path)
    try:
        yield store
    finally:
        store.end()


@contextlib.contextmanager
def watched(pid: int) -> Iterator[Callable[[], None]]:
    """Hold on to a process, so that its end can be waited for: a zombie has ended."""
    pidfd = os.pidfd_open(pid)

    def wait_until_gone() -> None:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        assert poll.poll(DEADLINE_SECONDS * 1000), f"process {pid} doesn't end"

    try:
        yield wait_until_gone
    finally:
        os.close(pidfd)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process meanwhile: all of its threads have, when the body begins."""
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for what another process brings about and nobody tells."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it doesn't come about"
        time.sleep(0.005)


def own_owner(token: str) -> dict[str, Any]:
    """Make an owner that is this process."""
    return {**own_identity().as_map(), "token": token}


def first_append(stream: str, **header: Any) -> list[Any]:
    """Make the append that begins a stream with one event, as it crosses."""
    return [stream, 1, 0, event(stream, 0), {"id": stream, **header}, None, True]


def next_append(stream: str, seq: int, text: str = "hello", epoch: int = 1) -> list[Any]:
    """Make an append of one event, as it crosses."""
    return [stream, epoch, seq, event(stream, seq, text), None, None, False]


def kill_holder(path: Path, role: str) -> bool:
    """Kill the store's `node` or `writer`, if there is one; nobody else, however late this comes. Say whether it was.

    The pid is held by a pidfd before it is looked at once more, so that it can't have become another process's.
    """
    try:
        pid = node_pid(str(path)) if role == "node" else _writer_identity(path)["pid"]
        if pid is None:
            return False
        pidfd = os.pidfd_open(pid)
    except (OSError, ValueError, StorageError):
        return False
    try:
        still = node_pid(str(path)) == pid if role == "node" else not is_gone(_writer_identity(path))
        if still:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return still
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)


def _writer_identity(path: Path) -> dict[str, Any]:
    identity: dict[str, Any] = json.loads((path / WRITER_FILE).read_text())
    return identity
