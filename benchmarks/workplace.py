"""Where a suite measures: a directory on the disk under test, filled stores, and who hears how far it has come.

Nothing that was in the directory before is touched, and nothing stays there but the results; also after Ctrl-C, which
may come between a process's start and the note of it: all that is started carries a mark by which it is found.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from .measuring.inhabitants import clear
from .measuring.interrupts import Interrupts
from .measuring.machine import describe_machine
from .measuring.marked_processes import carrying, kill_left_behind
from .measuring.room import require_memory, require_no_store
from .measuring.runs import Measured, Run, Tell, be_quiet
from .report.results import Result, command_line, save_result
from .stores.filled import FilledStores

MARK: Final = "TURNKEEPER_MEASURED"
"""The variable in the environments of whoever works in a measured directory: its path. Nodes and writers keep it."""

KILLED_SECONDS: Final = 10.0
"""How long all who are killed may take to die."""

MEMORY_BYTES: Final = 500_000_000
"""What any suite takes at most, all its processes together, if it says nothing else."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """What a suite gets: an empty directory to fill, stores that hold events already, and who hears how far it is."""

    directory: Path
    stores: FilledStores
    tell: Tell


Measure: TypeAlias = Callable[[Workplace], list[Run]]
"""What a suite does in its workplace."""


def run_alone(name: str, measure: Measure, out: Path | None = None, tell: Tell = be_quiet) -> dict[str, Any]:
    """Let one suite measure in `out`, or else the current directory; what it fills is removed.

    With `out` its result is kept there as `name`.json. Raises PlaceHoldsStore, and OSError where there isn't enough
    space or memory.
    """
    with measured_directory(out) as directory:
        machine = describe_machine(directory)
        with FilledStores(directory, tell) as stores:
            measured = run_suite(name, measure, Workplace(directory, stores, tell))
    result = Result(machine, [measured], command_line()).as_map()
    if out is not None:
        save_result(result, name, out)
    return result


def run_suite(name: str, measure: Measure, place: Workplace) -> Measured:
    """Let a suite measure, and take the time."""
    began = time.monotonic()
    runs = measure(place)
    return Measured(name, round(time.monotonic() - began, 1), runs)


@contextmanager
def measured_directory(out: Path | None) -> Iterator[Path]:
    """Make a directory to fill, in `out` or else the current directory, and remove it afterwards, with who works in it.

    SIGINT, SIGTERM and SIGHUP are raised in the body, once, and nowhere else. Raises PlaceHoldsStore, and OSError where
    that can't be written to, or there is too little memory.
    """
    parent = Path.cwd() if out is None else out
    require_no_store(parent)
    require_memory(MEMORY_BYTES)
    parent.mkdir(parents=True, exist_ok=True)
    with Interrupts() as interrupts:
        directory = Path(tempfile.mkdtemp(prefix="turnkeeper-bench-", dir=parent))
        try:
            with _marked(directory), interrupts.raising():
                yield directory
        finally:
            clear(directory)
        interrupts.checkpoint()


@contextmanager
def _marked(directory: Path) -> Iterator[None]:
    """Have all that is started meanwhile carry the mark; if the body ends by an exception, whoever does is killed."""
    with carrying(MARK, str(directory)):
        try:
            yield
        except BaseException:
            kill_left_behind(f"{MARK}={directory}", KILLED_SECONDS)
            raise
