"""Very many short sessions: in a store, as files of a directory, and as rows of a database.

A session has one event, a key, a directory, a title and a label, and nobody has it open; to every tenth session belongs
a task that has ended. The store is filled by the journal's own commits, a hundred sessions a batch. A program without
turnkeeper keeps one JSONL file a session, or a table of sessions with an index of each thing that it looks for and a
table of their events. All three hold the same lines.
"""

from __future__ import annotations

import gc
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from turnkeeper.actors.tasks.records import TaskRequest, ended, requested
from turnkeeper.storage import store
from turnkeeper.storage.exact_json import encode_event
from turnkeeper.storage.requests import Append, Post

from ..measuring.measured_process import MeasuredProcess
from ..measuring.runs import Tell
from ..stores.contents import EVENT_DATA, EVENT_TYPE
from ..stores.filled import UnsyncedFiles, commit, open_to_write

SESSION_BYTES = 8_000
"""What a session takes on disk at most, in all three forms: for looking whether there is room."""

_TIME = 1_700_000_000_000
_SESSIONS_A_BATCH = 100
_SESSIONS_A_TASK = 10
_TELL_SESSIONS = 5_000
_MIX = 2_654_435_761  # odd, so that different numbers stay different modulo 2 ** 32


@dataclass(frozen=True, slots=True)
class ShortSession:
    """The session of this number. Ids begin with what looks drawn, as the ones do that programs are given."""

    number: int

    @property
    def id(self) -> str:
        """The session's id; 16 characters."""
        return f"{self.number * _MIX % (1 << 32):08x}-session"

    @property
    def beginning(self) -> str:
        """The beginning of its id that is no other session's."""
        return self.id[:8]

    @property
    def key(self) -> str:
        """The host's own name for it."""
        return f"ticket/{self.number}"

    @property
    def header(self) -> dict[str, Any]:
        """What is known of it beside its log."""
        return {
            "id": self.id,
            "kind": "session",
            "created": self.active,
            "key": self.key,
            "cwd": f"/home/ines/harbour/{self.number % 50}",
            "title": f"Look after boat {self.number}",
            "labels": {"crew": f"watch {self.number % 7}"},
        }

    @property
    def active(self) -> int:
        """When something last happened in it, in ms since 1970."""
        return _TIME + self.number

    @property
    def line(self) -> bytes:
        """Its event."""
        return encode_event(self.id, 0, self.active, EVENT_TYPE, EVENT_DATA)


def drawn_session(sessions: int, turn: int) -> ShortSession:
    """Give one of so many sessions, in each turn another one, and far from the one before."""
    return ShortSession(turn * _MIX % sessions)


