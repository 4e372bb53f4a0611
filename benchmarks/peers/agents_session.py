"""The OpenAI Agents SDK's SQLite sessions: one object a session, all in one file, a transaction for each `add_items`.

The Runner calls `add_items` with what a turn has brought, and `get_items` before the next one. Each call goes to a
thread, and each session has a connection for every thread that it met. Importing this needs `openai-agents`, which is
no dependency; its tracing is off.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agents import SQLiteSession, set_tracing_disabled

from ..measuring.durability import Durability
from .keeping import SETTLING_EVENTS, TEXT, Keeper
from .sqlite_connections import ConnectionWatch


class SessionKeeper:
    """Sessions of the SDK."""

    def __init__(self, sessions: list[Any], watch: ConnectionWatch) -> None:
        self._sessions = sessions
        self._watch = watch

    async def flush(self, session: int, texts: Sequence[str]) -> None:
        """Add items in one transaction."""
        await self._sessions[session].add_items([{"role": "assistant", "content": text} for text in texts])

    async def settle(self) -> None:
        """Let the log reach its size."""
        await self.fill(0, SETTLING_EVENTS)

    async def fill(self, session: int, events: int) -> None:
        """Add all at once."""
        await self.flush(session, [TEXT] * events)

    async def read(self, session: int) -> int:
        """Get all items."""
        return len(await self._sessions[session].get_items())

    async def durability(self) -> Durability:
        """Ask the connection of the session that was opened last."""
        return self._watch.durability()


@asynccontextmanager
async def open_keeper(directory: Path, sessions: int) -> AsyncIterator[Keeper]:
    """Open sessions in one database."""
    set_tracing_disabled(True)
    watch = ConnectionWatch()
    opened = [SQLiteSession(f"session-{number:08d}", directory / "sessions.sqlite") for number in range(sessions)]
    try:
        yield SessionKeeper(opened, watch)
    finally:
        for session in opened:
            session.close()
