"""One load that somebody asks for: how long a flush takes as their own sessions flush, on their own disk.

Ours flush in the loop of one host, or in worker processes; what they are compared with takes turns with them, under the
same load and with the same events. What is asked for is checked before anything is made.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from turnkeeper.storage.store import Durability

from ..driving.hosts import Host, Loop, Terms
from ..driving.loads import Load
from ..measuring.durability import our_survival
from ..measuring.room import require_space
from ..measuring.runs import Run, Tell, be_quiet
from ..peers.catalogue import AGENTS, DBOS, LANGGRAPH, LANGGRAPH_CONVERSATION, KeeperPeer
from ..stores.contents import EVENT_BYTES, EventSizes
from ..stores.filled import Filling, well_used
from ..workplace import Workplace, run_alone
from . import peer_flushes
from .peer_flushes import measure_flushes
from .subjects import (
    BASELINES,
    FILE_THREADS,
    SPARE_FILES,
    SQLITE_STORE,
    Subject,
    Turns,
    files_allowed,
    frozen_garbage,
    open_baselines,
)

STORED: Final = 200_000
"""Events in the stores before, if nothing is said."""

FLUSHES_MIN: Final = 10
"""A timetable of fewer flushes a round says nothing."""

FLUSH_BYTES_MAX: Final = 64_000_000
"""What the events of one flush may have together: more is no flush of an agent, and memory for everybody here."""

BASELINE_WORDS: Final = {
    "append": "append",
    "append-grouped": "append, grouped",
    "append-unsynced": "append, never synced",
    "filled": "filled",
    "sqlite": "sqlite",
    "sqlite-grouped": "sqlite, grouped",
    "sqlite-normal": "sqlite, NORMAL",
    "files": "files",
    "files-threads": f"files, {FILE_THREADS} threads",
    "files-unsynced": "files, never synced",
    "turnkeeper-sqlite": SQLITE_STORE,
}
"""What can be compared with, by the word that asks for it."""

PEER_WORDS: Final = {
    "agents": AGENTS,
    "langgraph": LANGGRAPH,
    "langgraph-100": LANGGRAPH_CONVERSATION,
    "dbos": DBOS,
}

_OURS = "turnkeeper"
_ROW_BYTES = 200
"""What an event takes beside its line at most, in whichever file it is."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for: a load of sessions on terms, against whom, in stores of so many events."""

    load: Load
    terms: Terms
    against: tuple[str, ...]
    stored: int
    rounds: int
    warm_up_seconds: float

    @property
    def baselines(self) -> list[str]:
        """Name the files and tables that take part."""
        return [BASELINE_WORDS[word] for word in self.against if BASELINE_WORDS.get(word) in BASELINES]

    @property
    def has_sqlite_store(self) -> bool:
        """Say whether our own store on SQLite takes part."""
        return any(BASELINE_WORDS.get(word) == SQLITE_STORE for word in self.against)

    @property
    def peers(self) -> tuple[KeeperPeer, ...]:
        """Give the libraries that take part."""
        return tuple(PEER_WORDS[word] for word in self.against if word in PEER_WORDS)

    @property
    def planned_bytes(self) -> int:
        """How much a timetable writes at most, everybody together; a closed load writes as much as it can."""
        load = self.load
        flushed = int((load.per_second or 0) * load.seconds) * self.rounds * load.events
        return flushed * (self.terms.sizes.most + _ROW_BYTES) * (1 + len(self.against))


def question_of(
    quick: bool,
    *,
    sessions: int | None = None,
    event_bytes: str | None = None,
    events: int | None = None,
    rate: int | None = None,
    seconds: float | None = None,
    where: Literal["loop", "worker"] | None = None,
    workers: int | None = None,
    loop: Loop | None = None,
    durability: Durability | None = None,
    stored: int | None = None,
    against: Sequence[str] = (),
) -> Question:
    """Make a question of what was said, and of what isn't said.

    Raises ValueError where it makes no sense, or can't be measured here: one line that says what to say instead.
    """
    load = Load(sessions or 1, seconds or (0.1 if quick else 1.0), rate, events or 1)
    sizes = EventSizes.parse(event_bytes or str(EVENT_BYTES))
    if load.events * sizes.most > FLUSH_BYTES_MAX:
        size = f"a flush of {load.events:,} events of up to {sizes.most:,} bytes"
        raise ValueError(f"{size} is more than {FLUSH_BYTES_MAX // 1_000_000} MB: fewer --events, or --event-bytes")
    _require_timetable(load)
    terms = Terms(loop or "trio", _workers(load, where, workers, loop), sizes, durability or "fsync")
    chosen = _chosen(against) or _usual(load, terms)
    _require_files(load, chosen)
    rounds, warm_up_seconds = (5, min(0.1, load.seconds)) if quick else (7, min(0.5, load.seconds))
    return Question(load, terms, chosen, STORED if stored is None else stored, rounds, warm_up_seconds)


