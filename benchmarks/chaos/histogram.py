"""Times in classes, each about twice as long as the one before, to be drawn as bars."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

EDGES_MS: Final = (0, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
"""Where classes begin. What is longer than the last one is in it, too."""


class TimeClass(NamedTuple):
    """How many times are `from_ms` or longer, and shorter than `below_ms` (None: however long)."""

    from_ms: int
    below_ms: int | None
    times: int

    @property
    def label(self) -> str:
        """Name it for people."""
        if self.below_ms is None:
            return f"from {_text(self.from_ms)}"
        return f"{_text(self.from_ms)} - {_text(self.below_ms)}" if self.from_ms else f"below {_text(self.below_ms)}"


def histogram(seconds: Iterable[float]) -> list[TimeClass]:
    """Sort times into their classes, from the first to the last class that has any; give none for no times."""
    counts = Counter(bisect_right(EDGES_MS, each * 1000) - 1 for each in seconds)
    belows = (*EDGES_MS[1:], None)
    places = range(min(counts), max(counts) + 1) if counts else ()
    return [TimeClass(EDGES_MS[place], belows[place], counts[place]) for place in places]


def _text(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds // 1000} s"
