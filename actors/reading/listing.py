"""Lists of sessions: the most recently active first, filtered, in pages. No event loop is loaded.

The store leaves out what certainly doesn't fit; what a session says of its owner, and how its directory is spelled, is
looked at here. A directory fits as it was spelled, though it was moved or deleted since, and where both spellings lead
to the same one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

from turnkeeper.storage.backend import BackendReader

from ..records import SessionInfo, Status

if TYPE_CHECKING:
    from ..client.reads import StoreReads

ROWS_MIN: Final = 256
ROWS_MAX: Final = 4096
"""How many rows one look into the list takes while it searches for those that a filter lets pass."""

_MEMBERS: Final = ("key", "title", "parent", "agent")
_DRIVE: Final = re.compile(r"[A-Za-z](?=:[\\/])")

Place: TypeAlias = tuple[int, str]
"""A place in the list: a row's position and id."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which sessions are listed: those that fit all of it. Without `children`, those that have no parent."""

    status: Status | None = None
    cwds: frozenset[str] = frozenset()
    members: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    kind: str = "session"
    children: bool = True

    @classmethod
    def of(cls, status: Status | None, given: Mapping[str, str], *, children: bool = True) -> Filters:
        """Make filters of names and values: members of a session's row, or labels. Raises ValueError for a status."""
        if status not in (None, *get_args(Status)):
            raise ValueError(f"a status is one of {', '.join(get_args(Status))}, not {status!r}")
        return cls(
            status=status,
            cwds=spellings(given["cwd"]) if "cwd" in given else frozenset(),
            members={name: value for name, value in given.items() if name in _MEMBERS},
            labels={name: value for name, value in given.items() if name not in (*_MEMBERS, "cwd", "kind")},
            kind=given.get("kind", "session"),
            children=children,
        )

    @property
    def for_storage(self) -> dict[str, Any]:
        """Give what the store itself leaves out."""
        label = next(iter(self.labels.items()), None)
        having = "owner" if self.status in ("active", "crashed") else None
        return {"kind": self.kind, "label": label, "cwd": self.cwds, "having": having, **self.members}

    def fit(self, session: SessionInfo) -> bool:
        """Say whether a session is listed that the store has let pass."""
        return (
            self.status in (None, session.status)
            and (self.children or session.parent is None or "parent" in self.members)
            and all(session.labels.get(name) == value for name, value in self.labels.items())
        )


def spellings(cwd: str) -> frozenset[str]:
    """Give the paths that may stand for a directory where it is stored. A drive's letter may be small or large."""
    absolute = os.path.abspath(cwd)
    found = {cwd, absolute, os.path.realpath(absolute)} if "\0" not in cwd else {cwd}
    drive = _DRIVE.match(cwd)
    if drive is not None:
        found |= {drive[0].lower() + cwd[1:], drive[0].upper() + cwd[1:]}
    return frozenset(found)


def look(
    reader: BackendReader, filters: Filters, before: Place | None, rows: int
) -> tuple[list[SessionInfo], Place | None]:
    """Take so many rows behind a place in the list; give those that fit, and the place behind them, None at the end."""
    found = reader.rows(rows, before, **filters.for_storage)
    fitting = [session for session in map(SessionInfo.from_row, found) if filters.fit(session)]
    return fitting, (found[-1].position, found[-1].id) if len(found) == rows else None


def rows_to_take(wanted: int, is_first: bool) -> int:
    """Say how many rows a look takes where so many sessions are still wanted: few, unless many don't fit."""
    return min(max(wanted, 1 if is_first else ROWS_MIN), ROWS_MAX)


def place_of(reader: BackendReader, after: SessionInfo | str | None) -> Place | None:
    """Give the place in the list that a row, or a session's id, stands for. Raises NotFound, Ambiguous."""
    if isinstance(after, str):
        row = reader.row(after)
        return row.position, row.id
    return None if after is None else (after.position, after.id)


async def list_sessions(
    reads: StoreReads, status: Status | None, given: Mapping[str, str], after: SessionInfo | str | None, limit: int
) -> list[SessionInfo]:
    """List the sessions that fit, behind a row or a session, at most `limit`.

    Raises NotFound, Ambiguous for a session, ValueError for a status.
    """
    # Both look at a disk, which may be a slow one.
    filters, place = await reads.call(lambda reader: (Filters.of(status, given), place_of(reader, after)))
    found: list[SessionInfo] = []
    is_first = True
    while len(found) < limit and (is_first or place is not None):
        rows = rows_to_take(limit - len(found), is_first)
        fitting, place = await reads.call(partial(look, filters=filters, before=place, rows=rows))
        found += fitting
        is_first = False
    return found[:limit]
