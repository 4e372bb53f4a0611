"""What a name names where tasks are meant too: a task's id, the beginning of one, or its key. No event loop is loaded.

A stream that nobody owns answers to its whole id alone, so that an inbox is never taken for its session. Tasks are such
streams, and people do name them by beginnings: their ids begin in a way of their own, so nothing else is meant then.
"""

from __future__ import annotations

from typing import Final

from turnkeeper.storage.backend import BackendReader
from turnkeeper.storage.errors import Ambiguous, Deleted, NotFound, WrongKind
from turnkeeper.storage.requests import StreamRow

from ..ids import is_task_id, task_id_of_key
from ..kinds import TASK, kind_of
from ..names import is_encodable

CANDIDATES_MAX: Final = 10
"""How many ids are named to who gave the beginning of several."""


def find_row(reader: BackendReader, wanted: str) -> StreamRow:
    """Give the stream that a name names: as the reader does, and a task also by the beginning of its id.

    Raises NotFound, which is Deleted if that is why; Ambiguous.
    """
    try:
        return reader.row(wanted)
    except Deleted:
        raise
    except NotFound:
        found = _beginning(reader, wanted)
        if found is None:
            raise
        return found


def find_task(reader: BackendReader, wanted: str) -> StreamRow:
    """Give the task that is meant by its id, its key, or a unique beginning of its id.

    Raises NotFound, Ambiguous; WrongKind for the id or the key of something else.
    """
    found = _whole(reader, wanted)
    if found is not None and kind_of(found) == TASK:
        return found
    if is_encodable(wanted):
        named = _whole(reader, task_id_of_key(wanted))
        if named is not None:
            return named
    if found is not None:
        raise WrongKind(found.id, kind_of(found), TASK)
    begun = _beginning(reader, wanted)
    if begun is None:
        raise NotFound(wanted)
    return begun


def _whole(reader: BackendReader, name: str) -> StreamRow | None:
    """Give the stream that has this id, or this key."""
    try:
        row = reader.row(name)
    except (NotFound, Ambiguous):
        return None
    return row if name in (row.id, row.summary.get("key")) else None


def _beginning(reader: BackendReader, wanted: str) -> StreamRow | None:
    """Give the task whose id begins so; None if there is none. Raises Ambiguous."""
    if not is_task_id(wanted):
        return None
    ids = reader.ids_beginning(wanted, CANDIDATES_MAX + 1)
    if len(ids) > 1:
        raise Ambiguous(wanted, ids[:CANDIDATES_MAX])
    return reader.row(ids[0]) if ids else None
