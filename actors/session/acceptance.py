"""What a session has accepted of its inbox, and how often others may wake it. Pure.

Which messages are accepted is a number and some ranges above it, kept in the session's summary and changed by the same
record that accepts: so an opening knows it without reading the log, and a record is never there without its mark.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..folding import count_or_none

ACCEPTED: Final = "inbox"
"""Summary key: {"next": the first message that isn't accepted, "ahead": [[first, last], …] of those accepted above}."""

AHEAD_RANGES_MAX: Final = 24
"""Ranges of messages accepted out of order that are kept at most: with the longest numbers they take 1 KiB."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The messages that were accepted: all below `next`, and those of the ranges `ahead`, both ends included."""

    next: int = 0
    ahead: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_summary(cls, summary: Mapping[str, Any]) -> Accepted:
        """Read what a session's summary says; nothing is accepted where it says nothing that can be read."""
        found = summary.get(ACCEPTED)
        following = count_or_none(found.get("next")) if isinstance(found, Mapping) else None
        if found is None or following is None:
            return cls()
        try:
            return cls(following, tuple((int(first), int(last)) for first, last in found["ahead"]))
        except (KeyError, TypeError, ValueError):
            return cls(following)

    def __contains__(self, seq: int) -> bool:
        if seq < self.next:
            return True
        place = bisect_right(self.ahead, seq, key=lambda each: each[0])
        return place > 0 and seq <= self.ahead[place - 1][1]

    def plus(self, *more: tuple[int, int]) -> Accepted:
        """Give what is accepted when messages of more ranges are."""
        ranges: list[tuple[int, int]] = []
        for first, last in sorted([*self.ahead, *more]):
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
            else:
                ranges.append((first, last))
        following = self.next
        while ranges and ranges[0][0] <= following:
            following = max(following, ranges.pop(0)[1] + 1)
        return Accepted(following, tuple(ranges))

    @property
    def is_kept(self) -> bool:
        """Say whether these are few enough ranges for a summary."""
        return len(self.ahead) <= AHEAD_RANGES_MAX

    def as_patch(self) -> dict[str, Any]:
        """Give the change of the summary that says so."""
        return {ACCEPTED: {"next": self.next, "ahead": [list(each) for each in self.ahead]}}


_AGENT = re.compile(r"task-[a-z0-9-]+|[a-z]+-[a-z]+-[0-9a-f]{4}")


def is_agent(sender: str | None) -> bool:
    """Say whether a sender is a session or a task, told by the form of its name: what isn't may wake anybody."""
    return sender is not None and _AGENT.fullmatch(sender) is not None


class WakeBudget:
    """How many times in a row sessions and tasks may wake an owner who has nothing left to do; None: any number.

    What others send is never held back, and after it the count begins anew.
    """

    def __init__(self, wakes_max: int | None) -> None:
        if wakes_max is not None and (wakes_max.__class__ is not int or wakes_max < 0):
            raise ValueError(f"wakes_max is a number of wakes from 0 on, or None for any number, not {wakes_max!r}")
        self._wakes_max = wakes_max
        self._wakes = 0

    def admit(self, senders: Iterable[str | None]) -> bool:
        """Take note of messages that came when all before them were given out; say whether they may wake the owner."""
        if not self.note(senders):
            return True
        if self._wakes_max is not None and self._wakes >= self._wakes_max:
            return False
        self._wakes += 1
        return True

    def note(self, senders: Iterable[str | None]) -> bool:
        """Take note of messages that wake nobody; say whether all of them are by sessions and tasks."""
        are_all = all(map(is_agent, senders))
        if not are_all:
            self._wakes = 0
        return are_all
