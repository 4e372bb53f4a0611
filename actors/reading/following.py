"""Following the store's events: a reader of the journal with a wake-up.

What is durable is read from the files, in the order of positions, and the writer only says that there is more. So a
follower can't lose anything at the seam between old and new, lags behind at no cost to anybody, and goes on over
restarts of node and writer from the position that it has reached. Only of a position that the store doesn't have (any
more) nobody can go on: that is told, and never waited for. What is lost is told, too, once and where it would have
come; so are events of nobody knows which stream, to everybody. What can't be read now, but may be later, isn't passed
over.

What isn't durable yet may be followed beside it: latest values, which come by the bus. One is shown only when all that
is durable of its stream was shown, and never once its event is durable: so it neither overtakes nor repeats anything.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from turnkeeper.storage.backend import BackendReader
from turnkeeper.storage.errors import Ambiguous, NotFound
from turnkeeper.storage.requests import Gap, LostEvents, PositionPage, check_bounds

from ..client.bus import Listener
from ..errors import PositionLost
from ..latest_values import Name
from ..records import Event
from .logs import schemas_of
from .naming import find_row

if TYPE_CHECKING:
    from ..client.client import Client
    from ..vocabulary import Schemas

NO_EVENT = "what is stored in its place is no event"

READ_BYTES = 256 * 1024
"""How many bytes of events one look into the journal takes, at least one batch."""

Matcher = Callable[[str], object]
Live = tuple[Name, dict[str, Any]]


class Following:
    """An endless iterator over events with a position above `after`; see `Runtime.follow`.

    For one task at a time. Cancelled in the middle it has lost nothing: the next `__anext__` goes on where it was.
    """

    def __init__(
        self, client: Client, ids: Sequence[str], after: int | None, types: Sequence[str], ephemeral: bool = False
    ) -> None:
        check_bounds(after)
        self._client = client
        self._is_ephemeral = ephemeral
        self._listener: Listener | None = None
        self._ids = ids
        self._after = after
        self._match_type = pattern_matcher(types)
        self._match_stream: Matcher | None = None
        self._found: deque[Event | LostEvents | Live] = deque()
        self._schemas: dict[str, Schemas] = {}

    def __aiter__(self) -> Following:
        return self

    async def __anext__(self) -> Event:
        while True:
            while not self._found:
                await self._look()
            found = self._found[0]
            if isinstance(found, LostEvents):
                self._found.popleft()
                raise found.as_error()
            if not isinstance(found, Event):
                self._found.popleft()
                if self._take_live(found):
                    return _live_event(found)
                continue
            # Only what is asked for is read whole, so that large events wait on the disk and not here.
            gap = await self._client.blobs.complete_one(found)
            self._found.popleft()
            if gap is not None:
                raise LostEvents(found.position, 1, found.stream, gap).as_error()
            self._client.vocabulary.upgrade([found], self._schemas.get(found.stream) or {})
            return found

    async def aclose(self) -> None:
        """End the following. One that is only dropped holds nothing but, maybe, values that nobody takes."""
        listener, self._listener = self._listener, None
        if listener is not None:
            self._client.bus.forget(listener)

    async def _look(self) -> None:
        """Read the next piece of the journal, or wait for one."""
        client = self._client
        if self._match_stream is None:
            await self._begin()
        if self._after is None:
            self._after = await client.next_position() - 1
        client.check()
        listener = self._listener
        live: list[Live] = []
        if listener is not None:
            listener.has_news = False
            live = listener.values.items()
        found, after, shown, stale = await client.reads.call(partial(self._scan, live))
        for each in stale:
            self._take_live(each)
        if after == self._after and not shown:
            await client.wait_position(after, listener)
        self._found.extend(found)
        self._found.extend(shown)
        self._after = after

    async def _begin(self) -> None:
        ids = [await self._resolved(each) for each in self._ids]
        self._match_stream = match_stream = pattern_matcher(ids)
        if self._is_ephemeral:
            match_type = self._match_type
            topics = None if not ids or any("*" in id for id in ids) else frozenset(ids)
            self._listener = Listener(topics, lambda topic, type: match_stream(topic) and match_type(type))
            self._client.bus.listen(self._listener)

    def _scan(
        self, live: Sequence[Live], reader: BackendReader
    ) -> tuple[list[Event | LostEvents], int, list[Live], list[Live]]:
        """Read what is durable, up to a position; and say which live values may be shown behind that, and which never.

        The others wait for more that is durable.
        """
        assert self._after is not None
        assert self._match_stream is not None
        page = reader.scan(self._after, READ_BYTES)
        after = page.reached
        if after == self._after >= (due := reader.next_position()):
            raise PositionLost(after, due)
        events, lost = self._followed(page)
        versioned = {event.stream for event in events if self._client.vocabulary.is_upgraded(event.type)}
        found: list[Event | LostEvents] = [*events]
        if lost:
            found = sorted([*events, *lost], key=lambda each: each.position)
        self._schemas = {stream: schemas_of(reader, stream) for stream in versioned}
        shown: list[Live] = []
        stale: list[Live] = []
        for name, value in live:
            head, position = _end_of(reader, name[0])
            if not _is_event(value) or value["seq"] < head:
                stale.append((name, value))
            elif value["seq"] == head and position <= after:
                shown.append((name, value))
        return found, after, shown, stale

    def _followed(self, page: PositionPage) -> tuple[list[Event], list[LostEvents]]:
        """Give what is followed of a page's events, and what the streams that are followed lost, or may have lost."""
        assert self._match_stream is not None
        lost = [each for each in page.lost if not each.stream or self._match_stream(each.stream)]
        events = []
        for stored in page.events:
            if self._match_stream(stored.stream):
                try:
                    event = Event.from_stored(stored)
                except ValueError:
                    lost.append(LostEvents(stored.position, 1, stored.stream, Gap(stored.seq, 1, NO_EVENT, "", 0)))
                    continue
                if self._match_type(event.type):
                    events.append(event)
        return events, lost

    def _take_live(self, live: Live) -> bool:
        """Forget a value, and say whether it was still the latest."""
        return self._listener is not None and self._listener.values.take(*live)

    async def _resolved(self, wanted: str) -> str:
        """Give the id that is meant; a pattern stays one, and a session that is open here needn't have events yet."""
        if "*" in wanted:
            return wanted
        here = self._client.stream_open_here(wanted)
        if here is not None:
            return here.id
        return (await self._client.reads.call(lambda reader: find_row(reader, wanted))).id


def _end_of(reader: BackendReader, stream: str) -> tuple[int, int]:
    """Give how many durable events a stream has, and the last one's position."""
    try:
        row = reader.row(stream)
    except (NotFound, Ambiguous):
        return 0, 0
    return (row.head, row.position) if row.id == stream else (0, 0)


def _is_event(value: dict[str, Any]) -> bool:
    """Say whether what came by the bus is what an event is made of."""
    form = {"seq": int, "time": int, "data": dict}
    return all(isinstance(value.get(name), kind) for name, kind in form.items())


def _live_event(live: Live) -> Event:
    (stream, type), value = live
    return Event(0, stream, value["seq"], type, value["data"], value["time"])


def pattern_matcher(patterns: Sequence[str]) -> Matcher:
    """Make the test whether a text fits one of the patterns, in which `*` stands for anything; none fit all."""
    if not patterns:
        return lambda text: True
    parts = (".*".join(re.escape(piece) for piece in pattern.split("*")) for pattern in patterns)
    return re.compile("|".join(f"(?:{part})" for part in parts), re.DOTALL).fullmatch
