"""What tasks cost and how soon things happen to them: real tasks, started through the public API, in fresh stores.

Each part runs in a host process of its own, on a store of its own, so none is measured with what another left behind:
500 idle tasks and what happens beside them (`idle_tasks`), thousands of short ones (`short_tasks`), much output
(`long_output`), many trees of processes that are stopped (`trees`), supervisord in our place (`supervised_programs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..measuring.room import require_memory, require_space
from ..measuring.runs import Run, Tell, be_quiet
from ..peers.catalogue import failure
from ..workplace import Workplace, run_alone
from . import idle_tasks, short_tasks, supervised_programs, trees
from .hosts import measure_part
from .idle_tasks import measure_idle
from .long_output import measure_output
from .short_tasks import measure_finished, measure_timetable
from .supervised_programs import INSTALL_SUPERVISOR, find_supervisord, measure_supervised
from .trees import measure_stops

_TASK_BYTES = 100_000
"""What one task takes on disk at most, with its part of the journal and of the index, if it prints nothing."""


_IDLE_MEMORY_BYTES = 2_000_000
_TREE_MEMORY_BYTES = 4_000_000
"""What a task takes of memory at most, with its command; and one with a tree below, beside a tree that is no task."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured of each part."""

    idle: idle_tasks.Sizes
    short: short_tasks.Sizes
    output_bytes: int
    stops: trees.Sizes
    supervised: supervised_programs.Sizes

    @property
    def task_bytes(self) -> int:
        """What the part with the most tasks takes on disk, without the one that prints much."""
        idle = self.idle.live + self.idle.starts + self.idle.ends
        return max(idle, self.short.tasks, self.short.planned, self.stops.trees * self.stops.rounds) * _TASK_BYTES

    @property
    def memory_bytes(self) -> int:
        """What the part with the most processes takes of memory: shims, commands, and the trees beside them."""
        return max(self.idle.live * _IDLE_MEMORY_BYTES, self.stops.trees * _TREE_MEMORY_BYTES)


QUICK = Sizes(
    idle_tasks.Sizes(live=100, starts=15, quiet_seconds=1.0, ends=20, apart_seconds=0.05),
    short_tasks.Sizes(tasks=100, timetable_seconds=2.0),
    output_bytes=200_000_000,
    stops=trees.Sizes(trees=50, rounds=1),
    supervised=supervised_programs.Sizes(starts=15, ends=10, trees=10, rounds=2),
)
FULL = Sizes(
    idle_tasks.Sizes(live=500, starts=105, quiet_seconds=10.0, ends=150),
    short_tasks.Sizes(tasks=3_000, timetable_seconds=30.0),
    output_bytes=10_000_000_000,
    stops=trees.Sizes(trees=500, rounds=5),
    supervised=supervised_programs.Sizes(starts=105, ends=100, trees=100, rounds=5),
)


def run_tasks(quick: bool, out: Path | None = None, *, tell: Tell = be_quiet) -> dict[str, Any]:
    """Measure tasks for about four minutes, 15 s if `quick`, and report a run for each question.

    The stores lie in `out`, or else in the current directory, and are removed; with `out` the result is kept there as
    tasks.json. Takes 11 GB of disk, 1 GB if `quick`; without room for the output that is left out, and said. Raises
    OSError where even the rest doesn't fit.
    """
    return run_alone("tasks", partial(measure, QUICK if quick else FULL), out, tell)


def measure(sizes: Sizes, place: Workplace) -> list[Run]:
    """Measure with these sizes."""
    directory, tell = place.directory, place.tell
    require_space(directory, sizes.task_bytes)
    require_memory(sizes.memory_bytes)
    return [
        *measure_part(directory / "idle", tell, measure_idle, sizes.idle),
        *measure_part(directory / "finished", tell, measure_finished, sizes.short),
        *measure_part(directory / "timetable", tell, measure_timetable, sizes.short),
        *_measure_output(directory, sizes.output_bytes, tell),
        *measure_part(directory / "trees", tell, measure_stops, sizes.stops),
        *_measure_supervised(directory, sizes.supervised, tell),
    ]


def _measure_supervised(directory: Path, sizes: supervised_programs.Sizes, tell: Tell) -> list[Run]:
    """Measure supervisord beside tasks, if it is installed."""
    supervisord = find_supervisord()
    left_out = INSTALL_SUPERVISOR
    if supervisord is not None:
        try:
            return measure_part(directory / "supervised", tell, measure_supervised, supervisord, sizes)
        except Exception as error:
            left_out = failure(supervisord, error)
    return [Run("task start p50_ms", {"against": "supervisord", "left_out": left_out}, {})]


def _measure_output(directory: Path, size: int, tell: Tell) -> list[Run]:
    """Measure a task with so much output, if there is room for that."""
    try:
        require_space(directory, size)
    except OSError as lack:
        return [Run("memory during output", {"output_bytes": size, "left_out": lack.strerror}, {})]
    return measure_part(directory / "output", tell, measure_output, size)
