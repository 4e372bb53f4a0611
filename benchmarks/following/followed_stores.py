"""Who appends on a timetable, and who follows in another process: ours, and what programs do that have no bus.

    turnkeeper           sessions of one host; followers are woken by what the writer says
    JSONL, inotify       one file, write and fdatasync; followers are woken by the kernel when it has changed
    JSONL, each 100 ms   the same; followers look for more every 100 ms, as `tail -f` does where nothing wakes it
    SQLite, each 10 ms   a row an event, WAL, synchronous=FULL; followers select what is behind their last row

An appender says of each event when it was planned and when it was acknowledged, a follower when it had it as an object,
all by the machine's one clock. The followers of a kind share a process, and have a file or a connection each.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import anyio
import orjson

from turnkeeper import Runtime, open_runtime
from turnkeeper.storage.exact_json import encode_event

from ..driving.baselines import DATABASE, AppendedFile, Flushed
from ..measuring.asked_process import answer_all
from ..stores.contents import EVENT_DATA, EVENT_TYPE
from ..stores.filled import session_name

NUMBER = "number"
"""Member of an event's data that says which one of its timetable it is."""

WOKEN, LOOKING = "woken", "looking"
"""How followers hear of more."""

READY_SECONDS = 0.03
"""How long before the first planned event an appender's tasks are started."""

TAIL_SECONDS = 0.1
SELECT_SECONDS = 0.01
SELECT_ROWS = 1_000
READ_BYTES = 256 * 1024

_FILE = "append.jsonl"
_IN_MODIFY = 2  # inotify(7)


class Moments(NamedTuple):
    """When an event was planned, and when its appender knew that it was durable; seconds of `time.perf_counter`."""

    planned: float
    acknowledged: float


@dataclass(frozen=True, slots=True)
class Pace:
    """A timetable of so many `events`, `per_second` of them over all `sessions`, each of which has them in turn."""

    sessions: int
    per_second: int
    events: int


Received: TypeAlias = list[float]
"""When a follower had each event of a timetable, in the order of that."""

Append: TypeAlias = Callable[[int, dict[str, Any]], Awaitable[int]]
"""Makes an event of this data durable in the session of this number; gives the place of the last one behind it."""

Follow: TypeAlias = Callable[[int], AsyncGenerator[dict[str, Any], None]]
"""Gives the data of the events behind a place, without end, as they come."""

Wait: TypeAlias = Callable[[], Awaitable[object]]
Wakes: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Wait]]
"""Gives what waits until it may be worth while to look at a file again."""


async def append_paced(append: Append, pace: Pace) -> tuple[list[Moments], int]:
    """Append by a timetable, each session in a task of its own; give the moments of each, and the last one's place."""
    moments = [Moments(0.0, 0.0)] * pace.events
    places = [0]
    began = time.perf_counter() + READY_SECONDS

    async def append_all(session: int) -> None:
        for number in range(session, pace.events, pace.sessions):
            planned = began + number / pace.per_second
            await anyio.sleep(max(0.0, planned - time.perf_counter()))
            places.append(await append(session, {**EVENT_DATA, NUMBER: number}))
            moments[number] = Moments(planned, time.perf_counter())

    async with anyio.create_task_group() as tasks:
        for session in range(pace.sessions):
            tasks.start_soon(append_all, session)
    return moments, max(places)


async def receive(follow: Follow, followers: int, after: int, events: int) -> list[Received]:
    """Let so many follow from a place on, until each has had so many events."""
    received = [[0.0] * events for _ in range(followers)]

    async def follow_all(times: Received) -> None:
        left = events
        async with aclosing(follow(after)) as following:
            async for data in following:
                times[data[NUMBER]] = time.perf_counter()
                left -= 1
                if not left:
                    return

    async with anyio.create_task_group() as tasks:
        for times in received:
            tasks.start_soon(follow_all, times)
    return received


# -- ours


def append_to_store(starter: Connection, store: Path, sessions: int) -> None:
    """Be a host whose sessions append."""
    anyio.run(_append_to_store, starter, store, sessions, backend="trio")


async def _append_to_store(starter: Connection, store: Path, count: int) -> None:
    async with open_runtime(store) as runtime:
        sessions = [await runtime.create_session() for _ in range(count)]

        async def append(session: int, data: dict[str, Any]) -> int:
            await sessions[session].append(EVENT_TYPE, data)
            return await sessions[session].flush()

        await answer_all(starter, {"append": partial(append_paced, append)})


def follow_store(starter: Connection, store: Path) -> None:
    """Be a process that follows all sessions of a store."""
    anyio.run(_follow_store, starter, store, backend="trio")


