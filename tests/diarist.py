"""A session actor for tests, in the form in which a program has one: it is killed in its turns and goes on."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from itertools import count
from types import TracebackType
from typing import Any, NoReturn

from turnkeeper import Session, open_runtime


class Diarist:
    """Owns a session, and writes numbers into it; what is durable it notes in a file that others watch."""

    def __init__(self, store: str, key: str, notes: str) -> None:
        self._store, self._key, self._notes = store, key, notes
        self._session: Session
        self._leaving: AsyncExitStack

    async def __aenter__(self) -> Diarist:
        async with AsyncExitStack() as stack:
            runtime = await stack.enter_async_context(open_runtime(self._store))
            self._session = await stack.enter_async_context(await runtime.open_session(self._key, create=True))
            self._leaving = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leaving.__aexit__(kind, error, traceback)

    async def write(self, turn: int) -> NoReturn:
        """Take a turn that ends only when somebody kills this process: numbered events, each durable and then noted."""
        notes = os.open(self._notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        async with self._session.turn():
            for number in count():
                await self._session.append("diary/entry", {"turn": turn, "number": number})
                await self._session.flush()
                os.write(notes, f"{turn} {number}\n".encode())
        raise AssertionError("a turn without an end has ended")

    async def state(self) -> dict[str, Any]:
        """Tell who this is, and what the opening found."""
        interrupted = self._session.interrupted
        return {
            "pid": os.getpid(),
            "head": self._session.head,
            "interrupted": None if interrupted is None else interrupted.turn,
        }
