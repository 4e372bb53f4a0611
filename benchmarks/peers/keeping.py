"""What a library that keeps sessions has to do to be measured: make events durable, and read a session again.

Each peer's module has an `open_keeper`, which sets the library up as its own documentation does, on asyncio, with
whatever would call home switched off. An event is the same text everywhere; what a library wraps it in is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from ..measuring.durability import Durability
from ..stores.contents import EVENT_DATA

TEXT: Final = EVENT_DATA["text"]
"""What an event says."""


SETTLING_EVENTS: Final = 10_000
"""So many events in one transaction are more than SQLite lets its write-ahead log grow to.

From then on the log is written over, and a sync costs less than one behind a growing file.
"""


class Keeper(Protocol):
    """A library with sessions, which are numbered."""

    async def flush(self, session: int, texts: Sequence[str]) -> None:
        """Add an event of each text, together where the library can, and wait until it calls them kept."""

    async def settle(self) -> None:
        """Bring the files to the size that they keep, as a program has them that ran for a while."""

    async def fill(self, session: int, events: int) -> None:
        """Make a session so long, in whatever way is quick."""

    async def read(self, session: int) -> int:
        """Read the session as a program does that goes on with it; give how many events it got."""

    async def durability(self) -> Durability:
        """Say what the flushes until now outlive. There has to have been one."""


OpenKeeper: TypeAlias = Callable[[Path, int], AbstractAsyncContextManager[Keeper]]
"""Opens one that keeps so many sessions in a directory."""
