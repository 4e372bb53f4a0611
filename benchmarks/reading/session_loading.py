"""What it costs to read a session from a large store, through the public client, over reading the same bytes.

The store holds the events of a hundred sessions that ran side by side, each event a run of its own, so that every
session lies scattered over the whole journal. Two readings, each the client's whole way: index, bytes, checksums, and
events as a program gets them.

*The last 50 events* of one of those sessions, warm: what a resume begins with. Its base reads the same bytes, warm.

*A whole session* of 5,000 events at even distances over the journal, cold: the caches are dropped before each round and
the store is opened before the clock starts. Its base asks for the same bytes by WILLNEED and reads them, in the
order of the files, cold too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import anyio

from turnkeeper import Runtime, open_runtime
from turnkeeper.storage.index import Index
from turnkeeper.storage.index_records import Extent
from turnkeeper.storage.reading import store_files
from turnkeeper.storage.scanning import segment_path
from turnkeeper.storage.trust import judge_index

from ..measuring.machine import drop_caches
from ..measuring.measured_process import LEAVE_SECONDS, MeasuredProcess
from ..measuring.runs import Figures, Run, Tell, be_quiet, interleaved, percentile, run_of
from ..stores.filled import SCATTERED, Filling, session_name, well_used
from ..workplace import Workplace, run_alone
from . import peer_openings
from .peer_openings import measure_openings

LAST = 50
_OURS, _BYTES = "turnkeeper", "the same bytes"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: events in the store, how often sessions are read, and reads in a warm round."""

    events: int
    rounds: int
    warm_reads: int
    openings: peer_openings.Sizes


QUICK = Sizes(events=200_000, rounds=3, warm_reads=100, openings=peer_openings.QUICK)
FULL = Sizes(events=10_000_000, rounds=9, warm_reads=500, openings=peer_openings.FULL)


def run_load(quick: bool, out: Path | None = None, *, tell: Tell = be_quiet) -> dict[str, Any]:
    """Fill a store and read from it, warm and cold; report medians and ratios.

    The store lies in `out`, or else in the current directory, and is removed; with `out` the result is kept there as
    load.json. Takes 7 GB of disk, 0.8 GB if `quick`. Raises OSError where that isn't free.
    """
    return run_alone("load", partial(measure, QUICK if quick else FULL), out, tell)


def measure(sizes: Sizes, place: Workplace) -> list[Run]:
    """Measure with these sizes."""
    filling = well_used(sizes.events)
    (store,) = place.stores.read(filling)
    return [
        _read_last(store, filling, sizes, place.tell),
        _read_whole(store, filling, sizes, place.tell),
        *measure_openings(sizes.openings, place.directory, place.tell),
    ]


def _read_last(store: Path, filling: Filling, sizes: Sizes, tell: Tell) -> Run:
    session = session_name(0)
    events = filling.session_events
    last = min(LAST, events)
    extents = _extents(store, session, events - last)
    measured = interleaved(
        sizes.rounds,
        {
            _OURS: partial(_ask_for, _read_last_often, str(store), session, last, sizes.warm_reads),
            _BYTES: partial(_read_bytes_often, store, extents, sizes.warm_reads),
        },
        tell,
    )
    params = {
        "session_events": events,
        "read": last,
        "cache": "warm",
        "reads": sizes.warm_reads,
    }
    return _compared("last p50_ms", params, filling, measured)


def _read_whole(store: Path, filling: Filling, sizes: Sizes, tell: Tell) -> Run:
    extents = _extents(store, SCATTERED, 0)
    cold = _ColdReads(store, filling.scattered, sorted(extents, key=lambda each: (each.segment, each.offset)))
    measured = interleaved(sizes.rounds, {_OURS: cold.read_events, _BYTES: cold.read_bytes}, tell)
    params = {
        "session_events": filling.scattered,
        "read": filling.scattered,
        "cache": "cold",
        "dropped_by": cold.dropped_by,
    }
    return _compared("whole ms", params, filling, measured)


def _compared(name: str, params: dict[str, Any], filling: Filling, measured: dict[str, list[Figures]]) -> Run:
    """Compare the figure that the run's name ends with."""
    params = {"stored": filling.stored, "run_events": filling.run_events, **params, "against": _BYTES}
    return run_of(f"load {name}", params, measured[_OURS], measured[_BYTES], compared=name.rpartition(" ")[2])


