"""Between which bounds another run's median is expected, and how sure a change from one run to another is.

Rounds of a run show how far rounds differ, but not all that runs differ by: they share their processes, files and
minutes. What that adds was measured (`BETWEEN_RUNS`), and the bounds hold both, with independent normal errors of the
logarithms. Around the median m of n rounds whose logarithms have the standard deviation s:

    log m ± sqrt((t · s · sqrt(π/n))² + (z · b · sqrt(2))²)

t and z are Student's and the normal distribution's, b is between runs. A median of n normal values has, for large n,
the variance π/2 · s²/n; another run's median has the same again. Where a round isn't above zero there is no logarithm,
and the values themselves are taken, with b · m for b. Rounds that are all the same are a count: no noise is put there.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final, TypeAlias

Bounds: TypeAlias = tuple[float, float]
"""The lower and the upper bound of something measured."""

BETWEEN_RUNS: Final = 0.02
"""The standard deviation, as a part of the median, by which runs differ beyond what their rounds show.

With it 94 % of 428 medians lay in the bounds of another run, without it 84 %: of two runs of all suites, four of `list`
and three of `import`, each held against each other of its kind. Their rounds are the steadiest, their files are not.
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
    median = statistics.median(rounds)
    if min(rounds) > 0:
        half = _half(EXPECTED, [[math.log(value) for value in rounds]] * 2, len(rounds) - 1, BETWEEN_RUNS)
        return median * math.exp(-half), median * math.exp(half)
    half = _half(EXPECTED, [rounds] * 2, len(rounds) - 1, BETWEEN_RUNS * abs(median))
    return median - half, median + half


def change_bounds(before: Sequence[float], after: Sequence[float]) -> Bounds:
    """Give between which bounds the change from one median to another lies with 99 % confidence; 0.1 is 10 % more.

    Of two rounds each at least, which are all above zero.
    """
    change = statistics.median(after) / statistics.median(before)
    if min(before) == max(before) and min(after) == max(after):
        return change - 1, change - 1
    logarithms = [[math.log(value) for value in rounds] for rounds in (before, after)]
    half = _half(SURE, logarithms, len(before) + len(after) - 2, BETWEEN_RUNS)
    return change * math.exp(-half) - 1, change * math.exp(half) - 1


def _half(confidence: float, runs: Sequence[Sequence[float]], freedom: int, between: float) -> float:
    """Give half the distance of the bounds between which two runs' medians differ, of equal variance in both."""
    within = sum((len(rounds) - 1) * statistics.variance(rounds) for rounds in runs)
    variance = within / sum(len(rounds) - 1 for rounds in runs)
    error = math.sqrt(math.pi / 2 * variance * sum(1 / len(rounds) for rounds in runs))
    return math.hypot(student_t(confidence, freedom) * error, _NORMAL_Z[confidence] * math.sqrt(2) * between)
