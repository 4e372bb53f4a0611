"""The kinds of streams, and the one of them that is a session. Pure.

A stream's summary says its kind. Of one that damage took that from nobody knows it, and it counts as a session.
"""

from __future__ import annotations

from typing import Final

from turnkeeper.storage.errors import WrongKind
from turnkeeper.storage.requests import StreamRow

SESSION: Final = "session"
INBOX: Final = "inbox"
TASK: Final = "task"


def kind_of(row: StreamRow) -> str:
    """Give a stream's kind."""
    return str(row.summary.get("kind", SESSION))


def require_session(row: StreamRow) -> StreamRow:
    """Give the row back if it is a session's. Raises WrongKind."""
    if kind_of(row) != SESSION:
        raise WrongKind(row.id, kind_of(row), SESSION)
    return row
