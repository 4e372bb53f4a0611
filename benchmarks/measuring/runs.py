"""What every benchmark here measures by: subjects take turns; medians and ratios are told, and how sure these are.

A ratio within one run is the result; absolute times are context, since they change with the machine and its mood. So
subjects that are compared take turns within one run, and one round of each makes a pair: what both have in common, a
slow disk or a busy neighbour, is gone from their ratio. A result is the median over the rounds, of the ratio too, and
stands beside the bounds between which another run's is expected.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeAlias, TypeVar

from .bounds import Bounds, bounds_of

Figures: TypeAlias = dict[str, float]

Tell: TypeAlias = Callable[[str], None]
"""Takes one line for people on what is being done."""

Taken = TypeVar("Taken")

SEED: Final = 1
"""What a benchmark draws it draws from this, so that another run measures the same."""


@dataclass(slots=True)
class Rounds:
    """The values of each round, of a figure of ours or of the base, and of the ratio; round k of all is a pair."""

    figures: dict[str, list[float]] = field(default_factory=dict)
    base: dict[str, list[float]] = field(default_factory=dict)
    ratio: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Run:
    """One result: `figures` are ours, `base` those compared with, `ratio` ours over base or as the name says.

    `bounds` has those of ours and of the "ratio": between which another run's median is expected 19 times of 20, or of
    what the name says. `compared` is the figure that it is about, and that the ratio is of. `series` are measurements
    over something, as pairs. `marks` are what it was to reach: each names the figure that counts, at most or at least
    how much, and whether that is met.
    """

    name: str
    params: dict[str, Any]
    figures: Figures
    base: Figures = field(default_factory=dict)
    ratio: float | None = None
    bounds: dict[str, Bounds] = field(default_factory=dict)
    rounds: Rounds = field(default_factory=Rounds)
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    compared: str | None = None
    marks: list[dict[str, Any]] = field(default_factory=list)


def run_of(
    name: str,
    params: Mapping[str, Any],
    ours: Sequence[Mapping[str, float]],
    base: Sequence[Mapping[str, float]] = (),
    *,
    compared: str | None = None,
) -> Run:
    """Make a run of the rounds of ours and of what they took turns with: medians and their bounds.

    The ratio is of the figure `compared`, which both have: the median of the ratios that the pairs of rounds have, not
    the ratio of the medians. With one round there are no bounds, without a base no ratio. Raises ValueError where
    rounds have no partner.
    """
    if base and len(base) != len(ours):
        raise ValueError(f"{name}: {len(ours)} rounds of ours can't be compared with {len(base)}")
    rounds = Rounds(_columns(ours), _columns(base))
    if base and compared is not None:
        pairs = zip(ours, base, strict=True)
        rounds.ratio = [_rounded(mine[compared] / theirs[compared]) for mine, theirs in pairs]
    return Run(
        name,
        {**params, "rounds": len(ours)},
        medians(ours),
        medians(base) if base else {},
        _rounded(statistics.median(rounds.ratio)) if rounds.ratio else None,
        figure_bounds({**rounds.figures, **({"ratio": rounds.ratio} if rounds.ratio else {})}),
        rounds,
        compared=compared,
    )


def _columns(rounds: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {name: [_rounded(each[name]) for each in rounds] for name in rounds[0]} if rounds else {}


def figure_bounds(rounds: Mapping[str, Sequence[float]]) -> dict[str, Bounds]:
    """Give the bounds of each figure of which there is more than one round."""
    found = {name: bounds_of(values) for name, values in rounds.items() if len(values) > 1}
    return {name: (_rounded(low), _rounded(high)) for name, (low, high) in found.items()}


def medians(rounds: Sequence[Mapping[str, float]]) -> Figures:
    """Give the median of each figure over the rounds."""
    return {name: _rounded(statistics.median(each[name] for each in rounds)) for name in rounds[0]}


def _rounded(value: float) -> float:
    """Keep six digits: more than any measurement here has."""
    return float(f"{value:.6g}")


def in_blocks(values: Sequence[Taken], count: int) -> list[Sequence[Taken]]:
    """Cut what was measured one by one into so many rounds of neighbours, of equal length but for one.

    Raises ValueError where there are fewer values than rounds.
    """
    if len(values) < count:
        raise ValueError(f"{len(values)} values can't make {count} rounds")
    ends = [len(values) * number // count for number in range(count + 1)]
    return [values[begin:end] for begin, end in pairwise(ends)]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a suite has measured in so many seconds, filling included; or why it could not (`left_out`)."""

    suite: str
    seconds: float
    runs: Sequence[Run] = ()
    left_out: str | None = None


def be_quiet(line: str) -> None:
    """Tell nobody."""


# -- taking turns


def turns(rounds: int, names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Give the order in which subjects are measured: each once a round, every other round the other way about.

    So what grows or tires evenly during the whole burdens all alike: A B, B A, A B.
    """
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            yield number, name


def interleaved(
    rounds: int, subjects: Mapping[str, Callable[[], Taken]], tell: Tell = be_quiet
) -> dict[str, list[Taken]]:
    """Measure every subject once a round, in turns; give each one's measurements."""
    measured: dict[str, list[Taken]] = {name: [] for name in subjects}
    for number, name in turns(rounds, list(subjects)):
        tell(f"round {number + 1} of {rounds}: {name}")
        measured[name].append(subjects[name]())
    return measured


def percentile(values: Sequence[float], percent: float) -> float:
    """Give the smallest value that at least `percent` of a hundred of the values don't exceed."""
    if not values:
        raise ValueError("no values to take a percentile of")
    ordered = sorted(values)
    place = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(place) - 1)]
