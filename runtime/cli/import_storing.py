"""Storing imported sessions: everything that is new, once, however often and however far an import ran before.

Each event carries its record's key in its data, and whoever imports owns the session meanwhile. So what is there is
read back once, what is new is appended plainly, many events a flush, and an import that was killed anywhere is simply
run again. An exchange that such an end left open was closed by whoever opened the session next; those closings have no
key and count as the ends of the exchange and its calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from operator import methodcaller
from typing import Any

import anyio.lowlevel

from turnkeeper.actors.core_types import IMPORT_KEY
from turnkeeper.actors.errors import (
    BlobMissing,
    Corrupt,
    InvalidValue,
    NotFound,
    SessionBusy,
    TooLarge,
    TurnOpen,
)
from turnkeeper.actors.folding import TOOL_FINISHED, TURN_END, TURN_START
from turnkeeper.actors.importing import ImportedEvent, ImportedSession, ImportReport, SessionHeader
from turnkeeper.actors.importing.prints import fingerprint
from turnkeeper.actors.records import Event
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.session.session import Session

from .store_view import look_at

KEY_BYTES = 1024
"""Room for that member in an event's line."""

EVENTS_A_PAGE = 200
EVENTS_A_TURN = 64
"""After so many events the loop gets its turn, so that they are sent while others are read."""


class StoredEvents:
    """What a session has of an import already, in some 200 bytes an event."""

    def __init__(self) -> None:
        self._contents: dict[int, int] = {}
        self._closed_turns: set[int] = set()
        self._closed_calls: set[str] = set()
        self._open_turn: int | None = None

    def note(self, event: Event) -> None:
        """Take note of a stored event; call it with each, in order."""
        data = dict(event.data)
        key = data.pop(IMPORT_KEY, None)
        if isinstance(key, str):
            self._contents[hash(key)] = _content(event.type, data)
            if event.type == TURN_START:
                self._open_turn = data.get("turn")
            elif event.type == TURN_END:
                self._open_turn = None
        elif self._open_turn is not None and event.type == TURN_END:
            self._closed_turns.add(self._open_turn)
            self._open_turn = None
        elif self._open_turn is not None and event.type == TOOL_FINISHED:
            self._closed_calls.add(str(data.get("id")))

    def new_of(self, event: ImportedEvent) -> ImportedEvent | None:
        """Give what is to be appended of an event: itself, its other form where another end is stored, or nothing."""
        known = self._contents.get(hash(event.key))
        if known is None and not self._is_closed(event):
            return event
        other = event.otherwise
        if other is None or known == _content(event.type, event.data) or hash(other.key) in self._contents:
            return None
        return other

    def _is_closed(self, event: ImportedEvent) -> bool:
        if event.type == TURN_END:
            return event.data.get("turn") in self._closed_turns
        return event.type == TOOL_FINISHED and event.data.get("id") in self._closed_calls


def _content(type: str, data: dict[str, Any]) -> int:
    return fingerprint({"type": type, "data": data})


class ImportedSessions:
    """Stores imported sessions in the store at `path`, which `runtime` has open, and counts into one report."""

    def __init__(self, path: str, runtime: Runtime, report: ImportReport, tell: Callable[[], None]) -> None:
        self._path = path
        self._runtime = runtime
        self._report = report
        self._tell = tell
        self._children: dict[str, str] = {}

    async def store(self, imported: ImportedSession) -> None:
        """Add what is new of a session; durable when it returns.

        Raises SessionBusy or Corrupt if this session can't be added to, else what keeps anything from being stored.
        """
        async with await self._open(imported.header) as session:
            stored = await read_back(session)
            time = imported.header.created
            for number, event in enumerate(imported.events()):
                time = event.time_ms or time
                await self._append(session, imported, stored, replace(event, time_ms=time))
                if number % EVENTS_A_TURN == 0:
                    await anyio.lowlevel.checkpoint()
                    self._tell()
            await session.flush()
        self._report.sessions += 1
        if imported.header.parent_key is not None:
            self._children[session.id] = imported.header.parent_key

    async def _append(
        self, session: Session, imported: ImportedSession, stored: StoredEvents, event: ImportedEvent
    ) -> None:
        new = stored.new_of(event)
        if new is None:
            self._report.skipped += 1
            return
        try:
            await session.append(new.type, {**new.data, IMPORT_KEY: new.key}, time=event.time_ms)
        except (BlobMissing, InvalidValue, TooLarge, TurnOpen) as error:
            self._report.add_problem(imported.path, event.line, f"left out: {error.message()}")
        else:
            self._report.events += 1

    async def _open(self, header: SessionHeader) -> Session:
        try:
            return await self._runtime.open_session(header.key)
        except NotFound:
            return await self._runtime.create_session(
                key=header.key,
                cwd=header.cwd,
                title=header.title,
                labels=header.labels,
                origin=header.origin,
                created=header.created,
            )

    async def join_children(self) -> None:
        """Name the parents of the sessions stored so far, wherever they stood in the files.

        A child whose parent isn't in the store, or that is in use now, gets it by a later import of the same files.
        """
        for child, parent in self._orphans():
            with contextlib.suppress(SessionBusy, Corrupt):
                async with await self._runtime.open_session(child) as session:
                    await session.set_parent(parent)
        self._children.clear()

    def _orphans(self) -> list[tuple[str, str]]:
        """Give the ids of those that don't know their parent yet, and the parents' ids."""
        orphans = []
        with look_at(self._path) as view:
            for child, parent_key in self._children.items():
                with contextlib.suppress(NotFound):
                    parent = view.ask(methodcaller("resolve", parent_key))
                    if view.ask(methodcaller("row", child)).summary.get("parent") != parent:
                        orphans.append((child, parent))
        return orphans


async def read_back(session: Session) -> StoredEvents:
    """Read what a session has. Raises Corrupt where some of it can't be read: then nobody could tell what is new."""
    stored = StoredEvents()
    start, limit = 0, EVENTS_A_PAGE
    while start < session.head:
        try:
            page = await session.read(start=start, limit=limit)
        except TooLarge:
            if limit == 1:
                raise
            limit //= 2  # large events, as those with pictures are, of which a page holds fewer
            continue
        if page.missing:
            gaps = [(gap.first, gap.events) for gap in page.missing]
            raise Corrupt(session.id, page.missing[0].reason, page.missing[0].path, page.missing[0].offset, gaps)
        for event in page:
            stored.note(event)
        start += len(page)
    return stored
