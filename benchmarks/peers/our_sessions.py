"""Our own sessions as a keeper, so that they are read in the same way as those of the peers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from turnkeeper import Runtime, Session, open_runtime

from ..measuring.durability import POWER_LOSS, Durability
from ..stores.contents import EVENT_TYPE
from .keeping import TEXT, Keeper


class RuntimeKeeper:
    """Sessions of a store."""

    def __init__(self, runtime: Runtime, sessions: list[Session]) -> None:
        self._runtime = runtime
        self._sessions = sessions

    async def flush(self, session: int, texts: Sequence[str]) -> None:
        """Append events, and flush them together."""
        for text in texts:
            await self._sessions[session].append(EVENT_TYPE, {"text": text})
        await self._sessions[session].flush()

    async def settle(self) -> None:
        """Do nothing: the journal is filled ahead."""

    async def fill(self, session: int, events: int) -> None:
        """Append all, and flush once."""
        await self.flush(session, [TEXT] * events)

    async def read(self, session: int) -> int:
        """Read the events, page after page."""
        found = 0
        while page := await self._runtime.read(self._sessions[session].id, start=found, limit=100_000):
            found += len(page)
        return found

    async def durability(self) -> Durability:
        """Say what is promised of every flush."""
        return Durability(POWER_LOSS, "fdatasync of the journal")


@asynccontextmanager
async def open_keeper(directory: Path, sessions: int) -> AsyncIterator[Keeper]:
    """Open a store."""
    async with open_runtime(directory / "store") as runtime:
        yield RuntimeKeeper(runtime, [await runtime.create_session() for _ in range(sessions)])