def _extents(store: Path, session: str, start: int) -> list[Extent]:
    """Ask the closed store's index where a session's events from `start` on lie."""
    with ExitStack() as opened:
        fs, uuid = opened.enter_context(store_files(str(store)))
        record = judge_index(fs, uuid, "").record
        if record is None:
            raise RuntimeError(f"{store} has no index")
        index = Index.open_readable(fs.path(record.directory), lock=False)
        opened.callback(index.close)
        with index.reading() as snapshot:
            state = index.snapshot_state(snapshot, session)
            if state is None:
                raise RuntimeError(f"{store} has no {session}")
            return index.extents(snapshot, session, start, state.head, size_max=1 << 40)


# -- the last events, warm


def _ask_for(reader: Callable[..., None], *arguments: Any) -> Figures:
    """Let a process of its own read, and give the figures that it says."""
    with MeasuredProcess(reader, *arguments, ending_seconds=LEAVE_SECONDS) as process:
        figures: Figures = process.receive()
    return figures


def _read_last_often(starter: Connection, store: str, session: str, last: int, reads: int) -> None:
    """Be a process that reads the last events of a session again and again; the first time isn't measured."""

    async def read() -> list[float]:
        async with open_runtime(store) as runtime:
            await _read_checked(runtime, session, last)
            return [await _read_checked(runtime, session, last) for _ in range(reads)]

    starter.send(_latency_figures(anyio.run(read, backend="trio")))


async def _read_checked(runtime: Runtime, session: str, last: int) -> float:
    """Read the last events of a session, and give the seconds that it took."""
    began = time.perf_counter()
    page = await runtime.read(session, last=last, limit=last)
    seconds = time.perf_counter() - began
    if len(page) != last or page.missing:
        raise RuntimeError(f"{len(page)} events of {session} were read and not {last}")
    return seconds


def _read_bytes_often(store: Path, extents: Sequence[Extent], reads: int) -> Figures:
    with _Segments(store) as segments:
        segments.read(extents)
        latencies = []
        for _ in range(reads):
            began = time.perf_counter()
            segments.read(extents)
            latencies.append(time.perf_counter() - began)
    return _latency_figures(latencies)


def _latency_figures(latencies: list[float]) -> Figures:
    return {"p50_ms": percentile(latencies, 50) * 1000, "p99_ms": percentile(latencies, 99) * 1000}


class _Segments:
    """A journal's files, opened when they are first read."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._files: dict[int, int] = {}

    def __enter__(self) -> _Segments:
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files.values():
            os.close(file)

    def ask_for(self, extents: Sequence[Extent]) -> None:
        """Ask the system to begin reading the bytes, where it can be asked."""
        if hasattr(os, "posix_fadvise"):
            for each in extents:
                os.posix_fadvise(self._file(each.segment), each.offset, each.size, os.POSIX_FADV_WILLNEED)

    def read(self, extents: Sequence[Extent]) -> None:
        """Read the bytes, one extent after the other."""
        for each in extents:
            if len(os.pread(self._file(each.segment), each.size, each.offset)) != each.size:
                raise RuntimeError(f"segment {each.segment} ends before byte {each.offset + each.size:,}")

    def _file(self, segment: int) -> int:
        file = self._files.get(segment)
        if file is None:
            path = self._store / segment_path(segment)
            file = self._files[segment] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return file


# -- a whole session, cold


@dataclass(slots=True)
class _ColdReads:
    """Reads of the scattered session, each after the caches were dropped while nobody had the store open."""

    store: Path
    events: int
    extents: Sequence[Extent]
    dropped_by: str = field(default="", init=False)

    def read_events(self) -> Figures:
        with MeasuredProcess(_read_when_told, str(self.store), self.events, ending_seconds=LEAVE_SECONDS) as process:
            process.receive()  # it has loaded all that reading needs
            self.dropped_by = drop_caches(self.store)
            process.send("read")
            return {"ms": process.receive() * 1000}

    def read_bytes(self) -> Figures:
        self.dropped_by = drop_caches(self.store)
        began = time.perf_counter()
        with _Segments(self.store) as segments:
            segments.ask_for(self.extents)
            segments.read(self.extents)
        return {"ms": (time.perf_counter() - began) * 1000}


def _read_when_told(starter: Connection, store: str, events: int) -> None:
    """Be a process that reads one event of the session, and then, when it is told to, all of it."""

    async def read(last: int) -> float:
        async with open_runtime(store) as runtime:
            return await _read_checked(runtime, SCATTERED, last)

    anyio.run(read, 1, backend="trio")
    starter.send("ready")
    starter.recv()
    starter.send(anyio.run(read, events, backend="trio"))
