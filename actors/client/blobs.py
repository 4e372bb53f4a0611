"""A client's blobs: put and read in threads, so that a host's loop never waits for a disk.

A content that was put is kept in memory until an event that names it is stored, within a bound, so that it can be put
again if the writer doesn't find it. Spilled data is read when an event is given to the program and never before: lists,
openings and whatever only folds events do with the stub in the line.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from anyio.to_thread import run_sync

from turnkeeper.storage import blobs
from turnkeeper.storage.errors import TooLarge
from turnkeeper.storage.limits import MIB
from turnkeeper.storage.requests import Gap

from ..blob_references import BLOB_MARK, EVENT_BYTES_MAX, blob_of_stub
from ..records import Event, EventPage
from . import spilling

KEPT_BYTES_MAX = EVENT_BYTES_MAX
"""Contents that are kept until they are named, in bytes; the oldest go first."""

PAGE_BYTES_MAX = 256 * MIB
"""Spilled data of one page, in bytes."""


class Blobs:
    """The blobs of the store at `root`, for one client."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._kept: dict[str, bytes] = {}
        self._kept_bytes = 0

    async def put(self, content: bytes) -> str:
        """Keep a content in the store; give its digest. Durable when it returns; cancelling waits for its end.

        Raises TooLarge, StoreFull, Failed.
        """
        digest = await run_sync(blobs.put, self._root, content)
        self._keep(digest, content)
        return digest

    async def get(self, digest: str) -> bytes:
        """Read a blob whole. Raises BlobMissing, Corrupt."""
        return await run_sync(blobs.get, self._root, digest)

    async def place(self, line: bytes, type: str, stream: str) -> tuple[bytes, list[str]]:
        """Put an event's data into a blob, if it is too large for its line; give the line and the blobs it names.

        Raises BlobMissing if it refers to one that isn't there, TooLarge if it refers to too many, StoreFull, Failed.
        """
        line, named, spilled = await run_sync(partial(spilling.place, self._root, line, type, stream))
        for digest, content in spilled.items():
            self._keep(digest, content)
        return line, named

    async def named_by(self, line: bytes) -> list[str]:
        """Give the blobs that a stored event's line names and that are there: a copy of the event names them, too."""
        return await run_sync(spilling.named_by, self._root, line) if BLOB_MARK in line else []

    async def restore(self, digest: str) -> bool:
        """Put a blob again whose content is still at hand, and say whether it is. Raises StoreFull, Failed."""
        content = self._kept.get(digest)
        if content is None:
            return False
        await run_sync(blobs.put, self._root, content)
        return True

    def forget(self, digests: Iterable[str]) -> None:
        """Keep these contents no longer: events that name them are stored."""
        for digest in digests:
            self._kept_bytes -= len(self._kept.pop(digest, b""))

    def _keep(self, digest: str, content: bytes) -> None:
        self.forget([digest])
        if len(content) > KEPT_BYTES_MAX:
            return
        self._kept[digest] = content
        self._kept_bytes += len(content)
        while self._kept_bytes > KEPT_BYTES_MAX:
            self.forget([next(iter(self._kept))])

    async def complete(self, page: EventPage) -> None:
        """Read the data of a page's spilled events; one whose data can't be read goes to what is missing.

        To be called once for a page. Raises TooLarge where that is too much at once.
        """
        spilled = {event.seq: found for event in page if (found := blob_of_stub(event.data)) is not None}
        if not spilled:
            return
        size = sum(size for _, size in spilled.values())
        if size > PAGE_BYTES_MAX and len(spilled) > 1:
            what = f"the data of events {min(spilled)} to {max(spilled)}, read at once; read fewer: it"
            raise TooLarge(what, size, PAGE_BYTES_MAX)
        gaps = await run_sync(spilling.complete, self._root, [event for event in page if event.seq in spilled])
        unread = {gap.first for gap in gaps}
        page[:] = [event for event in page if event.seq not in unread]
        page.missing = sorted([*page.missing, *gaps])

    async def complete_one(self, event: Event) -> Gap | None:
        """Read an event's data, if it is spilled; say what is missing if that can't be read. Called once for it."""
        if blob_of_stub(event.data) is None:
            return None
        return next(iter(await run_sync(spilling.complete, self._root, [event])), None)
