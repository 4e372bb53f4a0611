"""How flushes are asked for: each session as soon as its last flush is done, or by a timetable for all of them.

A *closed* load shows throughput, and latency under as many flushes as there are sessions. A *paced* load plans when
each event is to be flushed and measures from that moment, so that whoever falls behind can't hide it by asking later.
The latencies of one burst become percentiles and events a second. Sessions are driven on whichever loop runs.
"""

from __future__ import annotations

import errno
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import anyio
from hdrh.histogram import HdrHistogram

from turnkeeper.storage.exact_json import encode_event

from ..measuring.runs import Figures
from ..stores.contents import EVENT_TYPE, USUAL, Contents, EventSizes
from .baselines import Baseline, Flushed

PATIENCE_FACTOR = 2.0
PATIENCE_SECONDS_MIN = 1.0
"""A paced burst that isn't done after this many times its length, and so many seconds at least, is cut short.

Who is measured can't keep the pace. A burst of a moment may be late because the machine is busy.
"""

READY_SECONDS = 0.1
"""How long before the first planned event the sessions' tasks are started."""

LATENCY_SECONDS_MAX = 600.0
LATENCY_DIGITS = 3
"""Latencies are told to three digits, from a nanosecond up to this; a longer one counts as this."""

FlushOne: TypeAlias = Callable[[int], Awaitable[None]]
"""Appends an event to the session of this number and waits until it is durable."""


@dataclass(frozen=True, slots=True)
class Load:
    """A burst of `seconds` over `sessions`; closed, or paced to `per_second` flushes over all sessions.

    Each flush is of `events` events of its session.
    """

    sessions: int
    seconds: float
    per_second: int | None = None
    events: int = 1

    @property
    def kind(self) -> str:
        """Name the kind of load."""
        return "closed" if self.per_second is None else "paced"

    def warming(self, seconds: float) -> Load:
        """Give what is done before: so many seconds of it, closed, as a timetable for that may have no flush."""
        return replace(self, seconds=seconds, per_second=None)

    @property
    def compared(self) -> str:
        """Name the figure that the load is about."""
        if self.per_second:
            return "p99_ms"
        return "per_second" if self.sessions > 1 else "p50_ms"

    @property
    def patience(self) -> float:
        """How many seconds the burst may take: a closed one ends with the last flush of each session."""
        return math.inf if self.per_second is None else max(PATIENCE_FACTOR * self.seconds, PATIENCE_SECONDS_MIN)


@dataclass(slots=True)
class Tally:
    """What one burst took, with so many events a flush."""

    events: int
    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def figures(self) -> Figures:
        """Give the burst's latencies in milliseconds, and how many events a second became durable.

        Raises TimeoutError where nothing was flushed before it was cut short.
        """
        if not self.latencies:
            why = f"nothing was flushed in {self.seconds:.1f} s: ask for fewer at a time, or measure on another disk"
            raise TimeoutError(errno.ETIMEDOUT, why)
        return {
            **latency_figures(self.latencies),
            "per_second": len(self.latencies) * self.events / self.seconds,
        }


def latency_figures(seconds: Iterable[float]) -> Figures:
    """Give the percentiles of latencies, in milliseconds. Raises ValueError where there are none."""
    longest = int(LATENCY_SECONDS_MAX * 1e9)
    histogram = HdrHistogram(1, longest, LATENCY_DIGITS)
    for each in seconds:  # behind the burst: recording one takes longer than a tell, and would be measured
        histogram.record_value(min(round(each * 1e9), longest))
    if not histogram.total_count:
        raise ValueError("no latencies to take a percentile of")
    found = histogram.get_percentile_to_value_dict([50, 99, 99.9, 100])
    names = {"p50_ms": 50, "p99_ms": 99, "p999_ms": 99.9, "most_ms": 100}
    return {name: found[percent] / 1e6 for name, percent in names.items()}


def round_figures(seconds: Sequence[float]) -> Figures:
    """Give the percentiles of what a round did again and again; `p50_ms` alone if it is something done once a round."""
    return latency_figures(seconds) if len(seconds) > 1 else {"p50_ms": seconds[0] * 1000}