def tasks_of(sessions: int) -> int:
    """Say how many tasks so many sessions have."""
    return -(-sessions // _SESSIONS_A_TASK)


# -- in a store


def fill_store(path: Path, sessions: int, tell: Tell) -> None:
    """Make a store that holds so many sessions, closed cleanly; in a process of its own."""
    with MeasuredProcess(_fill, str(path), sessions) as process:
        while (done := process.receive()) < sessions:
            tell(f"filling a store with sessions: {done:,} of {sessions:,}")
    os.sync()  # or what is measured first would wait for what filling left to be written


def _fill(starter: Connection, root: str, sessions: int) -> None:
    gc.disable()  # nothing here makes cycles
    store.make_directory(root)
    backend = open_to_write(root, UnsyncedFiles(root))
    for numbers in _batches(range(sessions), _SESSIONS_A_BATCH):
        commit(backend, [*map(_append, numbers), *_tasks(numbers)])
        if numbers.stop % _TELL_SESSIONS == 0 and numbers.stop < sessions:
            starter.send(numbers.stop)
    backend.close()
    starter.send(sessions)


def _batches(numbers: range, count: int) -> Iterator[range]:
    return (numbers[first : first + count] for first in range(0, len(numbers), count))


def _append(number: int) -> Append:
    session = ShortSession(number)
    return Append(session.id, 1, 0, session.line, session.header, create=True)


def _tasks(numbers: Sequence[int]) -> Iterator[Post]:
    for session in map(ShortSession, numbers[::_SESSIONS_A_TASK]):
        task = f"task-{session.id}"
        asked = TaskRequest(
            id=task,
            command=["make", "test"],
            cwd="/",
            grace=5.0,
            limit=1 << 20,
            keep=True,
            starter={},
            session=session.id,
        )
        yield requested(asked, session.active)
        end = {"how": {"code": 0}, "by": "itself", "output_bytes": 0}
        yield ended(task, end, session.active + 1, is_tree_empty=True)


# -- as files


class SessionDirectory:
    """A directory with a file for each session, by its id."""

    def __init__(self, path: Path, sessions: int, tell: Tell) -> None:
        self._path = path
        path.mkdir()
        for numbers in _batches(range(sessions), _TELL_SESSIONS):
            tell(f"filling a directory with files: {numbers.start:,} of {sessions:,}")
            for session in map(ShortSession, numbers):
                file = path / f"{session.id}.jsonl"
                file.write_bytes(session.line)
                os.utime(file, ns=(session.active * 1_000_000,) * 2)

    def newest(self, count: int | None = None) -> list[str]:
        """Give the ids of the files that were changed last, or of all; the newest first."""
        with os.scandir(self._path) as entries:
            times = [(entry.stat().st_mtime_ns, entry.name) for entry in entries]
        times.sort(reverse=True)
        return [name.removesuffix(".jsonl") for _, name in times[:count]]

    def read_beginning_with(self, beginning: str) -> list[bytes]:
        """Find the one session whose id begins so, and read it."""
        with os.scandir(self._path) as entries:
            (found,) = [entry.path for entry in entries if entry.name.startswith(beginning)]
        return Path(found).read_bytes().splitlines()


# -- as rows


class SessionTables:
    """A database of sessions and their events."""

    def __init__(self, path: Path, sessions: int) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; BEGIN;"
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, key TEXT UNIQUE, cwd TEXT, title TEXT, active INTEGER);"
            "CREATE INDEX recency ON sessions (active);"
            "CREATE TABLE events (session TEXT, seq INTEGER, line BLOB, PRIMARY KEY (session, seq)) WITHOUT ROWID;"
        )
        made = [ShortSession(number) for number in range(sessions)]
        self._database.executemany("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", map(_row, made))
        self._database.executemany("INSERT INTO events VALUES (?, 0, ?)", ((each.id, each.line) for each in made))
        self._database.execute("COMMIT")

    def newest(self, count: int) -> list[str]:
        """Give the ids of the sessions that were active last."""
        rows = self._database.execute("SELECT * FROM sessions ORDER BY active DESC LIMIT ?", (count,))
        return [row[0] for row in rows]

    def page_through(self, count: int) -> int:
        """Go through all sessions in pages of so many, the last active first; say how many there are."""
        select = "SELECT * FROM sessions WHERE active < ? ORDER BY active DESC LIMIT ?"
        found, before = 0, 1 << 62
        while rows := self._database.execute(select, (before, count)).fetchall():
            found += len(rows)
            before = rows[-1][-1]
        return found

    def read_beginning_with(self, beginning: str) -> list[bytes]:
        """Find the one session whose id begins so, and read its last event."""
        select = "SELECT id FROM sessions WHERE id >= ? AND id < ? LIMIT 2"
        return self._last(self._database.execute(select, (beginning, beginning + "\U0010ffff")).fetchall())

    def read_named(self, key: str) -> list[bytes]:
        """Find the session of this key, and read its last event."""
        return self._last(self._database.execute("SELECT id FROM sessions WHERE key = ?", (key,)).fetchall())

    def _last(self, found: list[tuple[str]]) -> list[bytes]:
        ((id,),) = found
        select = "SELECT line FROM events WHERE session = ? ORDER BY seq DESC LIMIT 1"
        return [line for (line,) in self._database.execute(select, (id,))]

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _row(session: ShortSession) -> tuple[str, str, str, str, int]:
    header = session.header
    return session.id, session.key, header["cwd"], header["title"], session.active
