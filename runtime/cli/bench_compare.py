"""`turnkeeper bench compare`: what got better or worse from one result of a benchmark to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from turnkeeper.benchmarks.measuring.bounds import EXPECTED, SURE
from turnkeeper.benchmarks.report.comparing import Comparison, Row, Single, Verdict, compare
from turnkeeper.benchmarks.report.results import NotAResult, Result, read_result

from .commands import command
from .failures import Failure
from .invocation import Invocation
from .printing import print_json, print_table, print_text

_ORDER: Final[tuple[Verdict, ...]] = ("worse", "better", "no difference told")


@command("compare", example="turnkeeper bench compare results-before results-after")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
def compare_results(invocation: Invocation, before: Path, after: Path) -> None:
    """Compare two results, each a directory that a benchmark got by --out, or a JSON file from there.

    Of each run its ratio is compared, else the figure that it is about. A difference is told where it is 99 % sure,
    from how much rounds differ and runs that measure the same; one row in a hundred does so by chance alone.
    """
    found = _read(before), _read(after)
    comparison = compare(*found)
    if invocation.is_json:
        print_json({"before": str(before), "after": str(after), **comparison.as_map()})
    else:
        _print(comparison, [before, after], found)


def _read(place: Path) -> Result:
    try:
        return read_result(place)
    except NotAResult as error:
        raise Failure("invalid_input", error.why, error.path, error.advice) from None


def _print(comparison: Comparison, places: Sequence[Path], results: Sequence[Result]) -> None:
    for name, place, result in zip(("before", "after"), places, results, strict=True):
        commit = result.machine.get("commit") or "unknown"
        print_text(f"{name}: {place}: commit {commit}, {result.command or 'of another program'}")
    for what, differing in (("another machine", comparison.machine), ("other software", comparison.software)):
        if differing:
            parts = (f"{name} {_plain(old)}, then {_plain(new)}" for name, (old, new) in differing.items())
            print_text(f"{what}: {'; '.join(parts)}")
    if comparison.machine:
        print_text("Only ratios are compared: times of two machines say nothing of what was measured.")
    print_text("")
    rows = sorted(comparison.rows, key=lambda row: _ORDER.index(row.verdict))
    if rows:
        heads = ("verdict", "suite", "run", "with", "of", "before", "after", "change", f"{SURE:.0%} bounds")
        print_table(heads, [_cells(row, comparison.rows) for row in rows], right=("before", "after", "change"))
        print_text("")
    counts = ", ".join(f"{comparison.count(verdict)} {verdict}" for verdict in _ORDER)
    print_text(f"{len(rows)} rows: {counts}; by chance alone about {len(rows) * (1 - SURE):.0f} would differ.")
    within, told = comparison.within
    if told:
        share = f"{within} of {told} ({within / told:.0%})"
        print_text(f"{share} of the later medians lie in the bounds of before; {EXPECTED:.0%} are expected.")
    for name, singles in (("before", comparison.only_before), ("after", comparison.only_after)):
        if singles:
            print_text("")
            print_text(f"only {name}:")
            print_table(("suite", "run", "with", "why"), [_single_cells(each, singles) for each in singles])


def _cells(row: Row, rows: Sequence[Row]) -> tuple[str, ...]:
    change = "" if row.change is None else f"{row.change:+.1%}"
    bounds = row.why if row.bounds is None else f"{row.bounds[0]:+.1%} to {row.bounds[1]:+.1%}"
    values = (f"{value:,.4g}" for value in (row.before, row.after))
    return (row.verdict, row.suite, row.name, _own_params(row, rows), row.of, *values, change, bounds)


def _single_cells(single: Single, singles: Sequence[Single]) -> tuple[str, ...]:
    return single.suite, single.name, _own_params(single, singles), single.why


def _own_params(shown: Row | Single, others: Sequence[Row] | Sequence[Single]) -> str:
    """Say in what a run differs from others of its name."""
    alike = [each.params for each in others if (each.suite, each.name) == (shown.suite, shown.name)]
    return _params({name: value for name, value in shown.params.items() if any(p.get(name) != value for p in alike)})


def _params(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_plain(value)}" for name, value in params.items() if value is not None)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return _params(value)
    return "unknown" if value is None else str(value)
