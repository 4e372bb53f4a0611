"""How a benchmark's result looks in a terminal: a table a suite, and above each what holds for all of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .printing import print_table, print_text


def print_result(result: Mapping[str, Any]) -> None:
    """Print the machine, and a row for each run."""
    print_text(_pairs(result["machine"]))
    if warning := result["machine"].get("warning"):
        print_text(f"NOTE: {warning}")
    for suite in result["suites"]:
        print_text("")
        if len(result["suites"]) > 1:
            print_text(f"{suite['name'].upper()}, {suite['seconds']:.0f} s")
        if suite["left_out"] is None:
            _print_runs([run for run in result["runs"] if run["suite"] == suite["name"]])
        else:
            print_text(f"left out: {suite['left_out']}")


def _print_runs(runs: Sequence[Mapping[str, Any]]) -> None:
    common = {
        name: value
        for name, value in runs[0]["params"].items()
        if all(run["params"].get(name) == value for run in runs)
    }
    print_text(f"all runs: {_pairs(common)}")
    rows = [
        (
            run["name"],
            _pairs({name: value for name, value in run["params"].items() if name not in common}),
            _pairs(run["figures"], run["bounds"]),
            _pairs(run["base"]),
            "" if run["ratio"] is None else _value(run["ratio"]) + _bounds(run["bounds"].get("ratio")),
        )
        for run in runs
    ]
    print_table(("run", "with", "ours", "base", "ratio"), rows, right=("ratio",))


def _pairs(values: Mapping[str, Any], bounds: Mapping[str, Sequence[float]] = {}) -> str:
    told = {
        name: value
        for name, value in values.items()
        if value is not None and name != "warning" and not isinstance(value, Mapping)
    }
    return ", ".join(f"{name} {_value(value)}{_bounds(bounds.get(name))}" for name, value in told.items())


def _bounds(bounds: Sequence[float] | None) -> str:
    """Give a value's bounds, where there are any; rounds that were all the same have none to show."""
    return "" if bounds is None or bounds[0] == bounds[1] else f" ({_value(bounds[0])} to {_value(bounds[1])})"


def _value(value: object) -> str:
    return f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
