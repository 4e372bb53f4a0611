"""What is to be done when, in one thread: things that are planned, and things that follow from them."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable

from ..measuring.interrupts import Interrupts

Deed = Callable[[], None]


class Timeline:
    """Deeds in the order of their moments, in seconds from its making; of the same moment, as they were added."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._began = time.monotonic()
        self._deeds: list[tuple[float, int, Deed]] = []
        self._numbers = itertools.count()

    @property
    def now(self) -> float:
        """The seconds since it was made."""
        return time.monotonic() - self._began

    def at(self, seconds: float, deed: Deed) -> None:
        """Do something at a moment, at once if that is over."""
        heapq.heappush(self._deeds, (seconds, next(self._numbers), deed))

    def run(self, seconds: float) -> None:
        """Do all that comes until a moment, and wait for that moment. What comes later is forgotten then."""
        while self._deeds and self._deeds[0][0] <= seconds:
            at, _, deed = heapq.heappop(self._deeds)
            self._interrupts.pause(max(0.0, at - self.now))
            deed()
        self._interrupts.pause(max(0.0, seconds - self.now))
        self._deeds.clear()
