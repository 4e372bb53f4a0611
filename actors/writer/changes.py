"""The writer's side of what anybody may change of a session, whoever owns it: title, labels, whether it is deleted.

Decides which patches are committed. That a living owner's session isn't deleted, and that labels are merged with those
that are there, is the append rule's to see to, as it alone knows what is committed together.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from turnkeeper.storage.backend import Backend
from turnkeeper.storage.errors import Deleted, NotFound, StorageError
from turnkeeper.storage.requests import Patch, StreamRow

from ..ids import inbox_id
from ..kinds import require_session
from .requests import Change


class Changing(NamedTuple):
    """A change to commit: the session's row before it, and the patches, none where all of it is so already."""

    row: StreamRow
    patches: list[Patch]


class Changes:
    """The changes of one store's sessions."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def decide(self, change: Change) -> Changing | StorageError:
        """Return what is to be committed, or why the wish is refused."""
        try:
            row = self._row(change)
        except StorageError as error:
            return error
        if change.deleted is not None:
            rows = [row, *self._inbox_of(row)]
            at = time.time_ns() // 1_000_000 if change.deleted else None
            patches = [Patch(each.id, {"deleted": at}) for each in rows if _is_deleted(each) != change.deleted]
            return Changing(row, patches)
        patch: dict[str, Any] = {}
        if change.title is not None:
            patch["title"] = change.title or None
        if change.labels:
            patch["labels"] = change.labels
        return Changing(row, [Patch(row.id, patch)] if patch else [])

    def _row(self, change: Change) -> StreamRow:
        """Look the session up; one that is deleted is found if that is what is to be changed."""
        try:
            row = self._backend.row(self._backend.resolve(change.wanted))
        except Deleted as error:
            row = self._backend.row(error.wanted)
        require_session(row)
        if change.deleted is None and _is_deleted(row):
            raise Deleted(row.id)
        return row

    def _inbox_of(self, row: StreamRow) -> list[StreamRow]:
        try:
            return [self._backend.row(inbox_id(row.id))]
        except NotFound:
            return []


def _is_deleted(row: StreamRow) -> bool:
    return bool(row.summary.get("deleted"))
