"""What beginning again costs without turnkeeper: a process, a program with SQLite, one with JSON lines and no index.

The programs are processes of their own (`plain_program`). Each is killed when it has gone on, and the next one is timed
from that kill.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final, Literal, Self

from ..measuring.room import require_space
from ..measuring.runs import Figures, Run, Tell, interleaved, run_of
from ..stores.filled import EVENT_BYTES, SESSIONS

PLAIN_SQLITE: Final = "a program with SQLite, killed"
"""What is said of the one with SQLite where something is compared with it."""

_PROGRAM: Final = Path(__file__).with_name("plain_program.py")
_ROW_BYTES: Final = 584
"""What an event's row takes in a database."""


def measure_starts(rounds: int, tell: Tell) -> Run:
    """Measure what starting Python costs here, doing nothing and importing trio."""
    subjects = {"python_ms": partial(_start_python, "pass"), "trio_ms": partial(_start_python, "import trio")}
    measured = interleaved(rounds, subjects, lambda line: tell(f"starting a process: {line}"))
    taken = [dict(zip(measured, each, strict=True)) for each in zip(*measured.values(), strict=True)]
    return run_of("process start", {}, taken)


def _start_python(code: str) -> float:
    began = time.perf_counter()
    # A process session of its own, as all that is measured has: Ctrl-C isn't for it, and it would print a traceback.
    subprocess.run([sys.executable, "-P", "-c", code], stdin=subprocess.DEVNULL, start_new_session=True, check=True)
    return (time.perf_counter() - began) * 1000


class PlainProgram:
    """A program that keeps events at `place` and is killed again and again; left, it is dead."""

    def __init__(self, kind: Literal["sqlite", "jsonl"], place: Path) -> None:
        self._part = "append_ms" if kind == "sqlite" else "replay_ms"
        self._command = [sys.executable, "-P", str(_PROGRAM), kind, str(place)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._kill()

    def kill_and_begin_again(self) -> Figures:
        """Kill it if it runs, start it again, and give what it took until it could go on, from the kill on."""
        died = time.monotonic()
        self._kill()
        noticed = time.monotonic()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        began, went_on = json.loads(self._process.stdout.readline())
        parts = {"detect_ms": noticed - died, "respawn_ms": began - noticed, self._part: went_on - began}
        return {name: seconds * 1000 for name, seconds in {**parts, "total_ms": went_on - died}.items()}

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def fill_database(path: Path, size: int, tell: Tell) -> None:
    """Make a database of about so many bytes, full of events of a hundred sessions.

    Raises OSError with ENOSPC, and nothing is made, where there isn't enough space.
    """
    require_space(path.parent, size)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for pragma in ("page_size=4096", "journal_mode=OFF", "synchronous=OFF"):
            database.execute(f"PRAGMA {pragma}")
        database.execute(
            "CREATE TABLE events (session INTEGER, seq INTEGER, line BLOB, PRIMARY KEY (session, seq)) WITHOUT ROWID"
        )
        for session in range(SESSIONS):
            if session % 20 == 0:
                tell(f"filling a database: {session} % of {size / 1e6:,.0f} MB")
            database.execute(
                "WITH RECURSIVE n(seq) AS (VALUES (0) UNION ALL SELECT seq + 1 FROM n WHERE seq + 1 < ?) "
                "INSERT INTO events SELECT ?, seq, ? FROM n",
                (max(1, size // _ROW_BYTES // SESSIONS), session, b"." * EVENT_BYTES),
            )
        database.execute("PRAGMA journal_mode=WAL")
    os.sync()
