"""Whether a series of measurements rises: its slope by least squares, and between which bounds that is known.

Neighbouring measurements of memory are alike, so each says little that the one before didn't. The series is therefore
cut into blocks of equal length whose means are taken for independent, and the bounds are those of a line through these:
the slope plus and minus Student's t for 95 % times its standard error.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from .bounds import EXPECTED, student_t

BLOCKS = 20


class Trend(NamedTuple):
    """A slope, and the bounds between which it lies with 95 % confidence, in units of y for one of x."""

    slope: float
    low: float
    high: float

    @property
    def direction(self) -> str:
        """Say whether the series rises, falls, or can't be told from one that does neither."""
        return "rises" if self.low > 0 else "falls" if self.high < 0 else "none to be told"


def trend(points: Sequence[tuple[float, float]]) -> Trend:
    """Give the trend of points (x, y) in the order of x. Raises ValueError for fewer than `BLOCKS` points."""
    if len(points) < BLOCKS:
        raise ValueError(f"{len(points)} points are too few for a trend; {BLOCKS} are needed")
    ends = [len(points) * number // BLOCKS for number in range(BLOCKS + 1)]
    blocks = [points[begin:end] for begin, end in pairwise(ends)]
    xs = [statistics.fmean(x for x, _ in block) for block in blocks]
    ys = [statistics.fmean(y for _, y in block) for block in blocks]
    line = statistics.linear_regression(xs, ys)
    spread = sum((x - statistics.fmean(xs)) ** 2 for x in xs)
    rest = sum((y - line.intercept - line.slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    error = student_t(EXPECTED, BLOCKS - 2) * math.sqrt(rest / (BLOCKS - 2) / spread)
    return Trend(line.slope, line.slope - error, line.slope + error)
