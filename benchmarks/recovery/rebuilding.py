"""How fast a journal's index is built anew, and a journal verified, over parsing every line with orjson on one core.

A rebuild is what a writer does that may not trust its index: after the machine went down, or on `journal rebuild`.
Here a process opens the store as the writer does, with worker processes that scan, and closes it cleanly. A verify is
what the command does on such a store: every header, every checksum, and the index against the journal. Both use all
cores. The base is what reading the same journal costs any program that has no headers to go by: one process, one plain
loop over the lines of its files. All three take turns, with the files in the page cache.

*One event a run* is the honest case for agents that flush every event, and the hardest: a header entry and an index
entry for each event, while a line to parse is as long. *Ten events a run* is the honest case for agents that flush at
the ends of turns.
"""

from __future__ import annotations

import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import orjson

from turnkeeper.actors.writer.scanning_files import scan_files
from turnkeeper.runtime.identity import own_identity
from turnkeeper.storage.verify import verify

from ..measuring.measured_process import MeasuredProcess
from ..measuring.process_memory import PeakMemory
from ..measuring.runs import Figures, Run, Tell, interleaved, run_of
from ..stores.filled import Filling, open_to_write

_REBUILD, _VERIFY, _PARSE = "rebuild", "verify", "parse"


def compare_with_parsing(store: Path, filling: Filling, rounds: int, tell: Tell) -> list[Run]:
    """Measure rebuild and verify of a filled store that is cleanly closed; the ratios are of events a second."""
    subjects = {
        _REBUILD: partial(_rebuild_store, store, filling),
        _VERIFY: partial(_verify_store, store, filling),
        _PARSE: partial(_parse_store, store, filling),
    }
    measured = interleaved(rounds, subjects, tell)
    base = measured.pop(_PARSE)
    params = {
        "events": filling.stored,
        "run_events": filling.run_events,
        "against": "orjson on one core",
    }
    return [run_of(f"{name} per_second", params, ours, base, compared="per_second") for name, ours in measured.items()]


def _figures(filling: Filling, seconds: float) -> Figures:
    return {"seconds": seconds, "per_second": filling.stored / seconds}


def _rebuild_store(store: Path, filling: Filling) -> Figures:
    with MeasuredProcess(_rebuild, str(store)) as process:
        process.receive()  # it has started
        with PeakMemory(process.pid) as memory:
            process.send("rebuild")
            seconds, batches = process.receive()
        if batches != filling.batches:
            raise RuntimeError(f"the rebuild indexed {batches:,} batches of {filling.batches:,}")
        process.send("close")
        process.receive()
    return {**_figures(filling, seconds), "anonymous_mb": memory.bytes / 1e6}


def _verify_store(store: Path, filling: Filling) -> Figures:
    with MeasuredProcess(_verify, str(store)) as process:
        process.receive()  # it has started
        process.send("verify")
        seconds, events, damage = process.receive()
        if events != filling.stored or damage:
            raise RuntimeError(f"verify found {events:,} events of {filling.stored:,}: {damage or 'no damage'}")
    return _figures(filling, seconds)


def _parse_store(store: Path, filling: Filling) -> Figures:
    began = time.perf_counter()
    lines = sum(map(_parse_file, sorted((store / "journal").iterdir())))
    seconds = time.perf_counter() - began
    if lines < filling.stored:
        raise RuntimeError(f"the journal has {lines:,} lines and not {filling.stored:,} events")
    return _figures(filling, seconds)


def _parse_file(path: Path) -> int:
    """Parse a file's lines up to its filling, and count them."""
    lines = 0
    with path.open("rb") as file:
        for line in file:
            if line == b"\n":
                break
            orjson.loads(line)
            lines += 1
    return lines


# -- in processes of their own


def _rebuild(starter: Connection, root: str) -> None:
    own_identity()
    starter.send("started")
    starter.recv()
    began = time.perf_counter()
    backend = open_to_write(root, distrust_index=True, scan=scan_files)
    seconds = time.perf_counter() - began
    if not backend.report.rebuilt or backend.report.findings:
        raise RuntimeError(f"the index was not built anew, or the journal is damaged: {backend.report}")
    starter.send((seconds, backend.report.hopped_batches))
    starter.recv()
    backend.close()
    starter.send("closed")


def _verify(starter: Connection, root: str) -> None:
    starter.send("started")
    starter.recv()
    found: Any = verify(root, scan=scan_files)
    damage = [*map(str, found.damaged), *filter(None, [found.index_why])]
    starter.send((found.seconds, found.events, damage))
