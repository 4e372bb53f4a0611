"""Making a repaired copy of a damaged session, as any writer of events would: the damaged one is only read.

The copy is named by a key that follows from the damage, so a second run finds the first one's copy, and goes on with
one that wasn't finished. Ownership keeps two repairs apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from turnkeeper.storage.errors import Exists, NotFound, WrongKind
from turnkeeper.storage.exact_json import encode_event
from turnkeeper.storage.patches import ABANDONED
from turnkeeper.storage.reading import Reader
from turnkeeper.storage.repair import REPAIRED, Readable, readable_page, renumbered, survey
from turnkeeper.storage.requests import StoredEvent, StreamRow

from .folding import FOLDED, NEWEST_REWIND, OPEN_TURN, REWOUND, TURNS, TurnState
from .ids import new_session_id
from .kinds import SESSION, TASK, kind_of
from .log_summary import CRITICAL, SCHEMAS, SNAPSHOTS, LogSummary
from .reading.rewinds import Rewind
from .records import Event

if TYPE_CHECKING:
    from .client.client import Client
    from .client.owned_stream import OwnedStream

Progress: TypeAlias = Callable[[int, int], None]
"""Called with events copied and events in all."""

REPAIRED_FROM = "repaired_from"
"""Member of a copy's `origin`: the id of the session that it was made from."""

_NOT_COPIED = frozenset(
    (
        *("id", "key", "owner", "damaged", "deleted", "deleted_to", "purged", "parent_seq", "keys"),
        *(OPEN_TURN, TURNS, NEWEST_REWIND, CRITICAL, SCHEMAS, SNAPSHOTS),
    )
)
"""What a summary says of the stream as it lies there, or what follows from its events."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What became of a repair: `copy` is the new session's id, None if there was nothing to repair.

    `is_new` says whether this run made or finished the copy; `readable` what was copied and what is missing.
    """

    copy: str | None
    is_new: bool
    readable: Readable


async def repair(client: Client, wanted: str, progress: Progress | None = None) -> Repair:
    """Copy what can be read of a damaged session into a new one, durably; the damaged one stays as it is.

    One that is whole gets no copy. Cancelled or killed, what was copied stays, and the next run goes on with it.

    Raises:
        NotFound, Ambiguous: There is no such session. WrongKind: It is a task.
        SessionBusy: Another repair is making this copy.
        Exists: Somebody has appended to a copy before it was finished.
        StoreFull, …: It couldn't be stored; run it again.
    """
    row = await client.reads.call(lambda reader: reader.row(wanted))
    if kind_of(row) == TASK:
        raise WrongKind(row.id, TASK, SESSION)  # its node alone writes what becomes of it
    readable = await client.reads.call(partial(survey, id=row.id))
    if not (readable.missing or row.summary.get("damaged")):
        return Repair(None, False, readable)
    copy = await client.reads.call(partial(_find_copy, key=readable.copy_key()))
    if copy is not None and copy.head > readable.events:
        await client.reads.call(partial(_check_copy, copy=copy.id, seq=readable.events, expected=readable.last))
        return Repair(copy.id, False, readable)
    # Nothing is added to the copy but what the damaged session has, so what is critical needn't be understood.
    critical = LogSummary.from_summary(row.summary).critical
    stream, _ = await client.open_stream(readable.copy_key(), create=_header(row, readable), known=critical)
    try:
        await _Copying(client, stream, readable, progress or (lambda done, total: None)).run()
        stream.patch({ABANDONED: None})  # a repair that was killed is nothing that a session's owner has to be told of
    finally:
        if stream.refusal is None:
            client.link.release(stream)
    await client.wait_until(stream, lambda: stream.is_settled)
    return Repair(stream.id, True, readable)


