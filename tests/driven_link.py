"""A client's link, driven by hand: a clock that stands still, what it wants to send, and answers as they cross."""

from __future__ import annotations

from typing import Any

from turnkeeper.actors.client.link import Link
from turnkeeper.actors.client.owned_stream import OwnedStream
from turnkeeper.actors.protocol import error_to_wire
from turnkeeper.runtime.frames import FrameDecoder
from turnkeeper.storage.errors import StorageError

HEADER = {"id": "new", "kind": "session"}
OWNER = {"boot": "b", "pid": 1, "start": 2, "host": "h", "token": "t"}


class Driver:
    """Drives a link as the client does, with a clock that stands still and answers given by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.link = Link(clock=lambda: self.now)
        self._decoder = FrameDecoder()

    def own(self, id: str = "otter", epoch: int = 2, head: int = 5) -> OwnedStream:
        """Own a stream that is stored."""
        return self.link.own(id, epoch, head)

    def reserve(self) -> OwnedStream:
        """Own a stream that is only reserved."""
        request = {"op": "open", "wanted": "new", "owner": OWNER, "takeover": False, "create": dict(HEADER)}
        return self.link.own("new", 1, 0, request)

    def sent(self) -> list[Any]:
        """Take what the link wants to send now."""
        return self._decoder.feed(self.link.next_output())

    def groups(self) -> list[list[Any]]:
        """Take the groups of the one frame that the link wants to send now."""
        ((_, groups),) = self.sent()
        assert isinstance(groups, list)
        return groups

    def answer(self, number: int, *results: Any) -> None:
        """Answer a frame; errors as they cross."""
        wire = [error_to_wire(each) if isinstance(each, StorageError) else each for each in results]
        self.link.receive([number, wire])

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and the link look at it."""
        self.now += seconds
        self.link.tick()
