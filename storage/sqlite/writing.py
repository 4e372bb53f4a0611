"""The SQLite backend as its one writer drives it: one transaction a commit, synced before it is answered.

Any failure but a lack of space raises Failed, and the store takes nothing more: its process must end, and the next
opening settles what the disk has. Synchronous, for one thread; the caller holds the store's lock.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..collecting import BlobCollection
from ..errors import Failed, StoreFull
from ..filesystem import FileSystem, LocalFileSystem
from ..full_disk import full_disk_as_refusal
from ..limits import MIB, RESERVE_BATCHES, RESERVE_BYTES
from ..opening import OpeningReport
from ..requests import OWNERLESS, Append, Post, Request, Result, StreamRow
from ..spare_files import rewrite_file
from ..store import WRITER_FILE, describe
from . import DATABASE_FILE, streams
from .answering import Answering
from .database import named, open_to_write, primary_code

CHECKPOINT_BYTES = 4 * MIB
"""So many bytes of lines stay in the write-ahead log before they are moved into the database, between two commits."""


class SqliteStore:
    """An open store. Make one with `SqliteStore.open`; not usable in a forked child."""

    index_directory = DATABASE_FILE

    def __init__(
        self,
        database: sqlite3.Connection,
        fs: FileSystem,
        is_gone: Callable[[Mapping[str, Any]], bool],
        clock: Callable[[], int],
    ) -> None:
        self._database = database
        self._fs = fs
        self._is_gone = is_gone
        self._clock = clock
        self._pid = os.getpid()
        self._failed = False
        self._log_bytes = 0
        self._blobs = BlobCollection(fs, self._is_blob_named)
        self.report = OpeningReport()
        (self.next_position,) = database.execute("SELECT next_position FROM store").fetchone()
        self._blobs.look_if_due()

    @classmethod
    def open(
        cls,
        root: str,
        *,
        is_gone: Callable[[Mapping[str, Any]], bool],
        holder: Mapping[str, Any],
        fs: FileSystem | None = None,
        clock: Callable[[], int] | None = None,
    ) -> SqliteStore:
        """Open the database of the store at `root`, whose lock the caller holds, and settle how it ended.

        `is_gone` says whether a stream's owner has ended; `holder` goes into writer.json, for people; `clock` gives
        milliseconds since 1970. Raises StoreRefused, NewerFormat, StoreFull, Corrupt, Failed, OSError.
        """
        fs = fs or LocalFileSystem(root)
        description = describe(root)
        with full_disk_as_refusal(fs):
            database = open_to_write(fs, description.store, description.durability)
            try:
                rewrite_file(fs, WRITER_FILE, json.dumps(dict(holder)).encode() + b"\n")
                return cls(database, fs, is_gone, clock or _now)
            except sqlite3.Error as error:
                database.close()
                raise named(error) from error
            except BaseException:
                database.close()
                raise

    # -- committing

    def commit(self, requests: Sequence[Request]) -> list[Result]:
        """Carry out the requests, in order, in one transaction; give one result for each.

        When it returns, what it answers is durable and readable from every process. A refused request is an error
        among the results. Raises Failed when it can't be told what was stored.
        """
        if self._failed:
            raise Failed("an earlier commit failed and this writer takes no more")
        self._check_process()
        size = sum(map(_size, requests))
        try:
            full = self._lack_of_space(size)
            try:
                results = self._transact(requests, full)
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_FULL:
                    raise
                # The transaction's end was never written, so certainly nothing of it is stored.
                results = self._transact(requests, StoreFull(self._fs.free_bytes(), size))
        except (sqlite3.Error, OSError) as error:
            self._failed = True
            raise Failed(f"{DATABASE_FILE} could not be written: {error}") from error
        self._log_bytes += size
        return results

    def _transact(self, requests: Sequence[Request], full: StoreFull | None) -> list[Result]:
        database = self._database
        answering = Answering(database, self._fs, self._is_gone, self._clock(), self.next_position, full)
        database.execute("BEGIN IMMEDIATE")
        try:
            results = [answering.answer(request) for request in requests]
            if answering.has_written:
                database.execute(
                    "UPDATE store SET commits = commits + 1, next_position = ?", (answering.next_position,)
                )
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        self.next_position = answering.next_position
        return results

    def _lack_of_space(self, size: int) -> StoreFull | None:
        """Say that the reserve is used up, if it is."""
        reserve = max(RESERVE_BYTES, RESERVE_BATCHES * size)
        free = self._fs.free_bytes()
        return StoreFull(free, reserve) if free < reserve else None

    def between_commits(self) -> None:
        """Move what is in the write-ahead log into the database, if that is much; at times remove unnamed blobs.

        Call it when the answers are out. A full disk is no error here: the next commit answers StoreFull. Raises
        Failed.
        """
        if self._failed:
            return
        try:
            if self._log_bytes >= CHECKPOINT_BYTES:
                self._database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                self._log_bytes = 0
            self._blobs.look_if_due()
        except sqlite3.Error as error:
            if primary_code(error) != sqlite3.SQLITE_FULL:
                self._failed = True
                raise Failed(f"{DATABASE_FILE} could not be written: {error}") from error

    def _is_blob_named(self, digest: str) -> bool:
        named = self._database.execute("SELECT 1 FROM blobs WHERE digest = ? LIMIT 1", (bytes.fromhex(digest),))
        return named.fetchone() is not None

    # -- looking

    @contextmanager
    def _looking(self) -> Iterator[sqlite3.Connection]:
        self._check_process()
        try:
            yield self._database
        except sqlite3.Error as error:
            raise named(error) from error

    def resolve(self, wanted: str) -> str:
        """Give the id that `wanted` names: an id, a host's key, or a unique prefix. Raises NotFound, Ambiguous."""
        with self._looking() as database:
            return streams.resolve(database, wanted).id

    def row(self, id: str) -> StreamRow:
        """Give what is known of a stream. Raises NotFound."""
        with self._looking() as database:
            return streams.get(database, id).as_row()

    def missing(self, id: str) -> list[tuple[int, int]]:
        """List (first seq, number) of a damaged stream's own events whose rows are gone. Looks at all of them."""
        with self._looking() as database:
            stream = streams.get(database, id)
            rows = database.execute("SELECT seq FROM events WHERE stream = ? ORDER BY seq", (id,)).fetchall()
        due, gaps = stream.summary.get("parent_seq", 0), []
        for (seq,) in (*rows, (stream.head,)):
            if seq > due:
                gaps.append((due, seq - due))
            due = seq + 1
        return gaps

    def statistics(self) -> dict[str, int]:
        """Count commits and streams, and give the next event's position."""
        with self._looking() as database:
            (commits,) = database.execute("SELECT commits FROM store").fetchone()
            (count,) = database.execute("SELECT count(*) FROM streams").fetchone()
            (ownerless,) = database.execute("SELECT count(*) FROM streams WHERE epoch = ?", (OWNERLESS,)).fetchone()
        return {"batches": commits, "position": self.next_position, "streams": count, "ownerless": ownerless}

    def close(self) -> None:
        """Close the database; without a failure, and without readers, the write-ahead log goes into it and away.

        Raises Failed.
        """
        self._check_process()
        self._failed = True
        try:
            self._database.close()
        except sqlite3.Error as error:
            raise named(error) from error

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise RuntimeError("a store can't be used in a forked child; open it again in this process")


def _size(request: Request) -> int:
    """Give about how many bytes of lines a request would add."""
    if isinstance(request, Append):
        return len(request.lines)
    return len(request.tail) if isinstance(request, Post) else 0


def _now() -> int:
    return time.time_ns() // 1_000_000
