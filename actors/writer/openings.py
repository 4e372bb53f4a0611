"""Decide about the wish to own a stream: grant, reserve, or say why not. In memory; the grant is the backend's.

A stream that is there is granted by the next commit. A new one is only reserved, under epoch 1: its first
append makes it. Who asks again for what it has itself begun, its answer having been lost, gets the same answer again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from turnkeeper.storage.backend import Backend
from turnkeeper.storage.errors import Ambiguous, Corrupt, Deleted, Exists, NotFound, SessionBusy, StorageError
from turnkeeper.storage.requests import Grant, StreamRow

from ..errors import CriticalTypes
from ..log_summary import CRITICAL
from .requests import Opening
from .reservations import Reservations

Answer: TypeAlias = Mapping[str, Any]

Decision: TypeAlias = Grant | Answer | StorageError


class Openings:
    """The openings of one store. `is_gone` says whether an owner's process has certainly ended."""

    def __init__(self, backend: Backend, is_gone: Callable[[Mapping[str, Any]], bool]) -> None:
        self._backend = backend
        self.reservations = Reservations(is_gone)

    def decide(self, opening: Opening, holder: object) -> Decision:
        """Return the grant to commit, the answer for a reserved stream, or why the wish is refused.

        `holder` is the connection that a reservation lives and dies with.
        """
        if opening.header is not None:
            row = self._named(opening.wanted)
            if row is None:
                return self._reserve(opening.wanted, opening.header, opening.owner, holder)
            if opening.header["id"] == row.id:
                if not self._is_own(opening, row):
                    return Exists(row.id)
                if row.epoch == 1:
                    return new_stream(opening.header)  # its first run is stored, which its owner hasn't heard of
        else:
            try:
                row = self._backend.row(self._backend.resolve(opening.wanted))
            except (NotFound, Ambiguous) as error:
                reserved = self.reservations.find(opening.wanted)
                return error if reserved is None else SessionBusy(reserved.id, reserved.owner)
        unknown = [type for type in row.summary.get(CRITICAL) or () if type not in opening.known]
        if unknown:
            return CriticalTypes(row.id, unknown)
        if row.summary.get("damaged"):
            return Corrupt(row.id, "events of it were lost", missing=self._backend.missing(row.id))
        return Grant(row.id, opening.owner, opening.takeover)

    def _named(self, name: str) -> StreamRow | None:
        """Return the stream with this id or key, deleted or not.

        Where a new one may be made, a beginning of an id names nothing.
        """
        try:
            row = self._backend.row(self._backend.resolve(name))
        except Deleted as error:
            row = self._backend.row(error.wanted)
        except (NotFound, Ambiguous):
            return None
        return row if name in (row.id, row.summary.get("key")) else None

    def _is_own(self, opening: Opening, row: StreamRow) -> bool:
        owner = row.summary.get("owner") or {}
        return bool(owner.get("token") == opening.owner["token"])

    def _reserve(
        self, wanted: str, header: Mapping[str, Any], owner: Mapping[str, Any], holder: object
    ) -> Answer | StorageError:
        id, key = header["id"], header.get("key")
        reserved = self.reservations.find(wanted)
        if reserved is not None and reserved.owner["token"] != owner["token"]:
            return SessionBusy(reserved.id, reserved.owner)
        for name, what in ((id, "id"), (key, "key")):
            taken = None if name is None else self._named(name)
            if taken is not None:
                return Exists(taken.id, what)
        return self.reservations.reserve(id, key, owner, holder) or new_stream(header)


def new_stream(header: Mapping[str, Any]) -> Answer:
    """Make the answer for a stream of which nothing is stored, or nothing that its owner knows of.

    A fork's own events begin behind those that it has of its parent.
    """
    return {"stream": header["id"], "epoch": 1, "head": header.get("parent_seq") or 0, "summary": {}, "new": True}
