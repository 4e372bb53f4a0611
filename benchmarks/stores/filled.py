"""Stores as programs leave them that have run for long: filled by the backends' own commits, as fast as these go.

A hundred sessions ran side by side: each batch of the journal has a run of each, and all are equally long at the end.
What differs is how many events a run holds. *One event a run* is what one flush an event leaves: the largest index
that so many events can have, and the most headers. *Ten events a run* is what agents leave that flush at the ends of
turns. A SQLite store has rows and neither runs nor headers; it gets as many events of the same sessions, in fewer and
larger transactions, ten events of a session at a time.

Each store is filled in a process of its own, several at a time, and closed cleanly. While it is filled no batch is
synced, the whole is at the end: only the filling's speed differs by that.

Filling takes longer than most of what is measured, so suites that run together share what they only read
(`FilledStores`); who changes a store takes it away from the others.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from turnkeeper.runtime.identity import boot_id, is_gone, own_identity
from turnkeeper.storage import lock, store
from turnkeeper.storage.backend import Backend, open_backend
from turnkeeper.storage.exact_json import encode_event
from turnkeeper.storage.filesystem import FileSystem, LocalFileSystem
from turnkeeper.storage.hopping import FileScanner
from turnkeeper.storage.requests import Append, Appended, Post
from turnkeeper.storage.store import BackendName, Durability

from ..measuring.inhabitants import clear
from ..measuring.measured_process import MeasuredProcess, receive_from_any
from ..measuring.room import SPARE_BYTES, free_bytes, require_space
from ..measuring.runs import Tell
from .contents import EVENT_DATA, EVENT_TYPE

SESSIONS = 100
"""Sessions that ran side by side."""

EVENT_BYTES = 460
"""What an event's line takes, about."""

STORED_BYTES = 620
"""What an event takes on disk at most, with header, index or row: for looking whether there is room."""

SCATTERED = "scattered-session"
"""The session of a `scattered` filling."""

SCATTERED_EVENTS = 5_000
"""How many events it has in a journal that is large enough to scatter them."""

_TIME = 1_700_000_000_000
_SQLITE_RUN_EVENTS = 10
_SQLITE_COMMIT_APPENDS = 1_000
_TELL_EVENTS = 50_000