def _require_timetable(load: Load) -> None:
    if load.per_second is None:
        return
    planned = int(load.per_second * load.seconds)
    needed = max(FLUSHES_MIN, load.sessions)
    if planned < needed:
        what = f"{planned:,} flushes of {load.sessions:,} session{'s' if load.sessions > 1 else ''}"
        plan = f"--rate {load.per_second:,} for {load.seconds:g} s plans {what}"
        raise ValueError(f"{plan}, and at least {needed:,} are needed: a higher --rate, or more --seconds")


def _workers(load: Load, where: str | None, workers: int | None, loop: Loop | None) -> int:
    """Say in how many worker processes sessions are; 0 is in the host's loop."""
    if where != "worker":
        if workers is not None:
            raise ValueError("--workers is of sessions in worker processes: add --where worker")
        return 0
    if loop == "asyncio":
        raise ValueError("a worker process runs trio, whatever its host runs: leave out --loop, or --where worker")
    if workers is None:
        return min(os.cpu_count() or 1, load.sessions)
    if workers > load.sessions:
        raise ValueError(f"{workers} workers for {load.sessions} sessions: each has one at least, so fewer --workers")
    return workers


def _chosen(against: Iterable[str]) -> tuple[str, ...]:
    """Give each word that was said once."""
    words = [word.strip() for given in against for word in given.split(",")]
    for word in words:
        if word not in BASELINE_WORDS and word not in PEER_WORDS:
            there_are = ", ".join([*BASELINE_WORDS, *PEER_WORDS])
            raise ValueError(f"there is no {word!r} to be compared with; there are {there_are}")
    return tuple(dict.fromkeys(words))


def _usual(load: Load, terms: Terms) -> tuple[str, ...]:
    """Say what takes part if nobody is named: what keeps events as well as ours does."""
    if terms.durability == "os":
        return "append-unsynced", "sqlite-normal", "files-unsynced"
    if load.sessions == 1:
        return "append", "sqlite"
    return "append", "append-grouped", "sqlite", "sqlite-grouped", "files"


def _require_files(load: Load, chosen: Sequence[str]) -> None:
    """Raise ValueError if the system doesn't let this process have a file for each session, and one needs that."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _files(load, chosen)
    if most != resource.RLIM_INFINITY and needed > most:
        files = f"files for {load.sessions:,} sessions are {needed:,}, and this process may have {most:,} open"
        raise ValueError(f"{files}: fewer --sessions, a higher ulimit -n, or --against something else")


def _files(load: Load, chosen: Sequence[str]) -> int:
    of_files = sum(word.startswith("files") for word in chosen)
    return of_files * load.sessions + SPARE_FILES


# -- measuring


def run_question(question: Question, out: Path | None = None, *, tell: Tell = be_quiet) -> dict[str, Any]:
    """Measure what is asked for in `out`, or else the current directory; what it fills is removed.

    With `out` the result is kept there as flush.json. Raises OSError where there is not enough space.
    """
    return run_alone("flush", partial(measure, question), out, tell)


def measure(question: Question, place: Workplace) -> list[Run]:
    """Compare ours with each of the others, under the one load."""
    require_space(place.directory, question.planned_bytes)
    load, terms = question.load, question.terms
    with files_allowed(_files(load, question.against)), ExitStack() as opened:
        stores = _stores(question, place)
        place.tell("opening sessions")
        hosts = {name: opened.enter_context(Host(store, load.sessions, terms)) for name, store in stores.items()}
        for host in hosts.values():
            host.wait_ready()
        survives = our_survival(terms.durability)
        subjects = {name: Subject(host.burst, survives) for name, host in hosts.items()}
        subjects |= open_baselines(question.baselines, place.directory, load.sessions, opened, terms.sizes)
        opened.enter_context(frozen_garbage())
        return _measure(question, subjects, place)


def _stores(question: Question, place: Workplace) -> dict[str, str]:
    """Give the stores of ours as they are opened, which hold so many events, or none."""
    stored, durability = question.stored, question.terms.durability
    names = [_OURS, SQLITE_STORE] if question.has_sqlite_store else [_OURS]
    if stored:
        fillings = well_used(stored, durability), Filling(stored, backend="sqlite", durability=durability)
        paths = place.stores.take(*fillings[: len(names)])
    else:
        paths = [place.directory / "store", place.directory / "sqlite"][: len(names)]
    prefixes = {_OURS: "", SQLITE_STORE: "sqlite:"}
    return {name: f"{prefixes[name]}{path}" for name, path in zip(names, paths, strict=True)}


def _measure(question: Question, subjects: dict[str, Subject], place: Workplace) -> list[Run]:
    load, terms = question.load, question.terms
    runs: list[Run] = []
    others = [name for name in subjects if name != _OURS]
    if others:
        turns = Turns(question.rounds, question.warm_up_seconds, question.stored, place.tell)
        runs += turns.measure(load, {_OURS: terms.params}, others, subjects)
    if question.peers:
        sizes = peer_flushes.Sizes((load,), question.rounds, question.warm_up_seconds, question.peers, terms.sizes)
        about = {**terms.params, "stored": question.stored, "base_stored": 0}
        runs += measure_flushes(subjects[_OURS].burst, sizes, place.directory, place.tell, about)
    return runs
