"""A session whose agent notes, outside the store, what it is about to append and what it was promised.

No value is appended twice: each event says who made it and its number among all that were ever made, so that one that
is found twice, or in another's place, is seen. Errors pass through; whoever gets one should leave the session and open
it again, as what it was about to do is noted and may or may not have been done.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

from turnkeeper import Session

from .notes import Notebook

Effect = Literal["read", "idempotent", "once"]


class Maker:
    """Makes values that are like no others of the whole round: `name` is no other maker's."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = itertools.count()

    def unique(self) -> str:
        """Give a text that stands nowhere else."""
        return f"{self._name}:{next(self._numbers)}"


class NotedSession:
    """An opening of a session, from its `opened` note to its `closed` one; made by `noted`. For one task at a time."""

    def __init__(self, session: Session, notebook: Notebook, maker: Maker) -> None:
        self.session = session
        self.id = session.id
        self.turns = 0
        self._notebook = notebook
        self._maker = maker
        self._seqs: list[int] = []

    async def append(self, type: str, **data: Any) -> int:
        """Append an event of this type, whose data also says which one it is; give its number."""
        whole = {"which": self._maker.unique(), **data}
        self._notebook.sent(self.id, [(type, whole)])
        seq = await self.session.append(type, whole)
        self._seqs.append(seq)
        return seq

    def write(self, text: str) -> None:
        """Write a piece of an answer, as a model would give it."""
        self._notebook.wrote(self.id, text)
        self.session.write(text)

    async def flush(self) -> None:
        """Wait until everything is durable."""
        began, waits = time.monotonic(), bool(self._seqs)
        await self.session.flush()
        self._note_acknowledged(time.monotonic() - began if waits else None)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Be in a turn."""
        async with self.session.turn():
            (begin,) = await self.session.read(last=1)
            number: int = begin.data["turn"]
            self._notebook.turn(self.id, number, "start")
            yield
        self.turns = number
        self._note_acknowledged()
        self._notebook.turn(self.id, number, "end", "completed")

    @asynccontextmanager
    async def call(self, effect: Effect, arguments: Mapping[str, Any], output: Any) -> AsyncIterator[None]:
        """Be in a tool call, which then gives its output."""
        id = self._maker.unique()
        started = {"id": id, "name": "work", "arguments": dict(arguments), "effect": effect}
        self._notebook.sent(self.id, [("tool/started", started)])
        async with self.session.tool(id, "work", dict(arguments), effect=effect) as call:
            self._seqs.append(self.session.head - 1)
            self._note_acknowledged()
            yield
            self._notebook.sent(self.id, [("tool/finished", {"id": id, "output": output})])
            await call.finish(output)
            self._seqs.append(self.session.head - 1)

    async def rewind(self, to: int) -> None:
        """Go back to the first `to` events."""
        await self.session.rewind(to)
        self._note_acknowledged()
        self._notebook.rewound(self.id, to)

    def _note_acknowledged(self, seconds: float | None = None) -> None:
        self._notebook.acknowledged(self.id, self.session.head, self._seqs, seconds)
        self._seqs = []


@asynccontextmanager
async def noted(session: Session, notebook: Notebook, maker: Maker) -> AsyncIterator[NotedSession]:
    """Have a session open, from now on noted; close it."""
    notebook.opened(session.id, session._stream.epoch, session.head)
    async with session:
        yield NotedSession(session, notebook, maker)
    notebook.closed(session.id)
