"""Following the store's events: a reader of the journal with a wake-up.

What is durable is read from the files, in the order of positions, and the writer only says that there is more. So a
follower can't lose anything at the seam between old and new, lags behind at no cost to anybody, and goes on over
restarts of node and writer from the position that it has reached. Only of a position that the store doesn't have (any
more) nobody can go on: that is told, and never waited for.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from turnkeeper.storage.backend import BackendReader
from turnkeeper.storage.errors import NotFound
from turnkeeper.storage.requests import check_bounds

from .errors import PositionLost
from .records import Event

if TYPE_CHECKING:
    from .client import Client

READ_BYTES = 256 * 1024
"""How many bytes of events one look into the journal takes, at least one batch."""

Matcher = Callable[[str], object]


class Following:
    """An endless iterator over events with a position above `after`; see `Runtime.follow`.

    For one task at a time. Cancelled in the middle it has lost nothing: the next `__anext__` goes on where it was.
    """

    def __init__(self, client: Client, ids: Sequence[str], after: int | None, types: Sequence[str]) -> None:
        check_bounds(after)
        self._client = client
        self._ids = ids
        self._after = after
        self._match_type = pattern_matcher(types)
        self._match_stream: Matcher | None = None
        self._found: deque[Event] = deque()

    def __aiter__(self) -> Following:
        return self

    async def __anext__(self) -> Event:
        while True:
            while not self._found:
                await self._look()
            # Only what is asked for is read whole, so that large events wait on the disk and not here.
            is_whole = await self._client.blobs.complete_one(self._found[0])
            event = self._found.popleft()
            if is_whole:
                return event

    async def aclose(self) -> None:
        """Nothing is held between two events, so nothing needs to be closed."""

    async def _look(self) -> None:
        """Read the next piece of the journal, or wait for one."""
        client = self._client
        if self._match_stream is None:
            self._match_stream = pattern_matcher([await self._resolved(each) for each in self._ids])
        if self._after is None:
            self._after = await client.next_position() - 1
        client.check()
        found, after = await client.reads.call(self._scan)
        if after == self._after:
            await client.wait_position(after)
        self._found.extend(found)
        self._after = after

    def _scan(self, reader: BackendReader) -> tuple[list[Event], int]:
        assert self._after is not None
        assert self._match_stream is not None
        stored, after = reader.scan(self._after, READ_BYTES)
        if after == self._after >= (due := reader.next_position()):
            raise PositionLost(after, due)
        events = [Event.from_stored(each) for each in stored if self._match_stream(each.stream)]
        return [event for event in events if self._match_type(event.type)], after

    async def _resolved(self, wanted: str) -> str:
        """Give the id that is meant; a pattern stays one, and a session that is open here needn't have events yet."""
        if "*" in wanted or any(stream.id == wanted for stream in self._client.link.streams):
            return wanted
        try:
            return await self._client.reads.call(lambda reader: reader.resolve(wanted))
        except NotFound:
            for stream in self._client.link.streams:
                if stream.reservation is not None and stream.reservation["create"].get("key") == wanted:
                    return stream.id
            raise


def pattern_matcher(patterns: Sequence[str]) -> Matcher:
    """Make the test whether a text fits one of the patterns, in which `*` stands for anything; none fit all."""
    if not patterns:
        return lambda text: True
    parts = (".*".join(re.escape(piece) for piece in pattern.split("*")) for pattern in patterns)
    return re.compile("|".join(f"(?:{part})" for part in parts), re.DOTALL).fullmatch
