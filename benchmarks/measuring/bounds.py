"""Between which bounds another run's median is expected, and how sure a change from one run to another is.

Rounds of a run show how far rounds differ, but not all that runs differ by: they share their processes, files and
minutes. What that adds was measured (`BETWEEN_RUNS`), and the bounds hold both, with independent normal errors of the
logarithms. Around the median m of n rounds:

    log m - sqrt((t · s · sqrt(π/n))² + (z · b · sqrt(2))²), where s² = 2/(n-1) · Σ (log m - log x)² over all x < m

and likewise above, by the rounds there: one slow moment says nothing of how fast others are. t and z are Student's and
the normal distribution's, b is between runs. A median of n normal values has, for large n, the variance π/2 · s²/n, and
another run's has the same again. Where a round isn't above zero there is no logarithm, and the values themselves are
taken, with b · m for b. Rounds that are all the same are a count: no noise is put there.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

Bounds: TypeAlias = tuple[float, float]
"""The lower and the upper bound of something measured."""

BETWEEN_RUNS: Final = 0.04
"""The standard deviation, as a part of the median, by which runs differ beyond what their rounds show.

With it 94 % of 1,968 medians lay in the bounds of another run, without it 82 %: of four runs of all suites on two days,
four of `list` and three of `import`, on a virtual machine of two cores, each held against each other of its kind.
"""

EXPECTED: Final = 0.95
"""How often another run's median lies in the bounds of one."""

SURE: Final = 0.99
"""How sure a change is that is told."""

# Student's t, two-sided, for 1, 2, 3 … degrees of freedom; for more than there are here the last one is a bit too wide.
_STUDENT_T: Final = {
    EXPECTED: (
        *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
        *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    ),
    SURE: (
        *(63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169),
        *(3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845),
    ),
}
_NORMAL_Z: Final = {EXPECTED: 1.960, SURE: 2.576}


def student_t(confidence: float, freedom: int) -> float:
    """Give Student's t for so many degrees of freedom, two-sided; `confidence` is `EXPECTED` or `SURE`."""
    table = _STUDENT_T[confidence]
    return table[min(freedom, len(table)) - 1]


def bounds_of(rounds: Sequence[float]) -> Bounds:
    """Give between which bounds the median of another run is expected, 19 times of 20; of two rounds at least."""
    if min(rounds) == max(rounds):
        return rounds[0], rounds[0]
    if min(rounds) > 0:
        low, high = _bounds_of([math.log(value) for value in rounds], BETWEEN_RUNS)
        return math.exp(low), math.exp(high)
    return _bounds_of(rounds, BETWEEN_RUNS * abs(statistics.median(rounds)))


def _bounds_of(rounds: Sequence[float], between: float) -> Bounds:
    mine = _median_of(rounds)
    below, above = (math.sqrt(2) * error for error in (mine.below, mine.above))
    t, apart = student_t(EXPECTED, len(rounds) - 1), _NORMAL_Z[EXPECTED] * math.sqrt(2) * between
    return mine.value - math.hypot(t * below, apart), mine.value + math.hypot(t * above, apart)


def change_bounds(before: Sequence[float], after: Sequence[float]) -> Bounds:
    """Give between which bounds the change from one median to another lies with 99 % confidence; 0.1 is 10 % more.

    Of two rounds each at least, which are all above zero.
    """
    if min(before) == max(before) and min(after) == max(after):
        change = after[0] / before[0] - 1
        return change, change
    old, new = (_median_of([math.log(value) for value in rounds]) for rounds in (before, after))
    t, apart = student_t(SURE, len(before) + len(after) - 2), _NORMAL_Z[SURE] * math.sqrt(2) * BETWEEN_RUNS
    low = new.value - old.value - math.hypot(t * new.below, t * old.above, apart)
    high = new.value - old.value + math.hypot(t * new.above, t * old.below, apart)
    return math.exp(low) - 1, math.exp(high) - 1


class _Median(NamedTuple):
    """A median, and its standard error as the rounds below it show it, and as those above do."""

    value: float
    below: float
    above: float


def _median_of(rounds: Sequence[float]) -> _Median:
    median = statistics.median(rounds)
    below = math.fsum((median - value) ** 2 for value in rounds if value < median)
    above = math.fsum((median - value) ** 2 for value in rounds if value > median)
    scale = math.pi / (len(rounds) * (len(rounds) - 1))
    return _Median(median, math.sqrt(scale * below), math.sqrt(scale * above))
