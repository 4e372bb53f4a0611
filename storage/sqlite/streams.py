"""Looking a stream up, for the writer inside its transaction and for readers alike."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

import orjson

from ..errors import Ambiguous, Deleted, NotFound
from ..limits import ID_PATTERN
from ..requests import OWNERLESS, StreamRow, Summary

_CANDIDATES_MAX = 10


class Stream(NamedTuple):
    """One stream's row."""

    id: str
    head: int
    epoch: int
    position: int
    active: int
    summary_json: str

    @property
    def summary(self) -> Summary:
        """What is known of it beside its log; a new map each time. One that can't be read is its stream's damage."""
        try:
            summary: Summary = orjson.loads(self.summary_json)
        except ValueError:
            return {"damaged": True}
        return summary

    def as_row(self) -> StreamRow:
        """Give it as lists and look-ups do."""
        return StreamRow(self.id, self.head, self.epoch, self.position, self.active, self.summary)


def find(database: sqlite3.Connection, id: str) -> Stream | None:
    """Give the stream of this id; None if there is none."""
    if not ID_PATTERN.match(id):
        return None
    row = database.execute("SELECT * FROM streams WHERE id = ?", (id,)).fetchone()
    return None if row is None else Stream(*row)


def find_named(database: sqlite3.Connection, key: str) -> Stream | None:
    """Give the stream that has this key of a host's."""
    named = database.execute("SELECT id FROM names WHERE key = ?", (key_bytes(key),)).fetchone()
    return None if named is None else find(database, named[0])


def get(database: sqlite3.Connection, id: str) -> Stream:
    """Give the stream of this id. Raises NotFound."""
    stream = find(database, id)
    if stream is None:
        raise NotFound(id)
    return stream


def resolve(database: sqlite3.Connection, wanted: str) -> Stream:
    """Give the stream that an id, a host's key or a unique prefix names.

    One that is deleted, or has no owner, answers to its whole id alone.

    Raises NotFound, which is Deleted if that is why; Ambiguous.
    """
    stream = find(database, wanted)
    if stream is not None:
        return stream
    named = find_named(database, wanted)
    if named is not None and not named.summary.get("deleted"):
        return named
    candidates: list[Stream] = []
    deleted: list[Stream] = []
    if ID_PATTERN.match(wanted):
        # "~" comes behind everything that an id is made of.
        rows = database.execute(
            "SELECT * FROM streams WHERE id > ? AND id < ? AND epoch <> ? ORDER BY id",
            (wanted, f"{wanted}~", OWNERLESS),
        )
        for candidate in map(Stream._make, rows):
            (deleted if candidate.summary.get("deleted") else candidates).append(candidate)
            if len(candidates) == _CANDIDATES_MAX:
                break
        rows.close()
    if not candidates:
        gone = deleted if named is None else [named]
        raise Deleted(gone[0].id) if len(gone) == 1 else NotFound(wanted)
    if len(candidates) > 1:
        raise Ambiguous(wanted, [candidate.id for candidate in candidates])
    return candidates[0]


def key_bytes(key: str) -> bytes:
    """Give a key as it is kept: whatever a host calls its things."""
    return key.encode("utf-8", "surrogatepass")
