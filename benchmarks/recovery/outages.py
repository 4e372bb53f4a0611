"""How long until a host's next append is acknowledged after something died, over the size of the log.

What dies: the writer; the node; everything, the host too; the writer with its index, or in the middle of a write; the
machine. What is waited for stands in parts, see `interrupted_store`. Agents that flush at the ends of turns have
written the log, ten events a run.

Beside it, in turns: a program that keeps its events in a SQLite database of the same size, is killed, started again,
and commits one; and where our index has to be built anew, a program that has none and reads JSON lines of the same size
to their end, which is the least that it has to do (not in the largest log behind a power loss, where it takes minutes).
Also what the start of a process costs here: most of an outage is
that, several times over.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from turnkeeper.actors.protocol import NODE_SOCKET, WRITER_SOCKET
from turnkeeper.storage.store import JOURNAL_DIRECTORY

from ..chaos.abilities import impossible
from ..driving.plain_restarts import PLAIN_SQLITE, PlainProgram, fill_database, measure_starts
from ..measuring.durability import POWER_LOSS
from ..measuring.runs import Figures, Run, Tell, interleaved, run_of
from ..stores.filled import EVENT_BYTES, Filling
from ..workplace import Workplace
from .interrupted_store import InterruptedStore, kill_node, kill_writer, lose_index, tear_tail
from .power_losses import CutStore

NAME: Final = "recovery total_ms"

LARGE_BYTES: Final = 5_000_000_000
"""From here on it takes seconds to read a log as a whole, so that is measured less often."""

WRITER, NODE, EVERYTHING = "the writer was killed", "the node was killed", "everything was killed, the host too"
TORN, INDEX, POWER = "the writer died in its write", "the index was lost", "the power was lost"

LINES: Final = "a program that reads JSON lines to their end"

_RUN_EVENTS = 10


@dataclass(frozen=True, slots=True)
class Sizes:
    """The logs by their bytes, and how often each thing dies.

    `cut` are those of the logs under which the power is lost, too. `whole_rounds` is how often it is measured what has
    to do with all of a large log. `starts` is how often a process is started.
    """

    logs: Sequence[int]
    cut: Sequence[int]
    rounds: int
    whole_rounds: int
    starts: int


_LOGS: Final = (100_000_000, 1_000_000_000, 10_000_000_000)

QUICK = Sizes(logs=(20_000_000, 100_000_000), cut=(20_000_000,), rounds=1, whole_rounds=1, starts=3)
FULL = Sizes(logs=_LOGS, cut=_LOGS, rounds=5, whole_rounds=3, starts=11)


def measure_outages(sizes: Sizes, place: Workplace) -> list[Run]:
    """Measure with these sizes; a log that doesn't fit on the disk is left out, and said."""
    runs = [measure_starts(sizes.starts, place.tell)]
    for log_bytes in sizes.logs:
        try:
            runs += _measure_log(sizes, log_bytes, place)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            runs.append(_left_out(WRITER, log_bytes, str(error.strerror)))
    return runs


