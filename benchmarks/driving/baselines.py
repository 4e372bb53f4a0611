"""What a flush is compared with: the ways to make an event durable without turnkeeper, each as its users write it.

    append        one file for all, opened for appending, growing: write and fdatasync
    filled        one file for all, filled with newlines ahead: pwrite into the filling and fdatasync
    sqlite        a row an event, WAL, synchronous=FULL, one transaction a flush
    files         a file for each session, opened for appending: write and fdatasync; or write alone

All run in the process that measures and cross no process boundary. What is `grouped` takes all that waits and syncs it
at once, as a group commit does; `files` can do with threads what it can't do with groups. A batch that `flush` has
returned from outlives what `durability` says, so far as the disk keeps its word.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from ..measuring.durability import POWER_LOSS, PROCESS_DEATH, Durability, sqlite_durability

_SYNCED: Final = Durability(POWER_LOSS, "fdatasync")
_WRITTEN: Final = Durability(PROCESS_DEATH, "write alone")

DATABASE = "events.sqlite"
"""The file in which a baseline keeps rows."""

_FILLING_BYTES = 1024 * 1024
_FILLING = b"\n" * (256 * 1024)


class Flushed(NamedTuple):
    """One event of a session, as the line that is to be durable."""

    session: int
    seq: int
    line: bytes


class Baseline(Protocol):
    """One way to make events durable."""

    @property
    def durability(self) -> Durability:
        """What a batch outlives once `flush` has returned."""

    def flush(self, batch: Sequence[Flushed]) -> None:
        """Make the events durable, together."""

    def close(self) -> None:
        """Give up what is open."""


MakeBaseline: TypeAlias = Callable[[Path, int], Baseline]
"""Makes one in a directory, for so many sessions."""


class AppendedFile:
    """One file for all sessions, which grows with every event; without `synced` it is left to the system."""

    def __init__(self, directory: Path, sessions: int, *, synced: bool = True) -> None:
        self.durability = _SYNCED if synced else _WRITTEN
        self._synced = synced
        self._file = os.open(directory / "append.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def flush(self, batch: Sequence[Flushed]) -> None:
        """Append the lines in one write, and sync."""
        os.write(self._file, b"".join([each.line for each in batch]))
        if self._synced:
            os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class FilledFile:
    """One file for all sessions, whose size a flush rarely changes: newlines are written ahead, a MiB at a time."""

    durability = _SYNCED

    def __init__(self, directory: Path, sessions: int) -> None:
        self._file = os.open(directory / "filled.jsonl", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._end = os.fstat(self._file).st_size
        self._filled = self._end

    def flush(self, batch: Sequence[Flushed]) -> None:
        """Write the lines over the filling, and sync; fill ahead where it runs out."""
        content = b"".join([each.line for each in batch])
        if self._end + len(content) > self._filled:
            self._fill(len(content))
        os.pwrite(self._file, content, self._end)
        os.fdatasync(self._file)
        self._end += len(content)

    def _fill(self, wanted: int) -> None:
        goal = self._end + max(wanted, _FILLING_BYTES)
        while self._filled < goal:
            self._filled += os.pwrite(self._file, _FILLING, self._filled)
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class SqliteRows:
    """A table of events, with a write-ahead log that each commit syncs; not so where `synchronous` is NORMAL."""

    def __init__(self, directory: Path, sessions: int, *, synchronous: Literal["FULL", "NORMAL"] = "FULL") -> None:
        # One thread at a time uses it, but not always the one that made it.
        self._database = sqlite3.connect(directory / DATABASE, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute(f"PRAGMA synchronous={synchronous}")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS events (session INTEGER, seq INTEGER, line BLOB, PRIMARY KEY (session, seq)) "
            "WITHOUT ROWID"
        )
        self.durability = sqlite_durability(
            *(self._database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous"))
        )

    def flush(self, batch: Sequence[Flushed]) -> None:
        """Insert the events in one transaction."""
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany("INSERT INTO events VALUES (?, ?, ?)", batch)
        self._database.execute("COMMIT")

    def read(self, session: int) -> list[bytes]:
        """Select a session's lines."""
        found = self._database.execute("SELECT line FROM events WHERE session = ? ORDER BY seq", (session,))
        return [line for (line,) in found]

    def close(self) -> None:
        """Close the database."""
        self._database.close()


class SessionFiles:
    """A file for each session; the files of a batch are written and synced by `threads` at once, or one by one.

    Without `synced` they are written and left to the system.
    """

    def __init__(self, directory: Path, sessions: int, threads: int = 1, *, synced: bool = True) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._paths = [directory / f"session-{number}.jsonl" for number in range(sessions)]
        self._files = [os.open(path, flags, 0o600) for path in self._paths]
        self.durability = _SYNCED if synced else _WRITTEN
        self._synced = synced
        self._threads = ThreadPoolExecutor(threads) if threads > 1 else None

    def flush(self, batch: Sequence[Flushed]) -> None:
        """Append each line to its session's file, and sync that."""
        if self._threads is None:
            for each in batch:
                self._flush_one(each)
        else:
            list(self._threads.map(self._flush_one, batch))

    def _flush_one(self, event: Flushed) -> None:
        file = self._files[event.session]
        os.write(file, event.line)
        if self._synced:
            os.fdatasync(file)

    def read(self, session: int) -> list[bytes]:
        """Read a session's lines."""
        return self._paths[session].read_bytes().splitlines()

    def close(self) -> None:
        """Close the files."""
        if self._threads is not None:
            self._threads.shutdown()
        for file in self._files:
            os.close(file)
