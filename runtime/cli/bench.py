"""`turnkeeper bench`: measurements, each in a fresh directory that it fills and removes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from .commands import command
from .invocation import Invocation
from .printing import print_json, print_table, print_text
from .progress import told_progress

_quick = click.option("--quick", is_flag=True, help="Less of it, in less than 100 seconds.")
_out = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory to measure in, which also gets the result.  [default: the present one, which doesn't]",
)


@command("flush", example="turnkeeper bench flush --quick --out results")
@_quick
@_out
def flush(invocation: Invocation, quick: bool, out: Path | None) -> None:
    """Measure how long a flush takes, at 1, 100 and 1,000 sessions.

    Beside it: a bare append with fdatasync, SQLite, and one file a session. What counts is the ratio; times are this
    machine's.
    """
    _measure(invocation, "flush", quick, out)


@command("recovery", example="turnkeeper bench recovery --quick")
@_quick
@_out
def recovery(invocation: Invocation, quick: bool, out: Path | None) -> None:
    """Measure how long opening takes after a kill, in a store of 1,000,000 events over one of 10,000.

    Size should not matter. Takes 700 MB of disk.
    """
    _measure(invocation, "recovery", quick, out)


def _measure(invocation: Invocation, name: str, quick: bool, out: Path | None) -> None:
    if invocation.given_store is not None:
        raise click.UsageError("a benchmark makes stores of its own; --out says in which directory")
    run: Callable[..., dict[str, Any]] = getattr(import_module(f"turnkeeper.benchmarks.{name}"), f"run_{name}")
    with told_progress() as tell:
        result = run(quick, out, tell=tell)
    if invocation.is_json:
        print_json(result)
    else:
        _print(result)


def _print(result: Mapping[str, Any]) -> None:
    """Print a row for each run; what holds for all of them stands above, once."""
    runs = result["runs"]
    common = {
        name: value
        for name, value in runs[0]["params"].items()
        if all(run["params"].get(name) == value for run in runs)
    }
    print_text(_pairs(result["machine"]))
    print_text(f"all runs: {_pairs(common)}")
    print_text("")
    rows = [
        (
            run["name"],
            _pairs({name: value for name, value in run["params"].items() if name not in common}),
            _pairs(run["figures"]),
            _pairs(run["base"]),
            "" if run["ratio"] is None else f"{run['ratio']:.2f}",
        )
        for run in runs
    ]
    print_table(("run", "with", "ours", "base", "ratio"), rows, right=("ratio",))


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in values.items() if value is not None)


def _value(value: object) -> str:
    return f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
