"""Usage that several records of one answer report, each of them all of it so far, counted once."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from .prints import Prints

Json = dict[str, Any]

_ANSWERS_KEPT = 1024


class UsageCount:
    """What has been counted of each answer's usage; counters only grow, so the greatest figure is the final one.

    The figures of the last 1,024 answers are kept. An older one that turns up again is a repetition, and counted.
    """

    def __init__(self) -> None:
        self._answers = Prints()
        self._figures: OrderedDict[str, Json] = OrderedDict()

    def uncounted(self, answer: str, usage: Any) -> Json | None:
        """Return what `usage` counts beyond what was counted for the answer: all of it the first time."""
        if not isinstance(usage, dict):
            return None
        if answer in self._figures:
            self._figures.move_to_end(answer)
            return _growth(usage, self._figures[answer])
        if not self._answers.add(hash(answer)):
            return None
        self._figures[answer] = {}
        if len(self._figures) > _ANSWERS_KEPT:
            self._figures.popitem(last=False)
        _growth(usage, self._figures[answer])
        return usage


def _growth(usage: Json, counted: Json) -> Json:
    """Return by how much the counters of `usage` exceed those `counted`, which are raised to them."""
    growth: Json = {}
    for name, value in usage.items():
        if isinstance(value, dict):
            inner = counted.setdefault(name, {})
            grown: Any = _growth(value, inner) if isinstance(inner, dict) else None
        elif isinstance(value, int | float) and not isinstance(value, bool):
            before = counted.get(name, 0)
            if not isinstance(before, int | float) or value <= before:
                continue
            counted[name] = value
            grown = value - before
        else:
            continue
        if grown:
            growth[name] = grown
    return growth
