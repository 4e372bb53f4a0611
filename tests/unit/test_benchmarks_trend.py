"""Contract of trends: a slope is told where there is one, and not where there is none."""

from __future__ import annotations

import random

import pytest

from turnkeeper.benchmarks.measuring.trend import BLOCKS, trend


def test_a_line_has_its_own_slope() -> None:
    """Without noise the bounds lie on it."""
    found = trend([(x, 3 + 0.5 * x) for x in range(100)])
    assert found == pytest.approx((0.5, 0.5, 0.5))
    assert found.direction == "rises"
    assert trend([(x, 3 - 0.5 * x) for x in range(100)]).direction == "falls"


def test_what_stays_the_same_has_none() -> None:
    """Exactly none, with bounds of zero."""
    assert trend([(x, 7.0) for x in range(100)]) == (0, 0, 0)
    assert trend([(x, 7.0) for x in range(100)]).direction == "none to be told"


def test_the_bounds_hold_what_they_promise() -> None:
    """Of noise whose neighbours are alike, about one series in twenty looks as if it had a slope, and not most."""
    chance = random.Random(7)
    wrong = 0
    for _ in range(200):
        level, points = 0.0, []
        for x in range(600):
            level = 0.8 * level + chance.gauss(0, 1)
            points.append((float(x), level))
        wrong += trend(points).direction != "none to be told"
    assert wrong < 30


def test_a_slope_beneath_noise_is_found() -> None:
    """Growth of a tenth of the noise a step is told from none over a long series."""
    chance = random.Random(7)
    found = trend([(x, 0.1 * x + chance.gauss(0, 1)) for x in range(600)])
    assert found.low < 0.1 < found.high
    assert found.direction == "rises"


def test_too_few_points_are_refused() -> None:
    """No slope is made up."""
    with pytest.raises(ValueError, match="too few"):
        trend([(x, 1.0) for x in range(BLOCKS - 1)])
