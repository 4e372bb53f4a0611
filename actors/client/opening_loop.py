"""The decisions of the opening loop: what to do after an attempt to reach a store's node has failed. Pure.

Attempts follow each other until one succeeds or the patience is over. While somebody holds the store's lock a node
starts, ends or is stuck, so only waiting helps; it is never stolen from. With the lock free, one who opens the store
starts a candidate at once. One who comes back to it, or has seen that others are about, first waits a random moment and
looks again: all clients of a node that died find the lock free in the same instant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

HELD_SECONDS = (0.005, 0.030)
"""Pause between two attempts while somebody holds the lock: from, to."""

RETURN_SECONDS = (0.0, 0.050)
"""Pause of one who comes back, before it takes the store for free: from, to."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so long and try again."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StartCandidate:
    """Nobody serves the store: start a process that may."""


@dataclass(frozen=True, slots=True)
class OutOfPatience:
    """Nobody has answered for too long."""


Step: TypeAlias = Pause | StartCandidate | OutOfPatience


class OpeningLoop:
    """One opening. `patience` in seconds; `clock` never steps back; `chance` gives from 0 to below 1."""

    def __init__(
        self, *, first: bool, patience: float, clock: Callable[[], float], chance: Callable[[], float]
    ) -> None:
        self._is_alone = first
        self._patience = patience
        self._clock = clock
        self._chance = chance
        self._was_free = False
        self._deadline = clock() + patience

    def hear(self) -> None:
        """Have patience anew: a node has said that it is opening the store."""
        self._deadline = self._clock() + self._patience

    def see_others(self) -> None:
        """Take note that somebody served the store a moment ago."""
        self._is_alone = False

    def remaining(self) -> float:
        """Return the seconds of patience that are left, at least 0."""
        return max(0.0, self._deadline - self._clock())

    def next_step(self, *, is_held: bool) -> Step:
        """Decide what to do after a failed attempt, with the lock just found held or free."""
        if self.remaining() == 0.0:
            return OutOfPatience()
        starts = not is_held and (self._is_alone or self._was_free)
        self._was_free = not is_held and not starts
        self._is_alone = False
        if starts:
            return StartCandidate()
        return Pause(self._between(*(HELD_SECONDS if is_held else RETURN_SECONDS)))

    def _between(self, least: float, most: float) -> float:
        return least + (most - least) * self._chance()
