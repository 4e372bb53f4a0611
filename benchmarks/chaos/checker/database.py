"""Reads a store that SQLite keeps, by its tables alone: events with their epochs, heads and summaries; no runs."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from ...oracle import digest, whole_data
from .stored import LINE_CHARACTERS, Fault, Stored, StoredEvent

DATABASE: Final = "store.sqlite"


def read_database(store: Path) -> Stored:
    """Read a store's database whole, events with the data that was spilled, and find every fault."""
    events: list[StoredEvent] = []
    faults: list[Fault] = []
    with closing(sqlite3.connect(f"file:{store / DATABASE}?mode=ro", uri=True)) as database:
        for position, stream, seq, epoch, line in database.execute("SELECT * FROM events ORDER BY position"):
            try:
                events.append(_event(store, position, stream, seq, epoch, line))
            except (OSError, ValueError, TypeError, AttributeError) as error:
                faults.append(Fault(DATABASE, position, f"event {seq} of {stream} can't be read: {error}", stream))
        rows = database.execute("SELECT id, head, summary FROM streams").fetchall()
        for (says,) in database.execute("PRAGMA integrity_check"):
            if says != "ok":
                faults.append(Fault(DATABASE, 0, says))
    heads = {stream: head for stream, head, _ in rows}
    summaries = {stream: json.loads(summary) for stream, _, summary in rows}
    return Stored(events, None, faults, summaries, heads)


def _event(store: Path, position: int, stream: str, seq: int, epoch: int, line: bytes) -> StoredEvent:
    record = json.loads(line)
    if (record["stream"], record["seq"]) != (stream, seq):
        raise ValueError("its line is another event's")
    whole = whole_data(store, record["data"])
    kept = whole if record["type"] == "inbox/message" else record["data"]
    shown = line[:LINE_CHARACTERS].decode(errors="replace")
    return StoredEvent(position, stream, seq, record["type"], digest(whole), epoch, kept, shown)
