"""Reading a store in SQLite, from any process, served or not. Each question is one look, and nothing is held between.

A database that nobody serves is read as it lies there, without a lock. Somebody may begin to serve it at any moment: so
it is opened anew where it isn't the same any more, and a look during which it changed counts for nothing.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import chain

import orjson

from ..errors import Failed
from ..findings import Finding
from ..limits import ID_PATTERN, READ_CHUNK_BYTES
from ..requests import Gap, LostEvents, Page, PositionPage, StoredEvent, StreamRow, Summary, check_bounds
from . import DATABASE_FILE, streams
from .database import named, open_to_read, primary_code, stamp
from .losses import ROWS_GONE, lost_between, next_readable
from .streams import Stream


class SqliteReader:
    """Reads one store. For one thread at a time; close it. Not usable in a forked child."""

    def __init__(self, root: str, *, served: bool) -> None:
        self.findings: list[Finding] = []
        self._root = root
        self._served = served
        self._pid = os.getpid()
        self._open()

    def _open(self) -> None:
        self._stamp = None if self._served else stamp(self._root)
        self._database = open_to_read(self._root, as_it_lies=self._stamp is not None)

    def _has_changed(self) -> bool:
        return self._stamp is not None and stamp(self._root) != self._stamp

    @contextmanager
    def _looking(self) -> Iterator[sqlite3.Connection]:
        if self._pid != os.getpid():
            raise RuntimeError("a store can't be used in a forked child; open it again in this process")
        if self._has_changed():
            self.close()
            self._open()
        try:
            yield self._database
        except sqlite3.Error as error:
            raise (_changed() if self._has_changed() else named(error)) from error
        if self._has_changed():
            raise _changed()

    # -- streams

    def resolve(self, wanted: str) -> str:
        """Give the id that `wanted` names: an id, a host's key, or a unique prefix. Raises NotFound, Ambiguous."""
        return self.row(wanted).id

    def row(self, wanted: str) -> StreamRow:
        """Give what is known of a stream. Raises NotFound, Ambiguous."""
        with self._looking() as database:
            return streams.resolve(database, wanted).as_row()

    def ids_beginning(self, prefix: str, limit: int) -> list[str]:
        """List the ids of streams that begin so, in their order: deleted ones too, and those without owner."""
        if not ID_PATTERN.match(prefix):
            return []
        # "~" comes behind everything that an id is made of.
        query = "SELECT id FROM streams WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
        with self._looking() as database:
            return [id for (id,) in database.execute(query, (prefix, f"{prefix}~", limit))]

    def read(
        self, id: str, *, start: int = 0, stop: int | None = None, limit: int = 1000, size_max: int | None = None
    ) -> Page:
        """Read events `start` to `stop` (without it), `limit` at most; what can't be read stands in `missing`.

        Ends behind the event with which the lines have `size_max` bytes. A fork's first events are its parent's, under
        the parent's id. A deleted beginning isn't given. Raises NotFound for an unknown id, ValueError for a bound that
        is negative or no whole number.
        """
        check_bounds(start, stop, limit, size_max)
        left = sys.maxsize if size_max is None else size_max
        with self._looking() as database:
            stream = streams.get(database, id)
            page = Page([], stream.head, [])
            due = max(start, stream.summary.get("deleted_to", 0))
            end = stream.head if stop is None else min(stop, stream.head)
            end = min(end, due + limit)
            with closing(_events(database, stream, due, end)) as found:
                for event in found:
                    if left <= 0:
                        return page
                    _note_gap(page, due, event.seq)
                    page.events.append(event)
                    left -= len(event.line)
                    due = event.seq + 1
            if left > 0:
                _note_gap(page, due, end)
        return page

    def read_last(self, id: str, last: int) -> Page:
        """Read the newest `last` events."""
        check_bounds(last)
        with self._looking() as database:
            head = streams.get(database, id).head
        return self.read(id, start=max(0, head - last), limit=last)

    def rows(
        self,
        limit: int,
        before: tuple[int, str] | None = None,
        *,
        include_deleted: bool = False,
        label: tuple[str, str] | None = None,
        cwd: Collection[str] | str = (),
        having: str | None = None,
        **equal: str,
    ) -> list[StreamRow]:
        """List streams with events, by recency of commit, below `before` (a row's position and id).

        What is asked for is as `BackendReader.rows` says.
        """
        rows: list[StreamRow] = []
        cwds = {cwd} if isinstance(cwd, str) else set(cwd)
        # What a summary surely lacks is left out there, and not first read here.
        pieces = [[_member(name, value)] for name, value in (*equal.items(), *([label] if label else []))]
        pieces += [[_member(name, path) for name in ("cwd", "cwd_real") for path in cwds]] if cwds else []
        pieces += [[f'"{having}":']] if having else []
        holds = "".join(f" AND ({' OR '.join('instr(summary, ?)' for _ in each)})" for each in pieces)
        with self._looking() as database:
            found = database.execute(
                f"SELECT * FROM streams WHERE position > 0 AND (position, id) < (?, ?){holds} "
                "ORDER BY position DESC, id DESC",
                (*((1 << 62, "") if before is None else before), *chain.from_iterable(pieces)),
            )
            while len(rows) < limit and (row := found.fetchone()) is not None:
                stream = Stream(*row).as_row()
                summary = stream.summary
                if cwds and cwds.isdisjoint((summary.get("cwd"), summary.get("cwd_real"))):
                    continue
                if (having is None or having in summary) and _fits(summary, include_deleted, label, equal):
                    rows.append(stream)
            found.close()
        return rows

    # -- the whole store, by position

    def next_position(self) -> int:
        """Give the position that the next event will have."""
        with self._looking() as database:
            position: int = database.execute("SELECT next_position FROM store").fetchone()[0]
        return position

    def scan(self, after: int, size_max: int = READ_CHUNK_BYTES) -> PositionPage:
        """Read events with positions above `after`, in order, until they add up to `size_max` bytes.

        Call again with the position that is reached: up to there nothing is left out that isn't among what is lost.
        """
        events: list[StoredEvent] = []
        lost: list[LostEvents] = []
        reached, size = after, 0
        with self._looking() as database:
            (end,) = database.execute("SELECT next_position FROM store").fetchone()
            try:
                found = database.execute(
                    "SELECT position, stream, seq, line FROM events WHERE position > ? ORDER BY position", (after,)
                )
                with closing(found):
                    while size < size_max and (row := found.fetchone()) is not None:
                        event = StoredEvent(*row)
                        if event.position > reached + 1:
                            lost += lost_between(database, reached + 1, event.position)
                        events.append(event)
                        reached = event.position
                        size += len(event.line)
            except sqlite3.Error as error:
                if primary_code(error) != sqlite3.SQLITE_CORRUPT:
                    raise
                # A page is damaged: what stands before it is given first, and then the next page is looked for.
                if reached == after:
                    reached = next_readable(database, after + 1, end) - 1
                    lost = lost_between(database, after + 1, reached + 1)
            else:
                if size < size_max and end > reached + 1:
                    lost += lost_between(database, reached + 1, end)
                    reached = end - 1
        return PositionPage(events, reached, lost)

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _events(database: sqlite3.Connection, stream: Stream, start: int, end: int) -> Generator[StoredEvent]:
    """Yield a stream's events, first those of the streams that it was forked from."""
    places = [(stream.id, end)]
    firsts = [stream.summary.get("parent_seq", 0)]
    while start < min(firsts[-1], end):
        end = min(firsts[-1], end)
        stream = streams.get(database, stream.summary["parent"])
        places.append((stream.id, end))
        firsts.append(stream.summary.get("parent_seq", 0))
    for (id, stop), first in zip(reversed(places), reversed(firsts), strict=True):
        found = database.execute(
            "SELECT position, stream, seq, line FROM events WHERE stream = ? AND seq >= ? AND seq < ? ORDER BY seq",
            (id, max(start, first), stop),
        )
        with closing(found):
            yield from map(StoredEvent._make, found)


def _changed() -> Failed:
    return Failed(f"{DATABASE_FILE} was written to while it was read")


def _note_gap(page: Page, due: int, found: int) -> None:
    if found > due:
        page.missing.append(Gap(due, found - due, ROWS_GONE, DATABASE_FILE, 0))


def _member(name: str, value: str) -> str:
    """Give a member as it stands in a summary; for what can't stand in one, something that doesn't, either."""
    try:
        return orjson.dumps({name: value})[1:-1].decode()
    except TypeError:
        return "\n"


def _fits(summary: Summary, include_deleted: bool, label: tuple[str, str] | None, equal: Mapping[str, str]) -> bool:
    if summary.get("deleted") and not include_deleted:
        return False
    labels = summary.get("labels") or {}
    if label is not None and labels.get(label[0]) != label[1]:
        return False
    return all(summary.get(name) == value for name, value in equal.items())
