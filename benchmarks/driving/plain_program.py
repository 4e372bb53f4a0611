"""A program that keeps its events without turnkeeper and begins again: `python plain_program.py sqlite|jsonl PLACE`.

It says when its code ran, and when it could go on, in seconds of the system's monotonic clock, and then waits to be
killed. Only the standard library, as it would be a small program's.

    sqlite    PLACE is a database in the durable setting of its write-ahead log: open it, and commit one event. Then
              some more are committed, so that whoever kills it leaves a log to recover.
    jsonl     PLACE is a directory of JSON lines without an index: read all of them, and parse the last one
"""

from __future__ import annotations

import glob
import json
import sqlite3
import sys
import time

LEFT_IN_LOG = 100
"""Transactions that are left in SQLite's log: some 400 KB of the 4 MB that it may hold before it is moved."""

SESSION = 1_000_000_000
INSERT = f"INSERT INTO events SELECT {SESSION}, coalesce(max(seq), -1) + 1, ? FROM events WHERE session = {SESSION}"
LINE = b"." * 460


def main() -> None:
    """Begin again, say so, and wait."""
    began = time.monotonic()
    kind, place = sys.argv[1:]
    if kind == "sqlite":
        database = sqlite3.connect(place, isolation_level=None)
        database.execute("PRAGMA synchronous=FULL")
        database.execute(INSERT, (LINE,))
        went_on = time.monotonic()
        for _ in range(LEFT_IN_LOG):
            database.execute(INSERT, (LINE,))
    else:
        read(place)
        went_on = time.monotonic()
    print(json.dumps([began, went_on]), flush=True)  # noqa: T201
    sys.stdin.read()


def read(place: str) -> None:
    """Read all lines, up to each file's filling."""
    last = b""
    for path in sorted(glob.glob(f"{place}/*.jsonl")):
        with open(path, "rb") as lines:
            for line in lines:
                if line == b"\n":
                    break
                last = line
    json.loads(last)


if __name__ == "__main__":
    main()
