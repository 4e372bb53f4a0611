"""A client and a writer that share one process and need no socket: what one sends, the other takes at once.

So everything that a session does happens within the call, on a backend that the test has opened, in the order in which
it was asked for; nothing ever waits. Sessions, client, link, writer and backend are the real ones. The node, of which
an opening asks what still runs, has no tasks.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from turnkeeper.actors.client.client import Client
from turnkeeper.actors.protocol import LIVE_TASKS
from turnkeeper.actors.writer.writer import Client as Peer
from turnkeeper.actors.writer.writer import Writer
from turnkeeper.runtime.frames import FrameDecoder

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from turnkeeper.actors.client.joining import Attachment
    from turnkeeper.storage.backend import Backend


class Loopback:
    """A client of the backend that keeps the store at `path`; make it within an event loop."""

    def __init__(self, path: Path, backend: Backend) -> None:
        self.client = Client(str(path), cast("Attachment", SimpleNamespace(hello={})), "the client")
        self.client.reads.serve(backend.index_directory)
        self.client.link.wake = self._exchange
        self.client.node.requests.wake = self._ask_node
        self._writer = Writer(backend, cast("socket.socket", None), str(path), "the test's", "boot")
        self._peer = cast("Peer", SimpleNamespace(tell=self._hear, has_ended=False, watch=None))
        self._sent, self._answered = FrameDecoder(), FrameDecoder()
        self._answers: list[Any] = []
        self._is_exchanging = False

    def _hear(self, frame: bytes) -> None:
        self._answers += self._answered.feed(frame)

    def _exchange(self) -> None:
        """Let the writer take what the client has to send, and the client what it answers, until nothing is left."""
        if self._is_exchanging:
            return
        self._is_exchanging = True
        try:
            while output := self.client.link.next_output():
                for message in self._sent.feed(output):
                    self._writer._take(self._peer, message)
                while self._writer._queue:
                    self._writer._commit(self._writer._take_queued())
                answers, self._answers = self._answers, []
                for answer in answers:
                    self.client.link.receive(answer)
        finally:
            self._is_exchanging = False

    def _ask_node(self) -> None:
        """Let the node answer what it is asked."""
        requests = self.client.node.requests
        for message in FrameDecoder().feed(requests.next_output()):
            if message["op"] == LIVE_TASKS:
                requests.receive({"re": message["id"], "tasks": []})