class _Copying:
    """One run of copying into `stream`, which may hold the beginning of the copy already."""

    def __init__(self, client: Client, stream: OwnedStream, readable: Readable, progress: Progress) -> None:
        self._client = client
        self._stream = stream
        self._readable = readable
        self._progress = progress
        self._stored = stream.head
        self._turn = TurnState()

    async def run(self) -> None:
        """Copy what isn't there yet, and wait until all of it is durable."""
        readable, reads = self._readable, self._client.reads
        if self._stored == 0:
            now = time.time_ns() // 1_000_000
            await self._add(encode_event(self._stream.id, 0, now, REPAIRED, readable.as_data()), None)
        seq, place = 1, readable.first
        while place < readable.head:
            events, place = await reads.call(partial(_page, id=readable.stream, start=place, head=readable.head))
            for stored in events:
                await self._copy(stored, seq)
                seq += 1
            self._progress(seq - 1, readable.events)
        self._client.link.request_flush(self._stream)
        await self._client.wait_until(self._stream, lambda: self._stream.acknowledged == self._stream.head)

    async def _copy(self, stored: StoredEvent, seq: int) -> None:
        """Add one event, unless the copy has it already; what it changes of the turn is part of the summary."""
        line, patch = renumbered(stored, self._stream.id, seq), None
        event = _folded_event(stored)
        if event is not None and event.type == REWOUND:
            line = self._rewind(event, seq)
        if event is not None:
            patch = self._turn.fold(seq, event.type, event.data)
        if seq >= self._stored:
            blobs = await self._client.blobs.named_by(stored.line)
            if blobs:
                patch = {**(patch or {}), "blobs": blobs}
            await self._add(line, patch)
        elif seq == self._stored - 1:
            await self._client.reads.call(partial(_check_copy, copy=self._stream.id, seq=seq, expected=stored))

    def _rewind(self, event: Event, seq: int) -> bytes:
        """Give a rewind's line in the copy: back to the same place, which has another number there."""
        meant = Rewind.from_event(event.seq, event.type, event.data)
        record = Rewind(seq, 1 + self._readable.events_below(meant.to), self._turn.rewound)
        return encode_event(self._stream.id, seq, event.time, event.type, {**event.data, **record.as_data()})

    async def _add(self, line: bytes, patch: Mapping[str, Any] | None) -> None:
        stream = self._stream
        while not stream.takes_at_once:
            stream.take_failure()
            self._client.link.request_flush(stream)
            await self._client.wait_change(stream)
        stream.add(line, patch)


def _header(row: StreamRow, readable: Readable) -> dict[str, Any]:
    """Make the copy's header of what is known of the damaged session."""
    summary = {name: value for name, value in row.summary.items() if name not in _NOT_COPIED}
    origin = {**(summary.pop("origin", None) or {}), REPAIRED_FROM: row.id}
    types = LogSummary.from_summary(row.summary).renumbered(lambda seq: 1 + readable.events_below(seq))
    return {"id": new_session_id(), **summary, **types.as_members(), "key": readable.copy_key(), "origin": origin}


def _find_copy(reader: Reader, key: str) -> StreamRow | None:
    try:
        return reader.row(key)
    except NotFound:
        return None


def _check_copy(reader: Reader, copy: str, seq: int, expected: StoredEvent | None) -> None:
    """See that a copy's event is the one that belongs there. Raises Exists."""
    if expected is None:
        return
    page = reader.read(copy, start=seq, limit=1)
    event = _folded_event(expected)
    if event is not None and event.type == REWOUND:
        return  # whose copy has numbers of its own
    if not page.events or page.events[0].line + b"\n" != renumbered(expected, copy, seq):
        raise Exists(copy, "copy, which was changed before it was finished,")


def _folded_event(stored: StoredEvent) -> Event | None:
    """Read an event that changes what a summary says of turns and rewinds; None for others, and for what is none."""
    try:
        event = Event.from_stored(stored)
    except (ValueError, KeyError, TypeError):
        return None
    return event if event.type in FOLDED and isinstance(event.data, dict) else None


def _page(reader: Reader, id: str, start: int, head: int) -> tuple[list[StoredEvent], int]:
    return readable_page(reader, id, start, head)
