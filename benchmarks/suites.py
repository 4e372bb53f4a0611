"""All suites in one run, one after the other: one description of the machine, stores that are filled once, one result.

A suite is a module with two sizes, `QUICK` and `FULL`, and `measure(size, place)`, which gives runs. Those that only
read a filled store come before those that change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from turnkeeper.storage.errors import StorageError

from .measuring.inhabitants import clear
from .measuring.machine import describe_machine
from .measuring.room import require_space
from .measuring.runs import Measured, Tell, be_quiet
from .report.results import ALL, Result, command_line, save_result
from .stores.filled import FilledStores
from .workplace import Measure, Workplace, measured_directory, run_suite

SUITES: Final[Mapping[str, str]] = {
    "load": "reading.session_loading",
    "list": "reading.session_lists",
    "fork": "reading.forks",
    "import": "imports",
    "follow": "following.follows",
    "recovery": "recovery.recovery",
    "flush": "flushing.flush",
    "disk": "disk",
    "memory": "memory",
    "actors": "actors.actors",
    "tasks": "tasks.tasks",
}
"""Each suite's module, in the order in which they run."""


QUICK_BYTES: Final = 1_500_000_000
FULL_BYTES: Final = 20_000_000_000
"""What the suite that fills most takes of disk; what others have filled goes where it doesn't fit beside that."""


def measure_of(name: str, quick: bool) -> Measure:
    """Give what a suite does at one of its sizes; the others aren't loaded."""
    module = import_module(f"{__package__}.{SUITES[name]}")
    return partial(module.measure, module.QUICK if quick else module.FULL)


def run_all(quick: bool, out: Path | None = None, *, tell: Tell = be_quiet) -> dict[str, Any]:
    """Let all suites measure in `out`, or else the current directory; what they fill is removed.

    One that fails is left out, and the result says why. With `out` the result is kept there as report.json. Takes less
    than 30 minutes, 2 if `quick`, and 20 GB of disk, 2 GB if `quick`. Raises PlaceHoldsStore and OSError.
    """
    with measured_directory(out) as directory:
        require_space(directory, QUICK_BYTES if quick else FULL_BYTES)
        machine = describe_machine(directory)
        with FilledStores(directory, tell) as stores:
            measured = []
            for number, name in enumerate(SUITES, 1):
                told = partial(_tell_place, tell, f"{number} of {len(SUITES)}, {name}")
                stores.tell = told
                measured.append(_run_one(name, quick, Workplace(directory / name, stores, told)))
    result = Result(machine, measured, command_line()).as_map()
    if out is not None:
        save_result(result, ALL, out)
    return result


def _tell_place(tell: Tell, place: str, line: str) -> None:
    tell(f"{place}: {line}")


def _run_one(name: str, quick: bool, place: Workplace) -> Measured:
    place.tell("starting")
    place.directory.mkdir()
    try:
        return run_suite(name, measure_of(name, quick), place)
    except Exception as error:  # the others are measured all the same
        return Measured(name, 0.0, left_out=_why(error))
    finally:
        clear(place.directory)
        place.stores.rest()


def _why(error: Exception) -> str:
    """Say in one line what kept a suite from measuring."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, StorageError):
        return error.message()
    return " ".join(f"{type(error).__name__}: {error}".split())
