"""Looking at a stream without owning it: its events, in the closed form where its owner is gone. Nothing is written.

What a crash left open is closed by the next opening, not by looking. Until then a look shows what that opening will
append: the same events with the same numbers, without a position, as they aren't durable. No event loop is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from turnkeeper.storage.backend import BackendReader
from turnkeeper.storage.errors import Corrupt
from turnkeeper.storage.requests import Page, StoredEvent, StreamRow, check_bounds

from ..folding import TurnState
from ..records import Event, EventPage, status_of
from .naming import find_row

PAGE_EVENTS = 1000
"""How many events are held at a time where many are looked at."""


def read_page(
    reader: BackendReader,
    wanted: str,
    *,
    start: int = 0,
    last: int | None = None,
    stop: int | None = None,
    limit: int = 1000,
    size_max: int | None = None,
) -> EventPage:
    """Read events of the stream that an id, a unique prefix or a key names.

    Gives those from `start` to `stop` (without it), at most `limit` and none behind the one with which their lines have
    `size_max` bytes, or the `last` ones. Raises NotFound, Ambiguous, ValueError for a bound that is negative or no
    whole number.
    """
    row = find_row(reader, wanted)
    check_bounds(start, last, stop, limit)
    # The end of an open turn costs a look at all of that turn, so it is made up only where it can be seen.
    end = row.head if stop is None else stop
    closing = closing_events(reader, row) if last is not None or start + limit > row.head >= end - 1 else []
    if last is not None:
        start, limit = max(0, row.head + len(closing) - last), last
    page = reader.read(row.id, start=start, stop=stop, limit=limit, size_max=size_max)
    shown = EventPage(map(Event.from_stored, page.events), head=page.head, missing=page.missing)
    if page.head == row.head and (size_max is None or _end_of(page, start) >= row.head):
        seen = [event for event in closing if event.seq >= start and (stop is None or event.seq < stop)]
        shown += seen[: limit - len(shown)]
    return shown


def _end_of(page: Page, start: int) -> int:
    """Give the number behind all that a read from `start` on has gone through."""
    ends = [gap.first + gap.events for gap in page.missing] + [stored.seq + 1 for stored in page.events[-1:]]
    return max(ends, default=start)


def closing_events(reader: BackendReader, row: StreamRow) -> list[Event]:
    """Give the events that the next opening will append; none where nothing is open, or a living owner has it."""
    summary = row.summary
    state = TurnState.from_summary(summary)
    if state.open_turn is None or summary.get("damaged") or status_of(summary.get("owner")) == "active":
        return []
    try:
        time = fold_open_turn(reader, row.id, row.head, state)
    except Corrupt:
        return []
    closing = enumerate(state.closing("interrupted"), row.head)
    return [Event(0, row.id, seq, type, data, time) for seq, (type, data) in closing]


def fold_open_turn(reader: BackendReader, id: str, stop: int, state: TurnState) -> int:
    """Fold the events from the open turn's start up to number `stop` into the state; give the last one's time, in ms.

    The same for a turn that an opening has closed, as far as late results may follow it soon. Raises Corrupt if some of
    the events can't be read.
    """
    time = 0
    start = state.left_open
    if start is None:
        return time
    for event in whole_events(reader, id, start, stop):
        if state.open_turn is None and event.seq >= start + PAGE_EVENTS:
            break
        state.fold(event.seq, event.type, event.data)
        time = event.time
        if state.open_turn is not None:
            start = event.seq
    return time


def whole_events(reader: BackendReader, id: str, start: int, stop: int) -> Iterator[Event]:
    """Walk the events from `start` to `stop` (without it), page by page; see `whole_page`."""
    for first in range(start, stop, PAGE_EVENTS):
        yield from map(Event.from_stored, whole_page(reader, id, first, min(stop, first + PAGE_EVENTS)))


def whole_page(reader: BackendReader, id: str, start: int, stop: int) -> list[StoredEvent]:
    """Read the events from `start` to `stop` (without it). Raises Corrupt if some of them can't be read."""
    page = reader.read(id, start=start, stop=stop, limit=stop - start)
    if page.missing:
        gap = page.missing[0]
        places = [(each.first, each.events) for each in page.missing]
        raise Corrupt(id, gap.reason, gap.path, gap.offset, places)
    return page.events
