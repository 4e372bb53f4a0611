"""Walking over a session's events, however many there are: a page is held at a time, and of large data one event's.

What comes next is asked for in portions, so that a program without an event loop needn't cross to its thread for each
event. A walk holds nothing between two portions that would need to be closed; cancelled in the middle it has lost
nothing and goes on where it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from itertools import takewhile
from typing import Generic, Protocol, TypeVar

from turnkeeper.storage.errors import Corrupt
from turnkeeper.storage.requests import Gap

from ..blob_references import blob_of_stub
from ..records import Event
from .logs import StoredLog, Stretch

PAGE_BYTES = 1024 * 1024
PAGE_EVENTS = 10_000
"""What is held at a time: events whose lines have so many bytes, and so many events."""

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class Portions(Protocol[Item_co]):
    """What gives its items in portions."""

    async def next_portion(self) -> Sequence[Item_co]:
        """Give the next items, at least one; none at the end."""
        ...


class Walk:
    """The events of some stretches of a log, in order, and the gaps where events can't be read."""

    def __init__(self, log: StoredLog, stretches: Sequence[Stretch]) -> None:
        self._log = log
        self._stretches = deque(stretches)
        self._found: deque[Event | Gap] = deque()

    async def next_portion(self) -> list[Event | Gap]:
        """Give the next ones; none at the end. Raises NotFound, Ambiguous."""
        while not self._found and self._stretches:
            await self._look()
        portion = list(takewhile(_is_at_hand, self._found))
        if portion:
            await self._log.upgrade([each for each in portion if isinstance(each, Event)])
        elif self._found:
            portion = [await self._whole(self._found[0])]
        for _ in portion:
            self._found.popleft()
        return portion

    async def _whole(self, event: Event | Gap) -> Event | Gap:
        """Read what an event has in a blob."""
        assert isinstance(event, Event)
        return await self._log.make_whole(event) or event

    async def _look(self) -> None:
        start, stop = self._stretches[0]
        page = await self._log.look(start=start, stop=stop, limit=PAGE_EVENTS, size_max=PAGE_BYTES)
        found = sorted([*page, *page.missing], key=lambda each: _extent(each)[0])
        if found and (stop is None or _extent(found[-1])[1] < stop):
            self._stretches[0] = (_extent(found[-1])[1], stop)
        else:
            self._stretches.popleft()
        self._found.extend(found)


def _is_at_hand(found: Event | Gap) -> bool:
    """Say whether nothing of it lies in a blob."""
    return isinstance(found, Gap) or blob_of_stub(found.data) is None


def _extent(found: Event | Gap) -> tuple[int, int]:
    """Give the first number and the one behind the last."""
    return (found.seq, found.seq + 1) if isinstance(found, Event) else (found.first, found.first + found.events)


class Walking(AsyncIterator[Item], Generic[Item]):
    """An iterator over what comes in portions, for one task at a time."""

    def __init__(self, portions: Portions[Item]) -> None:
        self._portions = portions
        self._left: deque[Item] = deque()

    async def __anext__(self) -> Item:
        if not self._left:
            self._left.extend(await self._portions.next_portion())
            if not self._left:
                raise StopAsyncIteration
        return self._left.popleft()

    async def next_portion(self) -> list[Item]:
        """Give what is at hand, else the next portion; none at the end."""
        left = list(self._left) or list(await self._portions.next_portion())
        self._left.clear()
        return left


class Events:
    """A walk's events alone: where some can't be read it raises Corrupt, which names them, and then goes on behind."""

    def __init__(self, log: StoredLog, id: str, start: int) -> None:
        self._id = id
        self._walk = Walk(log, [(start, None)])
        self._left: deque[Event | Gap] = deque()

    async def next_portion(self) -> list[Event]:
        """Give the events up to the next gap; none at the end. Raises Corrupt, NotFound, Ambiguous."""
        if not self._left:
            self._left.extend(await self._walk.next_portion())
        events: list[Event] = []
        while self._left and isinstance(self._left[0], Event):
            events.append(self._left.popleft())  # type: ignore[arg-type]
        if not events and self._left:
            gap = self._left.popleft()
            assert isinstance(gap, Gap)
            raise Corrupt(self._id, gap.reason, gap.path, gap.offset, [(gap.first, gap.events)])
        return events
