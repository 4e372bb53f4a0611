"""Reads a store that SQLite keeps, by its tables alone: events with their epochs, heads and summaries; no runs.

What the tables say of each other has to fit: there are no checksums that would tell of a row that is an older one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from ...demonstration.oracle import digest, whole_data
from .stored import LINE_CHARACTERS, Fault, Stored, StoredEvent, needed_of

DATABASE: Final = "store.sqlite"

_CONTRADICTIONS: Final = (
    """SELECT stream, 'event ' || seq || ' is of a stream that isn''t there' FROM events
       WHERE stream NOT IN (SELECT id FROM streams)""",
    """SELECT id, 'event ' || seq || ' has epoch ' || events.epoch || ', and its stream ' || streams.epoch
       FROM events JOIN streams ON id = stream WHERE events.epoch > streams.epoch""",
    """SELECT id, 'its last event has position ' || max(events.position) || ', and it says ' || streams.position
       FROM events JOIN streams ON id = stream GROUP BY id HAVING max(events.position) != streams.position""",
    """SELECT NULL, 'the last event has position ' || last || ', and the next one is to have ' || next_position
       FROM store, (SELECT coalesce(max(position), 0) AS last FROM events) WHERE next_position != last + 1""",
    """SELECT stream, 'a key is that of event ' || seq || ', which isn''t there' FROM keys
       WHERE (stream, seq) NOT IN (SELECT stream, seq FROM events)""",
    """SELECT stream, 'a blob is named by event ' || seq || ', which isn''t there' FROM blobs
       WHERE (stream, seq) NOT IN (SELECT stream, seq FROM events)""",
    """SELECT id, 'a name is its, and it isn''t there' FROM names WHERE id NOT IN (SELECT id FROM streams)""",
)
"""Queries for what doesn't fit: each row is a stream, or none, and what is wrong with it."""


def read_database(store: Path) -> Stored:
    """Read a store's database whole, events with the data that was spilled, and find every fault."""
    events: list[StoredEvent] = []
    faults: list[Fault] = []
    heads: dict[str, int] = {}
    summaries: dict[str, dict[str, Any]] = {}
    try:
        with closing(sqlite3.connect(f"file:{store / DATABASE}?mode=ro", uri=True)) as database:
            faults += _contradictions(database, store)
            for id, head, summary in database.execute("SELECT id, head, summary FROM streams"):
                heads[id], summaries[id] = head, json.loads(summary)
            for position, stream, seq, epoch, line in database.execute("SELECT * FROM events ORDER BY position"):
                try:
                    events.append(_event(store, position, stream, seq, epoch, line))
                except (OSError, ValueError, TypeError, AttributeError) as error:
                    faults.append(Fault(DATABASE, position, f"event {seq} of {stream} can't be read: {error}", stream))
    except (sqlite3.Error, ValueError) as error:
        faults.append(Fault(DATABASE, 0, f"it can't be read: {error}"))
    return Stored(events, None, faults, summaries, heads)


def _contradictions(database: sqlite3.Connection, store: Path) -> Iterator[Fault]:
    """Find what SQLite itself finds to be wrong, and what doesn't fit."""
    for (says,) in database.execute("PRAGMA integrity_check"):
        if says != "ok":
            yield Fault(DATABASE, 0, says)
    for query in _CONTRADICTIONS:
        for stream, says in database.execute(query):
            yield Fault(DATABASE, 0, says, stream)
    (uuid,) = database.execute("SELECT uuid FROM store").fetchone()
    if uuid != json.loads((store / "store.json").read_bytes())["store"]:
        yield Fault(DATABASE, 0, "it belongs to another store")


def _event(store: Path, position: int, stream: str, seq: int, epoch: int, line: bytes) -> StoredEvent:
    record = json.loads(line)
    if (record["stream"], record["seq"]) != (stream, seq):
        raise ValueError("its line is another event's")
    whole = whole_data(store, record["data"])
    needed = needed_of(record["type"], record["data"], whole)
    shown = line[:LINE_CHARACTERS].decode(errors="replace")
    return StoredEvent(position, stream, seq, record["type"], digest(whole), epoch, needed, shown)