class Lines:
    """Gives each session's next event, as a line of the same form and length as the product's."""

    def __init__(self, sessions: int, sizes: EventSizes = USUAL) -> None:
        self._contents = Contents(sizes)
        self._names = [f"session-{number:08d}" for number in range(sessions)]
        self._next = [0] * sessions

    def events(self, session: int, count: int) -> list[Flushed]:
        """Give the session's next events."""
        return [self.event_of(session, data) for data in self._contents.take(session, count)]

    def event(self, session: int) -> Flushed:
        """Give the session's next event."""
        return self.events(session, 1)[0]

    def event_of(self, session: int, data: dict[str, str]) -> Flushed:
        """Give the session's next event, which says this."""
        seq = self._next[session]
        self._next[session] = seq + 1
        now = time.time_ns() // 1_000_000
        return Flushed(session, seq, encode_event(self._names[session], seq, now, EVENT_TYPE, data))


# -- one process, one flush or one group after the other


def drive_baseline(baseline: Baseline, lines: Lines, load: Load, *, grouped: bool) -> Figures:
    """Put a baseline under load: flushes are done in the order in which they were asked for.

    With `grouped` all that wait are flushed together, else one at a time.
    """
    tally = Tally(load.events)
    began = time.perf_counter()
    if load.per_second is None:
        _drive_closed(baseline, lines, load, grouped, tally)
    else:
        _drive_paced(baseline, lines, load, load.per_second, grouped, tally)
    tally.seconds = time.perf_counter() - began
    return tally.figures()


def _drive_closed(baseline: Baseline, lines: Lines, load: Load, grouped: bool, tally: Tally) -> None:
    now = time.perf_counter()
    end = now + load.seconds
    waiting = deque((session, now) for session in range(load.sessions))
    while now < end:
        taken = [waiting.popleft() for _ in range(len(waiting) if grouped else 1)]
        baseline.flush([event for session, _ in taken for event in lines.events(session, load.events)])
        now = time.perf_counter()
        for session, asked in taken:
            tally.latencies.append(now - asked)
            waiting.append((session, now))


def _drive_paced(baseline: Baseline, lines: Lines, load: Load, per_second: int, grouped: bool, tally: Tally) -> None:
    began = now = time.perf_counter()
    planned = int(load.seconds * per_second)
    done = 0
    while done < planned and now < began + load.patience:
        due = min(planned, int((now - began) * per_second) + 1)
        if due <= done:
            time.sleep(max(0.0, began + done / per_second - now))
            now = time.perf_counter()
            continue
        numbers = range(done, due if grouped else done + 1)
        baseline.flush([event for number in numbers for event in lines.events(number % load.sessions, load.events)])
        now = time.perf_counter()
        tally.latencies.extend(now - began - number / per_second for number in numbers)
        done = numbers.stop


# -- as many tasks as sessions


async def drive_sessions(flush_one: FlushOne, load: Load) -> Figures:
    """Put sessions under load, each in a task of its own."""
    return (await drive_some(flush_one, load, range(load.sessions), beginning(load))).figures()


def beginning(load: Load) -> float:
    """Give the moment, as `perf_counter` tells it, at which a load of sessions begins that are about to be driven."""
    # A timetable begins when all tasks stand ready: starting a thousand of them isn't what is measured.
    return time.perf_counter() + (0.0 if load.per_second is None else READY_SECONDS)


async def drive_some(flush_one: FlushOne, load: Load, sessions: Iterable[int], began: float) -> Tally:
    """Put these sessions of a load under it, and leave the others to whoever has them."""
    tally = Tally(load.events)
    with anyio.move_on_after(READY_SECONDS + load.patience):
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                if load.per_second is None:
                    tasks.start_soon(_flush_closed, flush_one, session, began + load.seconds, tally)
                else:
                    numbers = range(session, int(load.seconds * load.per_second), load.sessions)
                    tasks.start_soon(_flush_paced, flush_one, session, began, load.per_second, numbers, tally)
    tally.seconds = time.perf_counter() - began
    return tally


async def _flush_closed(flush_one: FlushOne, session: int, end: float, tally: Tally) -> None:
    asked = time.perf_counter()
    while True:  # once at least: on a busy machine a burst of a moment may be over before each had its turn
        await flush_one(session)
        now = time.perf_counter()
        tally.latencies.append(now - asked)
        if now >= end:
            return
        asked = now


async def _flush_paced(
    flush_one: FlushOne, session: int, began: float, per_second: int, numbers: Sequence[int], tally: Tally
) -> None:
    for number in numbers:
        planned = began + number / per_second
        # Without a wait a session that is behind would go on without giving the others their turn.
        await anyio.sleep(max(0.0, planned - time.perf_counter()))
        await flush_one(session)
        tally.latencies.append(time.perf_counter() - planned)
