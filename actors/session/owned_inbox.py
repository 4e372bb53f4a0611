"""A session's inbox as its owner sees it: what it has accepted, what there is to read, and waiting for more.

One wish to hear of news is with the writer at a time, shared by all who wait: a wait that is cancelled leaves it there
for the next one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from turnkeeper.storage.backend import BackendReader
from turnkeeper.storage.errors import Corrupt, Fenced, NotFound
from turnkeeper.storage.requests import Gap

from ..client.control_request import Request
from ..client.owned_stream import OwnedStream
from ..errors import AlreadyAccepted, SessionClosed, TooFarAhead
from ..ids import inbox_id
from ..protocol import LISTEN, UNLISTEN
from ..records import Event, EventPage
from .acceptance import Accepted
from .sending import make_known

if TYPE_CHECKING:
    from ..client.client import Client

PAGE_MESSAGES = 32
"""How many messages are read at a time; what is large lies in blobs, which are read one by one."""


class _Listening(NamedTuple):
    next: int
    request: Request
    answered: anyio.Event


class OwnedInbox:
    """The inbox of the session that `stream` is. `accepted` is what of it the session has accepted."""

    def __init__(self, client: Client, stream: OwnedStream, accepted: Accepted) -> None:
        self.id = inbox_id(stream.id)
        self.accepted = accepted
        self._client = client
        self._stream = stream
        self._listening: _Listening | None = None
        self._lost: set[tuple[int, int]] = set()
        self._is_closed = False

    def check(self) -> None:
        """Raise why nothing can be taken from it any more: the session was closed, or is another's."""
        self._stream.check_owned()
        if self._is_closed:
            raise SessionClosed(self._stream.id)

    async def begin(self) -> None:
        """See that there can be messages: to a session of which nothing is stored nobody can send any."""
        await make_known(self._client, self._stream)

    async def page(self, start: int) -> EventPage:
        """Read the messages that are there from number `start` on, some at most; large ones not whole yet."""
        return await self._client.reads.call(partial(_read, id=self.id, start=start))

    async def news(self, next: int) -> EventPage:
        """Wait until there is a message with the number `next`, and give it and some behind it.

        Cancelled it has taken nothing. Raises Fenced when the session was taken over, SessionClosed when it is closed.
        """
        self.check()
        listening = self._listen(next)
        is_late = listening.request.is_answered
        await listening.answered.wait()
        if self._listening is listening:
            self._listening = None
        request = listening.request
        if isinstance(request.error, Fenced):
            await self._lose(request.error)
        if request.error is not None:
            raise request.error
        assert request.reply is not None
        lines: bytes = request.reply["lines"]
        if is_late or not lines:
            return await self.page(next)
        events = [Event.from_line(line, 0) for line in lines.split(b"\n")[:-1]]
        return EventPage(events, head=request.reply["head"])

    async def complete(self, event: Event) -> list[Gap]:
        """Read the data of a large message; give what can't be read of it."""
        page = EventPage([event])
        await self._client.blobs.complete(page)
        if not page.missing and not _is_message(event.data):
            return [Gap(event.seq, 1, "it is no message", "", 0)]
        return page.missing

    def taken_with(self, seq: int) -> Accepted:
        """Give what is accepted once message `seq` is: with it what is lost before it, so that it is told no more.

        Raises AlreadyAccepted, TooFarAhead.
        """
        if seq in self.accepted:
            raise AlreadyAccepted(self._stream.id, seq)
        accepted = self.accepted.plus((seq, seq), *(each for each in self._lost if each[1] < seq))
        if not accepted.is_kept:
            raise TooFarAhead(self._stream.id, seq, self.accepted.next)
        return accepted

    def tell_lost(self, gaps: list[Gap]) -> None:
        """Raise Corrupt for messages that can't be read, unless they were accepted, or that was told before."""
        ranges = [(gap.first, gap.first + gap.events - 1) for gap in gaps]
        untold = [
            gap
            for gap, (first, last) in zip(gaps, ranges, strict=True)
            if (first, last) not in self._lost and not all(seq in self.accepted for seq in range(first, last + 1))
        ]
        self._lost.update(ranges)
        if untold:
            _, _, reason, path, offset = untold[0]
            raise Corrupt(self.id, reason, path, offset, [(gap.first, gap.events) for gap in untold])

    def close(self) -> None:
        """Tell those who wait that the session is closed, and the writer that nobody listens."""
        self._is_closed = True
        listening, self._listening = self._listening, None
        if listening is not None and not listening.request.is_answered:
            message = {**listening.request.message, "op": UNLISTEN}
            self._client.link.ask(message)
            listening.request.answer(None, SessionClosed(self._stream.id))

    def _listen(self, next: int) -> _Listening:
        listening = self._listening
        if listening is None or listening.next != next:
            message = {"op": LISTEN, "session": self._stream.id, "epoch": self._stream.epoch, "next": next}
            listening = _Listening(next, self._client.link.ask(message), self._client.new_event())
            listening.request.wake = listening.answered.set
            if listening.request.is_answered:
                listening.answered.set()
            self._listening = listening
        return listening

    async def _lose(self, fenced: Fenced) -> None:
        """Take note that the session is another's. Raises Fenced.

        What may be stored already is sent once more first: its answer says what is.
        """
        stream, link = self._stream, self._client.link
        while stream.refusal is None and not stream.is_settled:
            link.request_flush(stream)
            await self._client.wait_change(stream)
        if stream.refusal is None:
            link.lose(stream, fenced)
        stream.raise_failure()


def _is_message(data: dict[str, Any]) -> bool:
    sender = data.get("sender")
    return isinstance(data.get("type"), str) and isinstance(data.get("data"), dict) and isinstance(sender, str | None)


def _read(reader: BackendReader, *, id: str, start: int) -> EventPage:
    try:
        page = reader.read(id, start=start, limit=PAGE_MESSAGES)
    except NotFound:
        return EventPage()  # nobody has sent anything yet
    return EventPage(map(Event.from_stored, page.events), head=page.head, missing=page.missing)
