"""Whether the writer's memory grows while it serves: 1,000 sessions append for two minutes, 5,000 events a second.

The sessions are in one host process, each flushes every event. Measured is the writer's anonymous memory, which it
keeps to itself; pages of the index that it maps are the system's to take back. First all sessions flush as fast as they
can, so that the greatest batch there can be is behind it: LMDB keeps the pages of its greatest transaction, and a disk
that stands still for a moment makes one. The first part isn't counted: caches and buffers, bounded as they are, fill up
then. Of the rest a line's slope is taken; it lies in its bounds with 95 % confidence: with zero in there, no growth can
be told from none. A short run sees mostly the filling of caches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from turnkeeper.actors.client.asking import ask_writer_hello

from .driving.hosts import Host
from .driving.loads import Load
from .measuring.process_memory import anonymous_bytes
from .measuring.room import require_space
from .measuring.runs import Figures, Run, Tell, be_quiet
from .measuring.trend import BLOCKS, trend
from .workplace import Workplace, run_alone

EVENT_BYTES = 460
_STORED_BYTES = 700
"""What an event takes on disk at most, its part of a header and of the index included."""

NEWS_SECONDS = 10.0
"""How long sessions may take to hear that their writer has ended for good."""

BURST_SECONDS = 1.0
_BURST_BYTES = 200_000_000
"""How long all sessions flush as fast as they can, and what that may take on disk."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: the load, how much of its time isn't counted, and how often is looked."""

    load: Load
    warm_up_seconds: float
    sample_seconds: float


QUICK = Sizes(Load(1_000, 6.0, per_second=5_000), warm_up_seconds=2.0, sample_seconds=0.05)
FULL = Sizes(Load(1_000, 110.0, per_second=5_000), warm_up_seconds=30.0, sample_seconds=0.2)


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the writer, so many seconds after the load began."""

    seconds: float
    kib: float


def run_memory(
    quick: bool, out: Path | None = None, *, seconds: float | None = None, tell: Tell = be_quiet
) -> dict[str, Any]:
    """Watch the writer under load, for 110 s if nothing is said, 6 s if `quick`; report its slope, and all samples.

    The store lies in `out`, or else in the current directory, and is removed; with `out` the result is kept there as
    memory.json. Takes 1.1 GB of disk, 0.7 GB if `quick`. Raises OSError where that isn't free.
    """
    sizes = QUICK if quick else FULL
    if seconds is not None:
        sizes = replace(sizes, load=replace(sizes.load, seconds=seconds))
    return run_alone("memory", partial(measure, sizes), out, tell)


def measure(sizes: Sizes, place: Workplace) -> list[Run]:
    """Measure with these sizes. Raises ValueError where they give too few samples for a slope."""
    load = sizes.load
    require_space(place.directory, _BURST_BYTES + int((load.per_second or 0) * load.seconds) * _STORED_BYTES)
    samples, reached = _watch(place.directory / "store", sizes, place.tell)
    return [_judge(sizes, samples, reached)]


def _watch(store: Path, sizes: Sizes, tell: Tell) -> tuple[list[Sample], Figures]:
    """Let the sessions append and look at the writer meanwhile; give the looks, and what the load reached."""
    samples: list[Sample] = []
    with Host(str(store), sizes.load.sessions) as host:
        host.wait_ready()
        hello = ask_writer_hello(str(store))
        if hello is None:
            raise RuntimeError(f"nobody serves {store}")
        host.burst(replace(sizes.load, seconds=BURST_SECONDS, per_second=None))
        host.tell(sizes.load)
        began = time.monotonic()
        while not host.has_ended(sizes.sample_seconds):
            used = anonymous_bytes(hello["pid"])
            if not used:
                if host.has_ended(NEWS_SECONDS):
                    host.outcome()  # raises what the sessions met with, which says more
                raise RuntimeError(f"the writer, process {hello['pid']}, has ended")
            seconds = round(time.monotonic() - began, 2)
            samples.append(Sample(seconds, used / 1024))
            tell(f"{seconds:.0f} of {sizes.load.seconds:.0f} s: the writer has {used / 1e6:.1f} MB of its own")
        return samples, host.outcome()


def _judge(sizes: Sizes, samples: Sequence[Sample], reached: Figures) -> Run:
    """Take the slope of what comes after the warm-up; the ratio is of the memory at its end over its beginning."""
    counted = [each for each in samples if each.seconds >= sizes.warm_up_seconds]
    found = trend([(each.seconds / 60, each.kib) for each in counted])
    part = len(counted) // BLOCKS
    begin = statistics.fmean(each.kib for each in counted[:part])
    end = statistics.fmean(each.kib for each in counted[-part:])
    params = {
        "sessions": sizes.load.sessions,
        "planned_per_second": sizes.load.per_second,
        "event_bytes": EVENT_BYTES,
        "seconds": sizes.load.seconds,
        "warm_up_seconds": sizes.warm_up_seconds,
        "samples": len(counted),
        "slope": found.direction,
    }
    figures = {
        "slope_kib_a_minute": round(found.slope, 2),
        "end_kib": round(end, 1),
        "most_kib": max(each.kib for each in counted),
        "per_second": round(reached["per_second"], 1),
        "p99_ms": round(reached["p99_ms"], 3),
    }
    return Run(
        "memory end over begin",
        params,
        figures,
        {"begin_kib": round(begin, 1)},
        round(end / begin, 4),
        bounds={"slope_kib_a_minute": (round(found.low, 2), round(found.high, 2))},
        series={"writer_kib over seconds": [(each.seconds, each.kib) for each in samples]},
    )
