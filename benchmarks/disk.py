"""What an event takes on disk, over its line alone: segments that were really written, without the filling ahead.

Three batches, between which any program's lie: ten events of one session, as an agent leaves that flushes at the end of
a turn while nobody else is busy; one event of each of ten sessions; a single event. Events have 460 bytes and ids 16
characters. Everything in a segment counts, its first line and the sessions' headers too. The index beside it is told
but doesn't count: it can be deleted at any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from turnkeeper.storage import store
from turnkeeper.storage.format import FILLING_BYTES
from turnkeeper.storage.limits import FILLING_AHEAD_BYTES, FILLING_STEP_BYTES
from turnkeeper.storage.store import INDEX_DIRECTORY, JOURNAL_DIRECTORY

from .measuring.measured_process import MeasuredProcess
from .measuring.room import require_space
from .measuring.runs import Run, Tell, be_quiet, run_of
from .stores.filled import SessionLines, UnsyncedFiles, append, commit, open_to_write, session_name
from .workplace import Workplace, run_alone

EVENT_BYTES = 460
_BATCH_BYTES = 6_000


@dataclass(frozen=True, slots=True)
class Shape:
    """What is in a batch: so many events of each of so many sessions."""

    sessions: int
    events: int

    def __str__(self) -> str:
        if self.sessions * self.events == 1:
            return "a single event"
        return f"{self.sessions * self.events} events of {self.sessions} session{'s' if self.sessions > 1 else ''}"


SHAPES = (Shape(1, 10), Shape(10, 1), Shape(1, 1))
QUICK = 2_000
FULL = 50_000


def run_disk(quick: bool, out: Path | None = None, *, tell: Tell = be_quiet) -> dict[str, Any]:
    """Write 50,000 batches of each kind, 2,000 if `quick`, and report what they take over what their lines take.

    The stores lie in `out`, or else in the current directory, and are removed; with `out` the result is kept there as
    disk.json. Takes 1.1 GB of disk. Raises OSError where that isn't free.
    """
    return run_alone("disk", partial(measure, QUICK if quick else FULL), out, tell)


def measure(batches: int, place: Workplace) -> list[Run]:
    """Measure so many batches of each kind."""
    require_space(place.directory, len(SHAPES) * batches * _BATCH_BYTES)
    runs = []
    for number, shape in enumerate(SHAPES):
        place.tell(f"writing batches of {shape}")
        runs.append(_measure_shape(place.directory / f"store-{number}", shape, batches))
    return runs


def _measure_shape(path: Path, shape: Shape, batches: int) -> Run:
    with MeasuredProcess(_write, str(path), shape, batches) as process:
        line_bytes: int = process.receive()
    journal_bytes = sum(map(used_bytes, (path / JOURNAL_DIRECTORY).iterdir()))
    index_bytes = sum(file.stat().st_blocks * 512 for file in (path / INDEX_DIRECTORY).rglob("*") if file.is_file())
    events = batches * shape.sessions * shape.events
    figures = {"bytes_an_event": journal_bytes / events, "index_bytes_an_event": index_bytes / events}
    base = {"bytes_an_event": line_bytes / events}
    params = {"batch": str(shape), "batches": batches, "event_bytes": EVENT_BYTES, "against": "event lines"}
    return run_of("disk bytes_an_event", params, [figures], [base], compared="bytes_an_event")


def _write(starter: Connection, root: str, shape: Shape, batches: int) -> None:
    """Make a store of such batches, and say how many bytes its event lines have; in a process of its own."""
    store.make_directory(root)
    backend = open_to_write(root, UnsyncedFiles(root))
    sessions = [SessionLines(session_name(number)) for number in range(shape.sessions)]
    written = 0
    for number in range(batches):
        first = number * shape.events
        appends = [append(each.stream, first, each.lines(first, shape.events)) for each in sessions]
        commit(backend, appends)
        written += sum(len(each.lines) for each in appends)
    backend.close()
    starter.send(written)


def used_bytes(segment: Path) -> int:
    """Give a segment's length up to the filling behind its last batch."""
    size = segment.stat().st_size
    tail = min(size, FILLING_AHEAD_BYTES + 2 * FILLING_STEP_BYTES + _BATCH_BYTES)
    with segment.open("rb") as file:
        file.seek(size - tail)
        content = file.read()
    return size - tail + len(content.rstrip(FILLING_BYTES)) + 1