def _measure_log(sizes: Sizes, log_bytes: int, place: Workplace) -> list[Run]:
    """Measure all that can happen to a log of this size."""
    whole_rounds = sizes.rounds if log_bytes < LARGE_BYTES else sizes.whole_rounds
    filling = Filling(log_bytes // EVENT_BYTES, run_events=_RUN_EVENTS)
    (path,) = place.stores.take(filling)
    try:
        with InterruptedStore(path) as store:
            runs = _compare_deaths(store, log_bytes, sizes.rounds, place)
            runs.append(_compare_index_loss(store, filling.batches, log_bytes, whole_rounds, place.tell))
        if log_bytes in sizes.cut:
            runs.append(_compare_power_loss(path, filling.batches, log_bytes, whole_rounds, place))
    finally:
        shutil.rmtree(path, ignore_errors=True)  # before the next one, which is larger
    return runs


def _compare_deaths(store: InterruptedStore, log_bytes: int, rounds: int, place: Workplace) -> list[Run]:
    database = place.directory / "database"
    database.mkdir()
    try:
        fill_database(database / "events.sqlite", log_bytes, place.tell)
        with PlainProgram("sqlite", database / "events.sqlite") as program:
            program.kill_and_begin_again()  # so that each finds what one that was killed has left
            subjects: dict[str, Callable[[], Figures]] = {
                WRITER: partial(store.strike, kill_writer, [WRITER_SOCKET]),
                NODE: partial(store.strike, kill_node, [NODE_SOCKET]),
                EVERYTHING: store.kill_all,
                TORN: partial(_tear, store),
                PLAIN_SQLITE: program.kill_and_begin_again,
            }
            measured = interleaved(rounds, subjects, partial(_tell, place.tell, log_bytes))
    finally:
        shutil.rmtree(database)
    base = measured.pop(PLAIN_SQLITE)
    return [_run(after, log_bytes, ours, PLAIN_SQLITE, base) for after, ours in measured.items()]


def _tear(store: InterruptedStore) -> Figures:
    figures = store.strike(tear_tail, [WRITER_SOCKET])
    if not store.opening["torn_bytes"]:
        raise RuntimeError("a torn batch was left, and the opening found none")
    return figures


def _compare_index_loss(store: InterruptedStore, batches: int, log_bytes: int, rounds: int, tell: Tell) -> Run:
    with PlainProgram("jsonl", store.path / JOURNAL_DIRECTORY) as program:
        subjects: dict[str, Callable[[], Figures]] = {
            INDEX: partial(_lose_index, store, batches),
            LINES: program.kill_and_begin_again,
        }
        program.kill_and_begin_again()  # warm, as the store is
        ours, base = interleaved(rounds, subjects, partial(_tell, tell, log_bytes)).values()
    return _run(INDEX, log_bytes, ours, LINES, base)


def _lose_index(store: InterruptedStore, batches: int) -> Figures:
    figures = store.strike(lose_index, [WRITER_SOCKET])
    store.require_rebuilt(batches)
    return figures


def _compare_power_loss(path: Path, batches: int, log_bytes: int, rounds: int, place: Workplace) -> Run:
    why = impossible().get("power")
    if why is not None:
        return _left_out(POWER, log_bytes, why)
    place.tell(f"{_size(log_bytes)}: copying it to a disk of its own")
    try:
        with CutStore(path, batches, place.directory / "machine") as machine:
            subjects = {POWER: machine.cut_and_recover, LINES: machine.cut_and_read}
            if log_bytes >= LARGE_BYTES:
                del subjects[LINES]  # minutes, in which nothing but the disk is measured
            measured = interleaved(rounds, subjects, partial(_tell, place.tell, log_bytes))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return _left_out(POWER, log_bytes, str(error.strerror))
    ours, base = measured.pop(POWER), measured.get(LINES)
    return _run(POWER, log_bytes, ours, LINES if base else None, base, cache="cold")


def _run(
    after: str,
    log_bytes: int,
    ours: Sequence[Figures],
    other: str | None,
    base: Sequence[Figures] | None,
    cache: str = "warm",
) -> Run:
    params = {**_params(after, log_bytes), "cache": cache, "against": other, "survives": POWER_LOSS}
    if base is None:
        return replace(run_of(NAME, params, ours), compared="total_ms")
    return run_of(NAME, params, ours, base, compared="total_ms")


def _left_out(after: str, log_bytes: int, why: str) -> Run:
    return Run(NAME, {**_params(after, log_bytes), "left_out": why}, {})


def _params(after: str, log_bytes: int) -> Mapping[str, Any]:
    return {"after": after, "log_bytes": log_bytes, "run_events": _RUN_EVENTS, "event_bytes": EVENT_BYTES}


def _tell(tell: Tell, log_bytes: int, line: str) -> None:
    tell(f"{_size(log_bytes)}: {line}")


def _size(log_bytes: int) -> str:
    return f"a log of {log_bytes / 1e6:,.0f} MB"
