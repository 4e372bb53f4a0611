"""A queue of messages, bounded in number and in bytes, from any number of senders to one actor.

A full mailbox makes its senders wait, in the order in which they came; it never drops a message. Closed, it takes no
more and hands out what it has. It belongs to one event loop and is not for threads.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from .errors import MessageTooLarge

Message = TypeVar("Message")

MESSAGES_MAX = 1_000
"""How many messages a mailbox holds, if nothing else is said."""

BYTES_MAX = 32 * 1024 * 1024
"""How many bytes they may have together: at least two of the longest frames."""


class MailboxFull(Exception):
    """There is no room now, and this sender does not wait. Nothing was put."""


class MailboxClosed(Exception):
    """Its owner takes no more messages. Nothing was put."""


@dataclass(frozen=True, slots=True)
class MailboxStatistics:
    """A snapshot: the messages held, their bytes, and the senders that wait for room."""

    messages: int
    bytes: int
    senders_waiting: int


class _Entry(Generic[Message]):
    """One message on its way; `settled` is there, and set once it is in or refused, if its sender had to wait."""

    __slots__ = ("message", "refused", "settled", "size")

    def __init__(self, message: Message, size: int) -> None:
        self.message = message
        self.size = size
        self.settled: anyio.Event | None = None
        self.refused = False


class Mailbox(Generic[Message]):
    """The mailbox of one actor."""

    def __init__(self, *, messages_max: int = MESSAGES_MAX, bytes_max: int = BYTES_MAX) -> None:
        if messages_max < 1 or bytes_max < 0:
            raise ValueError("a mailbox needs room for one message")
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._entries: deque[_Entry[Message]] = deque()
        self._bytes = 0
        self._senders: deque[_Entry[Message]] = deque()
        self._arrival: anyio.Event | None = None
        self._closed = False

    async def put(self, message: Message, size: int = 0) -> None:
        """Put a message of `size` bytes, after waiting for room behind all who waited before.

        Cancelled while it waits, the message was not put, or is taken out again if nobody has got it yet.

        Raises:
            MailboxClosed: The mailbox is closed, or was closed meanwhile.
            MessageTooLarge: It could never have room.
        """
        entry = _Entry(message, size)
        if self._has_room(entry):
            self._add(entry)
            return
        entry.settled = anyio.Event()
        self._senders.append(entry)
        try:
            await entry.settled.wait()
        except BaseException:
            self._withdraw(entry)
            raise
        if entry.refused:
            raise MailboxClosed

    def put_nowait(self, message: Message, size: int = 0) -> None:
        """Put a message of `size` bytes at once, or not at all.

        Raises:
            MailboxFull: It has no room, or others wait for it.
            MailboxClosed: The mailbox is closed.
            MessageTooLarge: It could never have room.
        """
        entry = _Entry(message, size)
        if not self._has_room(entry):
            raise MailboxFull
        self._add(entry)

    async def get(self) -> Message:
        """Wait for the next message and take it. Cancelled, nothing was taken.

        Raises:
            MailboxClosed: The mailbox is closed and nothing is left in it.
        """
        # Even with messages at hand: their owner must not keep the loop for as long as others send.
        await checkpoint()
        while not self._entries:
            if self._closed:
                raise MailboxClosed
            if self._arrival is None:
                self._arrival = anyio.Event()
            await self._arrival.wait()
        entry = self._entries.popleft()
        self._bytes -= entry.size
        self._admit()
        return entry.message

    def close(self) -> None:
        """Take no more messages. Senders that wait for room are refused; what is in stays to be got."""
        self._closed = True
        while self._senders:
            entry = self._senders.popleft()
            entry.refused = True
            self._settle(entry)
        self._announce()

    def take_all(self) -> list[Message]:
        """Take out all messages that nobody has got; for the one who closed it and must answer for them."""
        messages = [entry.message for entry in self._entries]
        self._entries.clear()
        self._bytes = 0
        self._admit()
        return messages

    @property
    def closed(self) -> bool:
        """Whether it takes no more messages."""
        return self._closed

    @property
    def empty(self) -> bool:
        """Whether nothing is in it."""
        return not self._entries

    def statistics(self) -> MailboxStatistics:
        """Return what it holds now."""
        return MailboxStatistics(len(self._entries), self._bytes, len(self._senders))

    def _has_room(self, entry: _Entry[Message]) -> bool:
        if self._closed:
            raise MailboxClosed
        if entry.size > self._bytes_max:
            raise MessageTooLarge(entry.size, self._bytes_max, "mailbox")
        return not self._senders and self._fits(entry)

    def _fits(self, entry: _Entry[Message]) -> bool:
        return len(self._entries) < self._messages_max and self._bytes + entry.size <= self._bytes_max

    def _add(self, entry: _Entry[Message]) -> None:
        self._entries.append(entry)
        self._bytes += entry.size
        self._announce()

    def _admit(self) -> None:
        while self._senders and self._fits(self._senders[0]):
            entry = self._senders.popleft()
            self._add(entry)
            self._settle(entry)

    def _settle(self, entry: _Entry[Message]) -> None:
        if entry.settled is not None:
            entry.settled.set()

    def _announce(self) -> None:
        if self._arrival is not None:
            self._arrival.set()
            self._arrival = None

    def _withdraw(self, entry: _Entry[Message]) -> None:
        """Forget a message whose sender was cancelled: it waits, or was let in at the moment of the cancellation."""
        if entry in self._senders:
            self._senders.remove(entry)
        elif entry in self._entries:
            self._entries.remove(entry)
            self._bytes -= entry.size
        self._admit()
