"""Any number of times in little memory: how many there are of about each length, and by that their percentiles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

STEP: Final = 1.02
"""Times that are no farther apart than by this factor may count as the same."""

SHORTEST_SECONDS: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Times:
    """Times by their lengths, as powers of `STEP` in seconds."""

    counts: Counter[int] = field(default_factory=Counter)

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Times:
        """Take all of these."""
        return cls(Counter(round(math.log(max(each, SHORTEST_SECONDS), STEP)) for each in seconds))

    def update(self, others: Times) -> None:
        """Take others, too."""
        self.counts.update(others.counts)

    def percentile(self, percent: float) -> float | None:
        """Give the length, to within 1 %, that so many of a hundred don't exceed, in seconds; None of no times."""
        left = self.counts.total() * percent / 100
        for power in sorted(self.counts):
            left -= self.counts[power]
            if left <= 0:
                return float(STEP**power)
        return None
