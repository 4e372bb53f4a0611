"""A session actor that is killed in its turns: nothing in it but what an agent in a worker process needs.

Its module is loaded behind each kill, so it imports no other of the benchmarks.
"""

from __future__ import annotations

import os
import time
from contextlib import AsyncExitStack
from itertools import count
from typing import Any, Final, NoReturn

from turnkeeper import Session, open_runtime

SESSION: Final = "agent"
"""The key of the session that it owns."""

ENTRY: Final = "agent/entry"
"""The type of the events of its turns; each has its turn and its number there."""

_TEXT: Final = "." * 350
"""With it an event's line has about 460 bytes."""


class Agent:
    """Owns a session of the store, and appends to it in turns that end only when somebody kills this process.

    What is durable it notes in a file, a line an event: its turn and its number there. The system keeps that line when
    the process is killed.
    """

    def __init__(self, store: str, notes: str) -> None:
        self._began = time.monotonic()
        self._store, self._notes = store, notes
        self._turn = 0

    async def __aenter__(self) -> None:
        async with AsyncExitStack() as stack:
            runtime = await stack.enter_async_context(open_runtime(self._store))
            self._session: Session = await stack.enter_async_context(await runtime.open_session(SESSION, create=True))
            self._opened = time.monotonic()
            self._file = os.open(self._notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            stack.callback(os.close, self._file)
            self._leaving = stack.pop_all()

    async def __aexit__(self, *error: Any) -> None:
        await self._leaving.aclose()

    async def begin_turn(self, turn: int) -> dict[str, Any]:
        """Begin a turn whose first event is durable when this returns; tell by when it had come how far."""
        await self._leaving.enter_async_context(self._session.turn())
        self._turn = turn
        await self._append(0)
        return {"pid": os.getpid(), "began": self._began, "opened": self._opened, "appended": time.monotonic()}

    async def go_on(self) -> NoReturn:
        """Append one durable event after the other."""
        for number in count(1):
            await self._append(number)
        raise AssertionError("a turn without an end has ended")

    async def _append(self, number: int) -> None:
        await self._session.append(ENTRY, {"turn": self._turn, "number": number, "text": _TEXT})
        await self._session.flush()
        os.write(self._file, f"{self._turn} {number}\n".encode())