@dataclass(frozen=True, slots=True)
class Filling:
    """What a store holds: at least `events`, in runs of `run_events`, a run of each session a batch.

    With `scattered`, one more session has so many events, each a run of its own, at even distances over the journal; at
    most one a batch.
    """

    events: int
    run_events: int = 1
    backend: BackendName = "journal"
    scattered: int = 0
    durability: Durability = "fsync"

    @property
    def batches(self) -> int:
        """How many batches it takes to hold at least so many events."""
        return -(-self.events // (SESSIONS * self.run_events))

    @property
    def stored(self) -> int:
        """How many events there are in the end."""
        return SESSIONS * self.session_events + self.scattered

    @property
    def session_events(self) -> int:
        """How many events each of the sessions has."""
        return self.batches * self.run_events


class FilledStores:
    """Filled stores below a directory, made when they are asked for first and removed behind the `with`.

    A store that is only read serves everybody who asks for the same filling; who changes one gets it for himself. Where
    there is no room for the next one, those go that nobody has asked for since `rest`.
    """

    def __init__(self, directory: Path, tell: Tell) -> None:
        self._directory = directory
        self.tell = tell
        self._made = 0
        self._shared: dict[Filling, Path] = {}
        self._used: set[Path] = set()

    def __enter__(self) -> FilledStores:
        return self

    def __exit__(self, *exception: object) -> None:
        for path in {*self._shared.values(), *self._used}:
            clear(path)

    def read(self, *fillings: Filling) -> list[Path]:
        """Give a store for each filling; whoever has it leaves its events as they are, and closes it cleanly.

        All that are missing are filled at a time. Raises OSError with ENOSPC where there is no room for them.
        """
        missing = [each for each in dict.fromkeys(fillings) if each not in self._shared]
        self._make_room(sum(map(_size_max, missing)))
        paths = {}
        for filling in missing:
            self._made += 1
            paths[self._directory / f"filled-{self._made}"] = filling
        self._used |= paths.keys()
        fill_stores(paths, self.tell)
        self._shared |= {filling: path for path, filling in paths.items()}
        found = [self._shared[each] for each in fillings]
        self._used.update(found)
        return found

    def take(self, *fillings: Filling) -> list[Path]:
        """Give a store for each filling, as `read` does; whoever has it may change it, and nobody else gets it."""
        paths = self.read(*fillings)
        for each in fillings:
            self._shared.pop(each, None)
        return paths

    def rest(self) -> None:
        """Say that nobody has any of them in use; what was taken is removed."""
        for path in self._used - {*self._shared.values()}:
            clear(path)
        self._used.clear()

    def _make_room(self, size: int) -> None:
        """Remove stores that nobody has in use, the oldest first, until so many bytes fit."""
        idle = [filling for filling, path in self._shared.items() if path not in self._used]
        while idle and free_bytes(self._directory) < size + SPARE_BYTES:
            clear(self._shared.pop(idle.pop(0)))


def _size_max(filling: Filling) -> int:
    return filling.events * STORED_BYTES


def well_used(events: int, durability: Durability = "fsync") -> Filling:
    """Give the journal that most suites measure in: each event a run of its own, and a session that lies scattered.

    One for all of them, so that suites that run together fill it once.
    """
    scattered = min(SCATTERED_EVENTS, -(-events // SESSIONS) // 3)
    return Filling(events, scattered=scattered, durability=durability)


def session_name(number: int) -> str:
    """Give the id of one of the sessions that ran side by side; 16 characters."""
    return f"session-{number:08d}"


def fill_stores(fillings: dict[Path, Filling], tell: Tell) -> None:
    """Make and fill a store at each path, all at a time; tell how far it has come.

    Raises OSError with ENOSPC, and nothing is made, where there is not enough space.
    """
    if not fillings:
        return
    require_space(next(iter(fillings)).parent, sum(map(_size_max, fillings.values())))
    with ExitStack() as running:
        done = {
            running.enter_context(MeasuredProcess(_fill, str(path), filling)): 0 for path, filling in fillings.items()
        }
        wanted = dict(zip(done, fillings.values(), strict=True))
        while left := [process for process in done if done[process] < wanted[process].stored]:
            process = receive_from_any(left)
            done[process] = process.receive()
            tell(_progress(list(wanted.values()), list(done.values())))
    os.sync()  # or what is measured first would wait for what filling left to be written


def _progress(fillings: Sequence[Filling], done: Sequence[int]) -> str:
    parts = [
        f"{events * 100 // filling.stored} % of {filling.stored:,} ({filling.backend})"
        for filling, events in zip(fillings, done, strict=True)
    ]
    return f"filling with events: {', '.join(parts)}"


def open_to_write(
    root: str,
    fs: FileSystem | None = None,
    *,
    backend: BackendName | None = None,
    durability: Durability | None = None,
    distrust_index: bool = False,
    scan: FileScanner | None = None,
) -> Backend:
    """Open the store at `root` as its writer does, made if it is missing; its lock is held to this process's end."""
    descriptor = store.open_store_file(root, create=True)
    if not lock.take(descriptor):
        raise RuntimeError("the store's last writer still holds its lock")
    store.finish(descriptor, root, durability, backend)
    return open_backend(
        root,
        boot=boot_id(),
        is_gone=is_gone,
        holder=own_identity().as_map(),
        distrust_index=distrust_index,
        scan=scan,
        fs=fs,
    )


def append(stream: str, seq: int, lines: bytes) -> Append:
    """Make the append of a session's lines from number `seq` on; its first one creates the session."""
    header = {"id": stream, "kind": "session", "created": _TIME} if seq == 0 else None
    return Append(stream, 1, seq, lines, header, create=seq == 0)


def commit(backend: Backend, requests: Sequence[Append | Post]) -> None:
    """Commit appends and posts, none of which may be refused. Raises what one is refused with."""
    for result in backend.commit(list(requests)):
        if not isinstance(result, Appended):
            raise result if isinstance(result, Exception) else RuntimeError(f"an append was answered {result}")
    backend.between_commits()


class SessionLines:
    """Makes a session's events as lines, quickly: all of one length but for their numbers."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        before, after = encode_event(stream, 0, _TIME, EVENT_TYPE, EVENT_DATA).split(b'"seq":0', 1)
        self._before = before + b'"seq":'
        self._after = after

    def lines(self, first: int, events: int) -> bytes:
        """Give so many events, from number `first` on."""
        before, after = self._before, self._after
        return b"".join([b"%b%d%b" % (before, seq, after) for seq in range(first, first + events)])


# -- in the process that fills


class UnsyncedFiles(LocalFileSystem):
    """Files whose syncs cost nothing and promise nothing."""

    def sync(self, handle: int) -> None:
        """Do nothing."""


def _fill(starter: Connection, root: str, filling: Filling) -> None:
    """Fill a store and close it, and say now and then how many events it has."""
    gc.disable()  # nothing here makes cycles
    store.make_directory(root)
    backend = open_to_write(root, UnsyncedFiles(root), backend=filling.backend, durability=filling.durability)
    done = said = 0
    for appends, events in _commits(filling):
        commit(backend, appends)
        done += events
        if done - said >= _TELL_EVENTS and done < filling.stored:
            starter.send(done)
            said = done
    backend.close()
    starter.send(filling.stored)


def _commits(filling: Filling) -> Iterator[tuple[list[Append], int]]:
    """Give what goes into each commit, and how many events that is."""
    if filling.backend == "sqlite":
        yield from _sqlite_commits(filling)
        return
    sessions = [SessionLines(session_name(number)) for number in range(SESSIONS)]
    run = filling.run_events
    scattered, scattered_done = SessionLines(SCATTERED), 0
    for number in range(filling.batches):
        appends = [append(each.stream, number * run, each.lines(number * run, run)) for each in sessions]
        if scattered_done * filling.batches < filling.scattered * (number + 1):
            appends.append(append(SCATTERED, scattered_done, scattered.lines(scattered_done, 1)))
            scattered_done += 1
        yield appends, SESSIONS * run + (len(appends) - SESSIONS)


def _sqlite_commits(filling: Filling) -> Iterator[tuple[list[Append], int]]:
    sessions = [SessionLines(session_name(number)) for number in range(SESSIONS)]
    appends: list[Append] = []
    events = 0
    for first in range(0, filling.session_events, _SQLITE_RUN_EVENTS):
        count = min(_SQLITE_RUN_EVENTS, filling.session_events - first)
        appends += [append(each.stream, first, each.lines(first, count)) for each in sessions]
        events += count * SESSIONS
        if len(appends) >= _SQLITE_COMMIT_APPENDS:
            yield appends, events
            appends, events = [], 0
    if appends:
        yield appends, events