async def _follow_store(starter: Connection, store: Path) -> None:
    async with open_runtime(store) as runtime:
        await answer_all(starter, {WOKEN: partial(receive, partial(_events, runtime))})


async def _events(runtime: Runtime, after: int) -> AsyncGenerator[dict[str, Any], None]:
    async with aclosing(runtime.follow(after=after)) as following:
        async for event in following:
            yield event.data


# -- a file


def append_to_file(starter: Connection, directory: Path, sessions: int) -> None:
    """Be a process that appends to one file."""
    directory.mkdir()
    file = AppendedFile(directory, sessions)
    path = directory / _FILE

    async def append(session: int, data: dict[str, Any]) -> int:
        file.flush([Flushed(session, 0, _line(session, data))])
        return path.stat().st_size

    with closing(file):
        anyio.run(answer_all, starter, {"append": partial(append_paced, append)}, backend="trio")


def follow_file(starter: Connection, directory: Path) -> None:
    """Be a process whose followers of that file are woken, or look at it again and again."""
    path = directory / _FILE
    _answer_followers(starter, {WOKEN: partial(_lines, path, _changes), LOOKING: partial(_lines, path, _ticks)})


def _answer_followers(starter: Connection, ways: Mapping[str, Follow]) -> None:
    anyio.run(answer_all, starter, {how: partial(receive, follow) for how, follow in ways.items()}, backend="trio")


async def _lines(path: Path, wakes: Wakes, after: int) -> AsyncGenerator[dict[str, Any], None]:
    async with wakes(path) as wake:
        with path.open("rb", buffering=0) as file:
            file.seek(after)
            unfinished = b""
            while True:
                *lines, unfinished = (unfinished + file.read(READ_BYTES)).split(b"\n")
                for line in lines:
                    yield orjson.loads(line)["data"]
                if not lines:
                    await wake()


@asynccontextmanager
async def _changes(path: Path) -> AsyncIterator[Wait]:
    """Watch a file; gives what waits for its next change since the watch began, or since the last wait."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if watch < 0 or libc.inotify_add_watch(watch, os.fsencode(path), _IN_MODIFY) < 0:
            raise OSError(ctypes.get_errno(), "can't be watched", str(path))

        async def wait() -> None:
            await anyio.wait_readable(watch)
            os.read(watch, READ_BYTES)

        yield wait
    finally:
        os.close(watch)


@asynccontextmanager
async def _ticks(path: Path) -> AsyncIterator[Wait]:
    yield partial(anyio.sleep, TAIL_SECONDS)


# -- a database


class EventTable:
    """A table whose rows are numbered in the order of events."""

    def __init__(self, directory: Path) -> None:
        self._database = sqlite3.connect(directory / DATABASE, isolation_level=None)
        self._database.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
            "CREATE TABLE IF NOT EXISTS events (place INTEGER PRIMARY KEY, session INTEGER, line BLOB);"
        )

    def append(self, session: int, line: bytes) -> int:
        """Insert an event in a transaction of its own; give its place."""
        inserted = self._database.execute("INSERT INTO events (session, line) VALUES (?, ?)", (session, line))
        return inserted.lastrowid or 0

    def fill(self, lines: list[bytes]) -> None:
        """Insert events in one transaction."""
        self._database.execute("BEGIN")
        self._database.executemany("INSERT INTO events (session, line) VALUES (0, ?)", ((line,) for line in lines))
        self._database.execute("COMMIT")

    def behind(self, place: int) -> list[tuple[int, bytes]]:
        """Give the events behind a place, with theirs, so many at a time."""
        select = "SELECT place, line FROM events WHERE place > ? ORDER BY place LIMIT ?"
        return self._database.execute(select, (place, SELECT_ROWS)).fetchall()

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def append_to_table(starter: Connection, directory: Path, sessions: int) -> None:
    """Be a process that inserts."""
    directory.mkdir()

    async def append(session: int, data: dict[str, Any]) -> int:
        return table.append(session, _line(session, data))

    with closing(EventTable(directory)) as table:
        anyio.run(answer_all, starter, {"append": partial(append_paced, append)}, backend="trio")


def follow_table(starter: Connection, directory: Path) -> None:
    """Be a process that selects what is new."""
    _answer_followers(starter, {LOOKING: partial(_rows, directory)})


async def _rows(directory: Path, after: int) -> AsyncGenerator[dict[str, Any], None]:
    with closing(EventTable(directory)) as table:
        while True:
            rows = table.behind(after)
            for place, line in rows:
                yield orjson.loads(line)["data"]
                after = place
            if not rows:
                await anyio.sleep(SELECT_SECONDS)


def _line(session: int, data: dict[str, Any]) -> bytes:
    return encode_event(session_name(session), 0, time.time_ns() // 1_000_000, EVENT_TYPE, data)
