"""What it costs to fork a long session, and to go on with one from its last snapshot, however long it is (`resuming`).

A session of a million events is forked behind the last one and in the middle: how long until the new session is there,
durable, and how far the journal grew by it and by closing it. Beside it: the same lines in a file that is copied as
`cp` does, with shared blocks where the file system has that, and in SQLite, where rows are copied in a transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

import anyio

from turnkeeper import Runtime, open_runtime
from turnkeeper.storage.store import JOURNAL_DIRECTORY

from ..disk import used_bytes
from ..driving.loads import round_figures
from ..measuring.asked_process import Answer, AskedProcess, answer_all
from ..measuring.durability import POWER_LOSS
from ..measuring.room import require_space
from ..measuring.runs import Figures, Run, Tell, be_quiet, interleaved, run_of
from ..workplace import Workplace, run_alone
from .long_sessions import LONG_BYTES, RUN_EVENTS, LongFile, LongTable, fill_store, session_of
from .resuming import RESUMING, compare_resuming

_OURS = "turnkeeper"
_COPIES = 8  # the file, the table and a copy of each, a log of the largest transaction, and the store

Measure: TypeAlias = Callable[[], Figures]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: events of the sessions that are resumed, the last of which is forked.

    A round is of so many `forks` in a row, or so many times resuming; of what takes long it is one.
    """

    lengths: tuple[int, ...]
    forks: int
    rounds: int = 5


QUICK = Sizes(lengths=(1_000, 10_000, 100_000), forks=10)
FULL = Sizes(lengths=(1_000, 10_000, 100_000, 1_000_000), forks=50)


def run_fork(
    quick: bool, out: Path | None = None, *, events: int | None = None, tell: Tell = be_quiet
) -> dict[str, Any]:
    """Fill a store with long sessions, fork and resume them; report medians and ratios.

    The longest has `events`, 1,000,000 if nothing is said, 100,000 if `quick`. All of it lies in `out`, or else in the
    current directory, and is removed; with `out` the result is kept there as fork.json. Raises OSError where that isn't
    free.
    """
    sizes = QUICK if quick else FULL
    if events is not None:
        sizes = replace(sizes, lengths=(*(each for each in sizes.lengths if each < events), events))
    return run_alone("fork", partial(measure, sizes), out, tell)


def measure(sizes: Sizes, place: Workplace) -> list[Run]:
    """Measure with these sizes."""
    directory, longest = place.directory, max(sizes.lengths)
    require_space(directory, (sum(sizes.lengths) + _COPIES * longest) * LONG_BYTES)
    with ExitStack() as opened:
        fill_store(directory / "store", sizes.lengths, place.tell)
        ours = opened.enter_context(AskedProcess(_answer, str(directory / "store")))
        ours.wait_ready()
        files = directory / "files"
        files.mkdir()
        file = LongFile(files, longest)
        runs = compare_resuming(ours, sizes.lengths, files, sizes.forks, sizes.rounds, place.tell)
        place.tell("filling a table with events")
        table = opened.enter_context(closing(LongTable(files / "events.sqlite", longest)))
        forks = _Forks(directory / "store", ours, file, table, sizes)
        return [*forks.compare("head", longest, place.tell), *forks.compare("middle", longest // 2, place.tell), *runs]


# -- forks


@dataclass(frozen=True, slots=True)
class _Forks:
    """The longest session in its three forms, and who forks it."""

    store: Path
    ours: AskedProcess
    file: LongFile
    table: LongTable
    sizes: Sizes

    def compare(self, where: str, at: int, tell: Tell) -> list[Run]:
        """Fork at that event, and copy as much."""
        size = self.file.size_of(at)
        clones = self.file.can_clone()
        others: dict[str, Measure] = {"a file copied": partial(self._copy, partial(self.file.copy, size), self.file)}
        if clones:
            others["a file cloned"] = partial(self._copy, partial(self.file.clone, size), self.file)
        others["sqlite"] = partial(self._copy, partial(self.table.copy, at), self.table)
        # Resuming has added some events: behind the last one is where a fork begins that is told nothing.
        subjects: dict[str, Measure] = {_OURS: partial(self._fork, None if where == "head" else at), **others}
        measured = interleaved(self.sizes.rounds, subjects, lambda line: tell(f"fork at {at:,}: {line}"))
        mine = measured.pop(_OURS)
        params = {
            "events": max(self.sizes.lengths),
            "at": at,
            "run_events": RUN_EVENTS,
            "file_can_be_cloned": clones,
            "survives": POWER_LOSS,
        }
        name = f"fork {where} p50_ms"
        return [
            run_of(name, {**params, "against": other}, mine, theirs, compared="p50_ms")
            for other, theirs in measured.items()
        ]

    def _fork(self, at: int | None) -> Figures:
        before = _journal_bytes(self.store)
        taken: list[float] = self.ours.ask("fork", session_of(max(self.sizes.lengths)), at, self.sizes.forks)
        return {**round_figures(taken), "bytes": (_journal_bytes(self.store) - before) / len(taken)}

    def _copy(self, copy: Callable[[], None], copied: LongFile | LongTable) -> Figures:
        began = time.perf_counter()
        copy()
        taken = time.perf_counter() - began
        return {**round_figures([taken]), "bytes": copied.forget_copy()}


def _journal_bytes(store: Path) -> int:
    """Count the bytes of a store's journal, without the filling ahead."""
    return sum(map(used_bytes, (store / JOURNAL_DIRECTORY).iterdir()))


# -- in the process that has the store open


def _answer(starter: Connection, store: str) -> None:
    anyio.run(_use, starter, store, backend="trio")


async def _use(starter: Connection, store: str) -> None:
    async with open_runtime(store) as runtime:
        answers: dict[str, Answer] = {"fork": _fork, **RESUMING}
        await answer_all(starter, {what: partial(answer, runtime) for what, answer in answers.items()})


async def _fork(runtime: Runtime, session: str, at: int | None, forks: int) -> list[float]:
    """Fork a session again and again, and give the seconds that each took."""
    taken = []
    for _ in range(forks):
        began = time.perf_counter()
        fork = await runtime.fork_session(session, at=at)
        taken.append(time.perf_counter() - began)
        await fork.aclose()
    return taken
