"""Sessions of very many events: in a store, as files, and in a database; each can be copied up to some event.

In the store, runs hold ten events, and the runs of all sessions lie between each other until the shorter ones end; the
journal's own commits fill it. The files and the database hold the very lines.
"""

from __future__ import annotations

import fcntl
import gc
import os
import sqlite3
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from turnkeeper.storage import store

from ..measuring.measured_process import MeasuredProcess
from ..measuring.runs import Tell
from ..stores.filled import SessionLines, UnsyncedFiles, append, commit, open_to_write

RUN_EVENTS = 10
LONG_BYTES = 620
"""What an event takes on disk in the store at most: for looking whether there is room."""

_FICLONE = 0x40049409  # ioctl_ficlone(2)
_BLOCK_EVENTS = 10_000


def session_of(events: int) -> str:
    """Give the id of the session that has so many events; 16 characters."""
    return f"long-{events:011d}"


def _blocks(events: int) -> Iterator[bytes]:
    """Give the lines of the session of so many events, some at a time."""
    lines = SessionLines(session_of(events))
    for first in range(0, events, _BLOCK_EVENTS):
        yield lines.lines(first, min(_BLOCK_EVENTS, events - first))


# -- in a store


def fill_store(path: Path, lengths: Sequence[int], tell: Tell) -> None:
    """Make a store with a session of each of these numbers of events, closed cleanly; in a process of its own."""
    with MeasuredProcess(_fill, str(path), tuple(lengths)) as process:
        while (done := process.receive()) < max(lengths):
            tell(f"filling a session with events: {done:,} of {max(lengths):,}")
    os.sync()  # or what is measured first would wait for what filling left to be written


def _fill(starter: Connection, root: str, lengths: Sequence[int]) -> None:
    gc.disable()  # nothing here makes cycles
    store.make_directory(root)
    backend = open_to_write(root, UnsyncedFiles(root))
    sessions = {length: SessionLines(session_of(length)) for length in lengths}
    longest = max(lengths)
    for first in range(0, longest, RUN_EVENTS):
        commit(
            backend,
            [
                append(lines.stream, first, lines.lines(first, min(RUN_EVENTS, length - first)))
                for length, lines in sessions.items()
                if first < length
            ],
        )
        if first and first % (10 * _BLOCK_EVENTS) == 0:
            starter.send(first)
    backend.close()
    starter.send(longest)


# -- as a file


class LongFile:
    """A JSONL file with the lines of a session of so many events, and copies of it, which survive power loss.

    It is written if the directory doesn't have it yet.
    """

    def __init__(self, directory: Path, events: int) -> None:
        self.path = directory / f"{session_of(events)}.jsonl"
        self._copy = directory / "copy.jsonl"
        if not self.path.exists():
            with self.path.open("wb") as file:
                file.writelines(_blocks(events))
                os.fsync(file)

    def size_of(self, events: int) -> int:
        """Give how many bytes the first events take."""
        with self.path.open("rb") as file:
            return sum(len(file.readline()) for _ in range(events))

    def copy(self, size: int) -> None:
        """Copy so many bytes in the kernel, as `cp` does, into a file that is durable then."""
        with self.path.open("rb") as source, self._copy.open("wb") as copy:
            left = size
            while left:
                left -= os.copy_file_range(source.fileno(), copy.fileno(), left)
            os.fsync(copy)

    def clone(self, size: int) -> None:
        """Make a copy that shares the file's blocks, as `cp --reflink` does. Raises OSError where there is no such."""
        with self.path.open("rb") as source, self._copy.open("wb") as copy:
            fcntl.ioctl(copy, _FICLONE, source.fileno())
            copy.truncate(size)
            os.fsync(copy)

    def can_clone(self) -> bool:
        """Say whether the file system makes copies that share blocks."""
        try:
            self.clone(0)
        except OSError:
            return False
        finally:
            self.forget_copy()
        return True

    def forget_copy(self) -> int:
        """Remove the copy; give how many bytes it had."""
        size = self._copy.stat().st_size
        self._copy.unlink()
        return size


# -- as rows


class LongTable:
    """A table with the lines of a session of so many events, and copies of them, which survive power loss."""

    def __init__(self, path: Path, events: int) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
            "CREATE TABLE events (session TEXT, seq INTEGER, line BLOB, PRIMARY KEY (session, seq)) WITHOUT ROWID;"
            "BEGIN"
        )
        self._session = session_of(events)
        lines = (line for block in _blocks(events) for line in block.splitlines(keepends=True))
        rows = ((self._session, seq, line) for seq, line in enumerate(lines))
        self._database.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
        self._database.execute("COMMIT")
        self._prepare()

    def copy(self, events: int) -> None:
        """Copy the first events in one transaction."""
        # Into a table of their own, which is dropped behind the clock: rows of one with others would stay in the file.
        select = "INSERT INTO copies SELECT 'fork', seq, line FROM events WHERE session = ? AND seq < ?"
        self._database.execute(select, (self._session, events))

    def forget_copy(self) -> int:
        """Remove what was copied; give how many bytes of lines it had."""
        ((size,),) = self._database.execute("SELECT coalesce(sum(length(line)), 0) FROM copies")
        self._database.execute("DROP TABLE copies")
        self._prepare()
        return int(size)

    def _prepare(self) -> None:
        self._database.execute(
            "CREATE TABLE copies (session TEXT, seq INTEGER, line BLOB, PRIMARY KEY (session, seq)) WITHOUT ROWID"
        )
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the database."""
        self._database.close()
