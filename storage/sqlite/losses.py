"""What the database lacks of the events: rows that are gone, or on a page that can't be read, and whose they were.

Every event has a position, and positions are whole numbers without a hole. Whose an event is stands in its row and in
the index of numbers; where both lost it, the streams that have fewer rows than events are named for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import pairwise

from ..requests import Gap, LostEvents
from . import DATABASE_FILE, streams

ROWS_GONE = "their rows are gone"
PAGE_DAMAGED = "the page that held them is damaged"
NOBODYS = "their rows are gone, and nothing says any more whose they were, so any session may have lost them"


def lost_between(database: sqlite3.Connection, begin: int, end: int) -> list[LostEvents]:
    """Say what is lost of the events with positions from `begin` to `end` (without it), of which no row can be read."""
    named: list[LostEvents] = []
    lacking: list[tuple[str, Gap]] = []
    try:
        named += _on_damaged_pages(database, begin, end)
        if len(named) < end - begin:
            lacking += _without_rows(database, begin, end)
    except sqlite3.DatabaseError:
        pass  # what names them is damaged as well
    left = end - begin - len(named)
    surplus = sum(gap.events for _, gap in lacking) - left
    place = begin
    for stream, gap in lacking:
        # Which of the positions were whose can't be known; that they are all of them is enough.
        is_exact = not named and not surplus
        named.append(LostEvents(*((place, gap.events) if is_exact else (begin, end - begin)), stream, gap))
        place += gap.events
    if surplus < 0:
        named.append(LostEvents(begin, end - begin, "", Gap(0, -surplus, NOBODYS, DATABASE_FILE, 0)))
    return sorted(named)


def next_readable(database: sqlite3.Connection, begin: int, end: int) -> int:
    """Find the first position behind a damaged page at which an event can be read; `end` if there is none before it."""
    step, bad = 1, begin
    while begin + step < end and not _is_readable(database, begin + step):
        bad, step = begin + step, 2 * step
    good = min(begin + step, end)
    while good - bad > 1:
        middle = (bad + good) // 2
        if _is_readable(database, middle):
            good = middle
        else:
            bad = middle
    return good


def _is_readable(database: sqlite3.Connection, position: int) -> bool:
    try:
        database.execute(
            "SELECT line FROM events WHERE position >= ? ORDER BY position LIMIT 1", (position,)
        ).fetchall()
    except sqlite3.DatabaseError:
        return False
    return True


def _on_damaged_pages(database: sqlite3.Connection, begin: int, end: int) -> Iterator[LostEvents]:
    """Name the events that the index of numbers still has."""
    for position, stream, seq in database.execute(
        "SELECT position, stream, seq FROM events INDEXED BY numbers WHERE position >= ? AND position < ?", (begin, end)
    ):
        yield LostEvents(position, 1, stream, Gap(seq, 1, PAGE_DAMAGED, DATABASE_FILE, 0))


def _without_rows(database: sqlite3.Connection, begin: int, end: int) -> Iterator[tuple[str, Gap]]:
    """Name the streams that lack events which may have had these positions, and the numbers of these events."""
    for (id,) in database.execute("SELECT id FROM streams WHERE position >= ? ORDER BY id", (begin,)).fetchall():
        stream = streams.get(database, id)
        rows = database.execute("SELECT seq, position FROM events WHERE stream = ? ORDER BY seq", (id,))
        edges = [(stream.summary.get("parent_seq", 0) - 1, 0), *rows, (stream.head, stream.position + 1)]
        for (seq, position), (next_seq, next_position) in pairwise(edges):
            if next_seq > seq + 1 and position < end and next_position > begin:
                yield id, Gap(seq + 1, next_seq - seq - 1, ROWS_GONE, DATABASE_FILE, 0)
