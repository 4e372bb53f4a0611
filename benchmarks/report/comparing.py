"""Two results, row by row: better, worse, or no difference that could be told, each with its bounds.

What is compared is the ratio of ours over what took turns with it, where a run has one: what the moments of the machine
do to both subjects is gone from it. Else it is the figure that the run is about, a time of one moment against a time of
another: between machines these aren't compared at all.

A difference is told only where the bounds of 99 % leave out no change (`measuring.bounds`). They know how much rounds
differ, and how much runs do that measure the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from ..measuring.bounds import EXPECTED, SURE, Bounds, change_bounds
from ..measuring.runs import Run
from .results import Result

Verdict: TypeAlias = Literal["better", "worse", "no difference told"]

_MACHINE: Final = ("processor", "cores", "memory_bytes", "file_system", "system")
"""What makes it another machine."""

_SOFTWARE: Final = ("turnkeeper", "commit", "python", "versions")

_FOUND: Final = frozenset(
    {"rounds", "samples", "counted", "looks", "slope", "dropped_by", "installed", "settings", "survives"}
)
"""Parameters that a run finds and doesn't set: two that differ in them measure the same."""

_MORE_IS_BETTER: Final = ("per_second", "per_minute", "ended_well")


class Row(NamedTuple):
    """One run in both results: the medians, the change from one to the other with its bounds, and what it means.

    A change of 0.1 is ten percent more. `why` says why no difference could be told, where not the bounds do.
    `is_within` says whether the later median lies in the bounds of before; None where that had one round.
    """

    suite: str
    name: str
    params: Mapping[str, Any]
    of: str
    before: float
    after: float
    change: float | None
    bounds: Bounds | None
    verdict: Verdict
    why: str
    is_within: bool | None


class Single(NamedTuple):
    """A run that only one of the results has, and why its like doesn't correspond."""

    suite: str
    name: str
    params: Mapping[str, Any]
    why: str


@dataclass(slots=True)
class Comparison:
    """What two results say of each other. `machine` and `software` are what differs there, as before and after."""

    machine: dict[str, list[Any]]
    software: dict[str, list[Any]]
    rows: list[Row] = field(default_factory=list)
    only_before: list[Single] = field(default_factory=list)
    only_after: list[Single] = field(default_factory=list)

    def count(self, verdict: Verdict) -> int:
        """Count the rows of a verdict."""
        return sum(row.verdict == verdict for row in self.rows)

    @property
    def within(self) -> tuple[int, int]:
        """Count the rows whose later median lies in the bounds of before, and all of which that can be said."""
        told = [row.is_within for row in self.rows if row.is_within is not None]
        return sum(told), len(told)

    def as_map(self) -> dict[str, Any]:
        """Give it as plain values."""
        plain = asdict(self)
        for name in ("rows", "only_before", "only_after"):
            plain[name] = [each._asdict() for each in getattr(self, name)]
        return {"confidence": SURE, "within_expected": EXPECTED, **plain}


def compare(before: Result, after: Result) -> Comparison:
    """Compare what both have; list what one of them has alone."""
    machine, software = (_differing(before.machine, after.machine, names) for names in (_MACHINE, _SOFTWARE))
    comparison = Comparison(machine, software)
    first, second = _by_key(before), _by_key(after)
    for key, (suite, run) in first.items():
        if key in second:
            comparison.rows.append(_compare_runs(suite, run, second[key][1], same_machine=not machine))
    comparison.only_before += _alone(first, second)
    comparison.only_after += _alone(second, first)
    return comparison


def _differing(before: Mapping[str, Any], after: Mapping[str, Any], names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: [before.get(name), after.get(name)] for name in names if before.get(name) != after.get(name)}


# -- which runs correspond


_Keyed: TypeAlias = dict[str, tuple[str, Run]]


def _by_key(result: Result) -> _Keyed:
    """Give the runs that have figures, each by what it measures."""
    return {
        repr((each.suite, run.name, sorted(_set_params(run).items(), key=str))): (each.suite, run)
        for each in result.measured
        for run in each.runs
        if run.figures
    }


def _set_params(run: Run) -> dict[str, Any]:
    return {name: value for name, value in run.params.items() if name not in _FOUND}


def _alone(mine: _Keyed, others: _Keyed) -> Iterator[Single]:
    """Give the runs that the others don't have, each with what differs in the one that is most like it."""
    for key, (suite, run) in mine.items():
        if key in others:
            continue
        alike = [other for name, other in others.values() if (name, other.name) == (suite, run.name)]
        differing = [sorted(_differing_params(run, other)) for other in alike]
        nearest = min(differing, key=len, default=None)
        why = "not measured there" if nearest is None else f"other {', '.join(nearest)}"
        yield Single(suite, run.name, run.params, why)


def _differing_params(one: Run, other: Run) -> set[str]:
    mine, theirs = _set_params(one), _set_params(other)
    return {name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name)}


# -- how far they differ


def _compare_runs(suite: str, before: Run, after: Run, *, same_machine: bool) -> Row:
    of = _compared_figure(before)
    values = [_rounds(run, of) for run in (before, after)]
    old, new = (_value(run, of) for run in (before, after))
    change = new / old - 1 if old > 0 and new > 0 else None
    why = ""
    if of != "ratio" and not same_machine:
        why = "times of two machines"
    elif change is None or min(map(min, filter(None, values)), default=0.0) <= 0:
        why = "no relation to nothing"
    elif min(map(len, values)) < 2:
        why = "measured once"
    bounds = None if why else change_bounds(*values)
    verdict = _verdict(bounds, _is_more_better(before, of))
    low, high = before.bounds.get(of, (0.0, 0.0))
    within = low <= new <= high if len(values[0]) > 1 else None
    return Row(suite, before.name, before.params, of, old, new, change, bounds, verdict, why, within)


def _compared_figure(run: Run) -> str:
    """Name what is compared: the ratio, the figure that the run is about, or its first one."""
    if run.ratio is not None:
        return "ratio"
    return run.compared or next(iter(run.figures))


def _rounds(run: Run, of: str) -> list[float]:
    return run.rounds.ratio if of == "ratio" else run.rounds.figures.get(of, [])


def _value(run: Run, of: str) -> float:
    value = run.ratio if of == "ratio" else run.figures.get(of)
    return 0.0 if value is None else value


def _is_more_better(run: Run, of: str) -> bool:
    about = (run.compared or run.name) if of == "ratio" else of
    return any(name in about for name in _MORE_IS_BETTER)


def _verdict(bounds: Bounds | None, is_more_better: bool) -> Verdict:
    if bounds is None or bounds[0] <= 0 <= bounds[1]:
        return "no difference told"
    return "better" if (bounds[0] > 0) == is_more_better else "worse"
