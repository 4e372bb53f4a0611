"""How long until a store serves again, in whatever way its writer ended, and how fast its index is built anew.

Three things are measured: how long a host waits for its next acknowledged append, over the size of the log (`outages`);
the opening alone, in a process that has started already, of a large store over a small one (`openings`); and the
large store's index built anew, and its journal verified, each event a run of its own, and ten events a run
(`rebuilding`).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..measuring.runs import Run, Tell, be_quiet
from ..stores.filled import Filling, well_used
from ..workplace import Workplace, run_alone
from . import outages
from .openings import OpenedStore, compare_openings
from .rebuilding import compare_with_parsing


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: events of two stores, how often each is opened, and the large one built anew; outages."""

    small_events: int
    large_events: int
    openings: int
    rebuilds: int
    outages: outages.Sizes


QUICK = Sizes(small_events=20_000, large_events=200_000, openings=2, rebuilds=2, outages=outages.QUICK)
FULL = Sizes(small_events=100_000, large_events=10_000_000, openings=11, rebuilds=5, outages=outages.FULL)


def run_recovery(quick: bool, out: Path | None = None, *, tell: Tell = be_quiet) -> dict[str, Any]:
    """Fill stores, let die what serves them, open, build and verify them; report medians and their ratios.

    The stores lie in `out`, or else in the current directory, and are removed; with `out` the result is kept there as
    recovery.json. Takes 24 GB of disk, 0.8 GB if `quick`. Raises OSError where there isn't enough for the openings; a
    log of the outages that doesn't fit is left out.
    """
    return run_alone("recovery", partial(measure, QUICK if quick else FULL), out, tell)


def measure(sizes: Sizes, place: Workplace) -> list[Run]:
    """Measure with these sizes."""
    fillings = Filling(sizes.small_events), well_used(sizes.large_events)
    paths = place.stores.take(*fillings)
    small, large = (OpenedStore(path, filling) for path, filling in zip(paths, fillings, strict=True))
    rebuilt = compare_with_parsing(large.path, large.filling, sizes.rebuilds, place.tell)
    runs = [*compare_openings(small, large, sizes.openings, place.tell), *rebuilt]
    shutil.rmtree(large.path)  # before the next one of its size
    turns = Filling(sizes.large_events, run_events=10)
    (store,) = place.stores.read(turns)
    runs += compare_with_parsing(store, turns, sizes.rebuilds, place.tell)
    return runs + outages.measure_outages(sizes.outages, place)
