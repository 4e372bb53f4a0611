"""What programs write themselves: a JSONL file for each session, or a table of SQLite; read again as a list of events.

They are those of `driving.baselines`. Their calls block, as they do in such programs; the other sessions have their
turn behind each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import orjson
from anyio.lowlevel import checkpoint

from ..driving.baselines import SessionFiles, SqliteRows
from ..driving.loads import Lines
from ..measuring.durability import Durability
from .keeping import SETTLING_EVENTS, TEXT, Keeper


class PlainKeeper:
    """A baseline that can be read."""

    def __init__(self, baseline: SessionFiles | SqliteRows, sessions: int) -> None:
        self._baseline = baseline
        self._lines = Lines(sessions)

    async def flush(self, session: int, texts: Sequence[str]) -> None:
        """Write the events together, and sync."""
        self._baseline.flush([self._lines.event_of(session, {"text": text}) for text in texts])
        await checkpoint()

    async def settle(self) -> None:
        """Let the log reach its size."""
        await self.fill(0, SETTLING_EVENTS)

    async def fill(self, session: int, events: int) -> None:
        """Write all at once."""
        await self.flush(session, [TEXT] * events)

    async def read(self, session: int) -> int:
        """Parse each line."""
        return len([orjson.loads(line) for line in self._baseline.read(session)])

    async def durability(self) -> Durability:
        """Say what the baseline's flushes outlive."""
        return self._baseline.durability


@asynccontextmanager
async def open_files(directory: Path, sessions: int) -> AsyncIterator[Keeper]:
    """Open a file a session."""
    with closing(SessionFiles(directory, sessions)) as files:
        yield PlainKeeper(files, sessions)


@asynccontextmanager
async def open_table(directory: Path, sessions: int) -> AsyncIterator[Keeper]:
    """Open a database with a table of events."""
    with closing(SqliteRows(directory, sessions)) as rows:
        yield PlainKeeper(rows, sessions)
