"""Which SQLite connection of this process was opened last, whoever opened it: libraries hide theirs."""

from __future__ import annotations

import sqlite3
import sys

from ..measuring.durability import Durability, sqlite_durability


class ConnectionWatch:
    """Hears of each connection that is opened from now on, by the interpreter's audit events; it can't be undone.

    It holds on to the last one alone. What is asked of that must not run beside what its library does with it.
    """

    def __init__(self) -> None:
        self._last: sqlite3.Connection | None = None
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "sqlite3.connect/handle" and isinstance(arguments[0], sqlite3.Connection):
            self._last = arguments[0]

    def durability(self) -> Durability:
        """Say what the last connection's transactions outlive. Raises RuntimeError if there was none."""
        if self._last is None:
            raise RuntimeError("no SQLite connection was opened")
        mode, synchronous = (
            self._last.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
        )
        return sqlite_durability(mode, synchronous)
