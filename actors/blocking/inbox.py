"""A session's inbox for plain programs: each `next` waits for a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..session.inbox import Inbox, Message
from .loop import Loop


class BlockingInbox:
    """`Inbox`, as a plain iterator."""

    def __init__(self, loop: Loop, inbox: Inbox) -> None:
        self._loop = loop
        self._inbox = inbox

    def __iter__(self) -> BlockingInbox:
        return self

    def __next__(self) -> BlockingMessage:
        return BlockingMessage(self._loop, self._loop.call(self._inbox.__anext__))


class BlockingMessage:
    """`Message`, blocking."""

    def __init__(self, loop: Loop, message: Message) -> None:
        self.seq = message.seq
        self.type = message.type
        self.data = message.data
        self.sender = message.sender
        self.time = message.time
        self._loop = loop
        self._message = message

    def accept(self, type: str | None = None, data: Mapping[str, Any] | None = None) -> int:
        """Do as `Message.accept`."""
        return self._loop.call(self._message.accept, type, data)
