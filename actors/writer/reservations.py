"""Names that the writer keeps for streams of which nothing is stored yet: in memory only, pure.

A new session's id and key belong to whoever asked for them, told by its token, until its first events are stored, its
connection ends, it gives them back or its process has gone. Asking again with the same token, over another connection
too, is answered as the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from turnkeeper.storage.errors import Exists, SessionBusy, StorageError


@dataclass(slots=True)
class Reservation:
    """One new stream's names. `holder` is the connection that it lives and dies with."""

    id: str
    key: str | None
    owner: Mapping[str, Any]
    holder: object


class Reservations:
    """All of them, by id and by key. `is_gone` says whether an owner's process has certainly ended."""

    def __init__(self, is_gone: Callable[[Mapping[str, Any]], bool]) -> None:
        self._is_gone = is_gone
        self._by_id: dict[str, Reservation] = {}
        self._by_key: dict[str, Reservation] = {}

    def find(self, wanted: str) -> Reservation | None:
        """Return the living reservation of this id or key; one whose owner has gone is dropped."""
        found = self._by_id.get(wanted) or self._by_key.get(wanted)
        if found is not None and self._is_gone(found.owner):
            self._drop(found)
            return self.find(wanted)
        return found

    def reserve(self, id: str, key: str | None, owner: Mapping[str, Any], holder: object) -> StorageError | None:
        """Keep both names for the owner's token; return why not, if another has one of them."""
        for name in (id, key):
            found = None if name is None else self.find(name)
            if found is None:
                continue
            if found.owner["token"] != owner["token"]:
                return SessionBusy(found.id, found.owner)
            if (found.id, found.key) != (id, key):
                return Exists(found.id, "id" if name == id else "key")
        self._by_id[id] = reservation = Reservation(id, key, owner, holder)
        if key is not None:
            self._by_key[key] = reservation
        return None

    def settle(self, id: str) -> None:
        """Forget the names of a stream that is stored now, or never will be; one that isn't reserved is no error."""
        if (found := self._by_id.get(id)) is not None:
            self._drop(found)

    def release(self, id: str, token: str) -> None:
        """Give a reservation back; without effect for another's."""
        found = self._by_id.get(id)
        if found is not None and found.owner["token"] == token:
            self._drop(found)

    def forget(self, holder: object) -> None:
        """Drop what lived with a connection that has ended."""
        for found in [each for each in self._by_id.values() if each.holder is holder]:
            self._drop(found)

    def _drop(self, reservation: Reservation) -> None:
        self._by_id.pop(reservation.id, None)
        if reservation.key is not None:
            self._by_key.pop(reservation.key, None)
