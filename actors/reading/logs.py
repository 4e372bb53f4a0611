"""A session's log as it is read: page by page, whole, and in the present versions of its types.

A page is *looked at* first: cheap, as it lies there, with stubs in place of what was too large for lines. What a
program gets is made whole and upgraded after that. The log of a session that is open here ends with what is buffered;
any other ends with what is durable, in its closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from turnkeeper.storage.backend import BackendReader
from turnkeeper.storage.errors import NotFound
from turnkeeper.storage.requests import Gap, check_bounds

from ..folding import TurnState
from ..kinds import require_session
from ..log_summary import LogSummary
from ..records import Event, EventPage
from .looking import read_page
from .naming import find_row
from .rewinds import Rewind, live_ranges

if TYPE_CHECKING:
    from ..client.client import Client
    from ..client.owned_stream import OwnedStream
    from ..vocabulary import Schemas

Stretch: TypeAlias = tuple[int, int | None]
"""Events from the first number to the second, without it; None is wherever the log ends then."""


class StoredLog:
    """The durable events of the session that an id, a unique prefix or a key names."""

    def __init__(self, client: Client, wanted: str) -> None:
        self._client = client
        self._wanted = wanted

    async def read(
        self, *, start: int = 0, last: int | None = None, stop: int | None = None, limit: int = 1000
    ) -> EventPage:
        """Read events as `looking.read_page` does, whole and upgraded. Raises NotFound, Ambiguous, TooLarge."""
        page = await self.look(start=start, last=last, stop=stop, limit=limit)
        await self._client.blobs.complete(page)
        await self.upgrade(page)
        return page

    async def look(
        self,
        *,
        start: int = 0,
        last: int | None = None,
        stop: int | None = None,
        limit: int = 1000,
        size_max: int | None = None,
    ) -> EventPage:
        """Read events as they lie there; see `looking.read_page`."""
        look = partial(read_page, start=start, last=last, stop=stop, limit=limit, size_max=size_max)
        return await self._client.reads.call(partial(look, wanted=self._wanted))

    async def make_whole(self, event: Event) -> Gap | None:
        """Read an event's data, if it lies elsewhere, and upgrade it; say what is missing if that can't be read."""
        gap = await self._client.blobs.complete_one(event)
        if gap is None:
            await self.upgrade([event])
        return gap

    async def upgrade(self, events: list[Event]) -> None:
        """Put whole events into the present versions of their types. Raises InvalidValue."""
        vocabulary = self._client.vocabulary
        if vocabulary.has_upgrades and any(vocabulary.is_upgraded(event.type) for event in events):
            vocabulary.upgrade(events, await self._schemas())

    async def live_stretches(self) -> list[Stretch]:
        """Give the stretches of the log that no rewind has taken out, in order; the last one is open at its end.

        Raises NotFound, Ambiguous; Corrupt if it can't be told.
        """
        return await self._client.reads.call(partial(_live_stretches, wanted=self._wanted))

    async def _schemas(self) -> Schemas:
        return await self._client.reads.call(partial(schemas_of, id=self._wanted))


class OwnedLog(StoredLog):
    """The events of a session that is open here, those in its buffer too.

    `summary`, `state` and `rewinds` are the session's own, which knows what its buffer changes.
    """

    def __init__(
        self, client: Client, stream: OwnedStream, summary: LogSummary, state: TurnState, rewinds: Sequence[Rewind]
    ) -> None:
        super().__init__(client, stream.id)
        self._stream = stream
        self._summary = summary
        self._state = state
        self._rewinds = rewinds

    async def look(
        self,
        *,
        start: int = 0,
        last: int | None = None,
        stop: int | None = None,
        limit: int = 1000,
        size_max: int | None = None,
    ) -> EventPage:
        """Read events as they lie there or wait in the buffer, those with position 0."""
        check_bounds(start, stop, limit, last)
        stream = self._stream
        stream.cut_text()
        buffered, first, head = stream.unacknowledged_lines(), stream.acknowledged, stream.head
        if last is not None:
            start, limit = max(0, head - last), last
        end = head if stop is None else min(stop, head)
        page = EventPage(head=head)
        if start < min(first, end):
            page = await super().look(start=start, stop=min(first, end), limit=limit, size_max=size_max)
            page.head = head
            if size_max is not None and page:
                return page  # what is buffered comes with the next look
        wanted = min(end, start + limit) - first
        if wanted > 0:
            page += [Event.from_line(line, 0) for line in buffered[max(0, start - first) : wanted]]
        return page

    async def live_stretches(self) -> list[Stretch]:
        """Give the stretches that no rewind has taken out, up to the present head. Raises Corrupt."""
        self._stream.cut_text()
        head, newest = self._stream.head, self._state.rewound
        if newest is None:
            return [(0, head)]
        find = partial(live_ranges, id=self._wanted, newest=newest, stop=head, unstored=list(self._rewinds))
        return [*await self._client.reads.call(find)]

    async def _schemas(self) -> Schemas:
        return self._summary.schemas


def _live_stretches(reader: BackendReader, wanted: str) -> list[Stretch]:
    row = require_session(find_row(reader, wanted))
    newest = TurnState.from_summary(row.summary).rewound
    ranges = live_ranges(reader, row.id, newest, row.head)
    if ranges and ranges[-1][1] == row.head:
        return [*ranges[:-1], (ranges[-1][0], None)]
    return [*ranges, (row.head, None)]


def schemas_of(reader: BackendReader, id: str) -> Schemas:
    """Give what a session's summary says of versioned types; nothing if nothing of the session is stored."""
    try:
        return LogSummary.from_summary(reader.row(id).summary).schemas
    except NotFound:
        return {}
