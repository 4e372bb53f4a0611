"""What a session was when it had fewer events: the turn that was open then, and its calls.

A summary says that of the whole log alone. So what a fork or a rewind begins with is read back from the log, page by
page, as far as the nearest event that began or ended a turn; what was rewound is stepped over. No event loop is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnkeeper.storage.backend import BackendReader

from ..folding import TURN_END, TURN_START, TurnState, count_or_none
from ..records import Event
from .looking import PAGE_EVENTS, whole_events, whole_page
from .rewinds import Range, live_ranges, newest_rewind

PIECE_EVENTS_FIRST = 32
"""How many events are looked at first; then twice as many each time, up to a page."""

_TYPE = b',"type":"'
_TURN_TYPES = tuple(b'%b%b"' % (_TYPE, type.encode()) for type in (TURN_START, TURN_END))


def state_at(reader: BackendReader, id: str, summary: Mapping[str, Any], stop: int) -> TurnState:
    """Give the turn of a session as its first `stop` events left it; `summary` is that of the whole of it.

    Raises Corrupt if an event that this needs can't be read.
    """
    whole = TurnState.from_summary(summary)
    state = TurnState(rewound=newest_rewind(reader, id, whole.rewound, stop))
    if whole.turns == 0:
        return state
    ranges = live_ranges(reader, id, state.rewound, stop)
    nearest = _nearest_turn_event(reader, id, ranges)
    if nearest is None:
        return state
    # A turn that doesn't say its number is given one that none has.
    number = count_or_none(nearest.data.get("turn"))
    if nearest.type == TURN_END:
        state.turn = state.turns = whole.turns if number is None else number
        return state
    state.turns = whole.turns if number is None else 0
    for start, end in ranges:
        for event in whole_events(reader, id, max(start, nearest.seq), end):
            state.fold(event.seq, event.type, event.data)
    return state


def _nearest_turn_event(reader: BackendReader, id: str, ranges: list[Range]) -> Event | None:
    """Give the last event of the ranges that began or ended a turn."""
    for start, stop in _pieces_from_the_end(ranges):
        for stored in reversed(whole_page(reader, id, start, stop)):
            if stored.line.startswith(_TURN_TYPES, stored.line.find(_TYPE)):
                return Event.from_stored(stored)
    return None


def _pieces_from_the_end(ranges: list[Range]) -> Iterator[Range]:
    """Cut ranges into pieces, from their end on: most turns are short, so the first pieces are."""
    size = PIECE_EVENTS_FIRST
    for start, stop in reversed(ranges):
        while stop > start:
            begin = max(start, stop - size)
            yield begin, stop
            stop = begin
            size = min(2 * size, PAGE_EVENTS)
