"""The messages of a session's inbox, one after the other, and accepting them.

A message is given to each iteration once, and again to the next opening, until it is accepted. Accepting appends one
record to the session's log, which marks the message and says what became of it, so neither is there without the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from turnkeeper.storage.errors import InvalidValue

from ..core_types import INBOX_ACCEPTED
from ..records import Event, EventPage
from .acceptance import WakeBudget

if TYPE_CHECKING:
    from .owned_inbox import OwnedInbox
    from .session import Session

NUMBER: Final = "inbox"
"""Member of the record that accepts a message: the message's number."""


@dataclass(slots=True, eq=False)
class Message:
    """A message in a session's inbox. `seq` is its number there, `time` when it was sent, in ms since 1970.

    `sender` is the session or task that sent it, None where a program did so in nobody's name.
    """

    seq: int
    type: str
    data: dict[str, Any]
    sender: str | None
    time: int
    _session: Session = field(repr=False)

    async def accept(self, type: str | None = None, data: Mapping[str, Any] | None = None) -> int:
        """Take the message: append the one record that says so, and return its number in the session's log.

        The record has the given type and data (the message's own data if none is given), and as its member `inbox` the
        message's number. Without a type it is an `inbox/accepted` with the number alone. Buffered, and durable with the
        next flush, as every event; until then a crash brings the message again. Waits and is cancelled as `append`.

        Raises:
            AlreadyAccepted: It was accepted before. Nothing was appended.
            TooFarAhead: Too many messages before it were passed over; accept those first.
            ValueError: There is data, and no type for it.
            InvalidValue, Fenced, SessionClosed, …: As `append`.
        """
        if type is None and data is not None:
            raise ValueError("data needs a type: accept(type, data)")
        if type is None:
            type, data = INBOX_ACCEPTED, {}
        given = self.data if data is None else data
        if not isinstance(given, Mapping):
            raise InvalidValue(0, type, "$", f"data must be a mapping, not {given.__class__.__name__}")
        return await self._session._numbering.append(type, {**given, NUMBER: self.seq}, accepting=self.seq)


class Inbox:
    """An endless iterator over the messages that aren't accepted yet; see `Session.inbox`.

    For one task at a time. Cancelled in the middle it has lost nothing: the next `__anext__` goes on where it was.
    """

    def __init__(self, session: Session, owned: OwnedInbox, wakes_max: int | None) -> None:
        self._session = session
        self._owned = owned
        self._budget = WakeBudget(wakes_max)
        self._found: deque[Event] = deque()
        # The first message that wasn't looked at yet (None before the first look), the number of messages there are as
        # far as is known, below which one wakes nobody, and the first one that is held back.
        self._next: int | None = None
        self._head = 0
        self._waking = 0
        self._held: int | None = None

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> Message:
        owned = self._owned
        while True:
            owned.check()
            while not self._found:
                await self._look()
            event = self._found[0]
            gaps = [] if event.seq in owned.accepted else await owned.complete(event)
            self._found.popleft()
            owned.tell_lost(gaps)
            if event.seq not in owned.accepted:
                given = event.data
                return Message(event.seq, given["type"], given["data"], given["sender"], event.time, self._session)

    async def aclose(self) -> None:
        """Nothing is held between two messages, so nothing needs to be closed."""

    async def _look(self) -> None:
        """Read some messages that weren't looked at, or wait for one. Raises Corrupt, once, if they can't be read."""
        start = self._next
        if start is None:
            await self._owned.begin()
            start = self._owned.accepted.next
            page = await self._owned.page(start)
            self._waking = page.head
        elif start < self._head:
            page = await self._owned.page(start)
        else:
            page = await self._owned.news(start)
        self._take(start, page)
        self._owned.tell_lost(page.missing)

    def _take(self, start: int, page: EventPage) -> None:
        """Take a page into account: what it gives, or what is held back, and where to go on."""
        ends = [event.seq + 1 for event in page[-1:]] + [gap.first + gap.events for gap in page.missing]
        self._next = max([start, *ends])
        self._head = max(self._head, page.head)
        senders = [event.data.get("sender") for event in page]
        if start < self._waking or not senders:
            self._budget.note(senders)
            self._found.extend(page)
        elif not self._budget.admit(senders):
            self._held = start if self._held is None else self._held
        else:
            self._waking = self._head
            if self._held is None:
                self._found.extend(page)
            else:
                # What was held back wasn't kept; it is read again, now that it may go.
                self._next, self._held = self._held, None
