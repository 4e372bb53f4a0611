"""Decide whether what died is started again, and after how long: OTP's restart intensity, with a growing delay.

Pure: time and chance come from the caller, who also does the waiting and the starting. The intensity bounds restarts
within a period; the delay grows with each restart in a row and begins anew once a child stayed up for a whole period.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often, and how fast, a child may be started again. Times are in seconds.

    Exactly `intensity` restarts within `period_seconds` are survived, one more is not; 0 means never. The n-th restart
    in a row waits for `backoff_first` times two to the n, at most `backoff_max`, less a random share of up to `jitter`
    (0 to 1), so that many that died together do not come back together. Mind the delays: where the third one is longer
    than the period, no four restarts ever fall within it, and an intensity of 5 restarts for ever.
    """

    intensity: int = 5
    period_seconds: float = 30.0
    backoff_first: float = 0.05
    backoff_max: float = 5.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if self.intensity < 0 or self.period_seconds <= 0:
            raise ValueError("a restart policy needs an intensity from 0 on and a period")
        if not 0 <= self.backoff_first <= self.backoff_max or not 0 <= self.jitter <= 1:
            raise ValueError("a restart policy needs 0 <= backoff_first <= backoff_max and 0 <= jitter <= 1")


@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again, after `delay` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Don't start it again; `reason` says in one line how often it was tried."""

    reason: str


Decision: TypeAlias = Restart | GiveUp


@dataclass(frozen=True, slots=True)
class RestartWindow:
    """The restarts that count against the intensity: those within the last period, by their times."""

    times: tuple[float, ...] = ()

    def admit(self, policy: RestartPolicy, now: float) -> RestartWindow | GiveUp:
        """Count a restart at `now`, seconds on a clock that never steps back; or say that there can't be one."""
        times = tuple(time for time in self.times if now - time <= policy.period_seconds)
        if len(times) >= policy.intensity:
            restarts = f"{policy.intensity} restart{'s' * (policy.intensity != 1)}"
            return GiveUp(f"it ended again after {restarts} within {policy.period_seconds:g} s")
        return RestartWindow((*times, now))


@dataclass(frozen=True, slots=True)
class Backoff:
    """The restarts of one child in a row, and since when it is up; None if it hasn't come up since the last one."""

    in_a_row: int = 0
    up_since: float | None = None

    def after_death(self, policy: RestartPolicy, now: float, chance: float) -> tuple[float, Backoff]:
        """Give the seconds to wait before it is started again; `chance` is from 0 to below 1."""
        stayed_up = self.up_since is not None and now - self.up_since >= policy.period_seconds
        in_a_row = 0 if stayed_up else self.in_a_row
        # The exponent is bounded too: a float has no two to the thousandth.
        delay = min(policy.backoff_max, policy.backoff_first * 2.0 ** min(in_a_row, 64))
        return delay * (1 - policy.jitter * chance), Backoff(in_a_row + 1)

    def came_up(self, now: float) -> Backoff:
        """Take note that it is up from `now` on."""
        return Backoff(self.in_a_row, now)


class RestartHistory:
    """The restarts of one child that is kept by itself; asked once for each of its deaths."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._window = RestartWindow()
        self._backoff = Backoff()

    def decide(self, now: float, chance: Callable[[], float] = random.random) -> Decision:
        """Decide about a death at `now`, seconds on a clock that never steps back; `chance` gives from 0 to below 1."""
        window = self._window.admit(self._policy, now)
        if isinstance(window, GiveUp):
            return window
        self._window = window
        delay, backoff = self._backoff.after_death(self._policy, now, chance())
        self._backoff = backoff.came_up(now + delay)
        return Restart(delay)
