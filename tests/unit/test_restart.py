"""Contract of restarting: how many deaths are survived, how the delay grows, jitters and begins anew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.runtime.restart import GiveUp, Restart, RestartHistory, RestartPolicy


def never() -> float:
    """The chance that leaves a delay whole."""
    return 0.0


def delay_of(history: RestartHistory, now: float) -> float:
    """Let the child die at this time; it has to be restarted."""
    decision = history.decide(now, never)
    assert isinstance(decision, Restart)
    return decision.delay


@given(st.integers(0, 20), st.floats(0.1, 1e6), st.floats(0, 1e9))
def test_exactly_n_restarts_within_the_period_survive(intensity: int, period: float, start: float) -> None:
    """Intensity deaths at one moment are survived, one more is not, whatever the moment."""
    history = RestartHistory(RestartPolicy(intensity=intensity, period_seconds=period))
    decisions = [history.decide(start) for _ in range(intensity + 1)]
    assert [type(decision) for decision in decisions] == [Restart] * intensity + [GiveUp]


def test_giving_up_says_how_often_it_was_tried() -> None:
    """The reason is one line for people."""
    assert RestartHistory(RestartPolicy(intensity=0)).decide(1.0) == GiveUp(
        "it ended again after 0 restarts within 30 s"
    )
    history = RestartHistory(RestartPolicy(intensity=1, period_seconds=0.5))
    history.decide(1.0)
    assert history.decide(1.5) == GiveUp("it ended again after 1 restart within 0.5 s")


def test_a_restart_counts_for_its_period_and_no_longer() -> None:
    """A death exactly one period after a restart still counts it; any later death does not."""
    policy = RestartPolicy(intensity=2, period_seconds=10)
    late = RestartHistory(policy)
    assert [type(late.decide(now)) for now in (0.0, 5.0, 10.001, 15.002, 20.003)] == [Restart] * 5
    early = RestartHistory(policy)
    assert [type(early.decide(now)) for now in (0.0, 5.0, 10.0)] == [Restart, Restart, GiveUp]


def test_the_delay_doubles_up_to_its_bound() -> None:
    """Deaths in a row wait longer and longer, never longer than the bound."""
    history = RestartHistory(RestartPolicy(intensity=2000, backoff_first=0.1, backoff_max=1.0))
    assert [delay_of(history, now) for now in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert {delay_of(history, 6) for _ in range(1500)} == {1.0}


def test_the_delay_begins_anew_after_a_whole_period_up() -> None:
    """A child counts as having stayed up from its start, which the delay put off, not from the death before."""
    policy = RestartPolicy(intensity=100, period_seconds=10, backoff_first=1, backoff_max=64)
    steady = RestartHistory(policy)
    assert [delay_of(steady, now) for now in (0.0, 1.0, 3.0 + 10.0)] == [1, 2, 1]
    shaky = RestartHistory(policy)
    assert [delay_of(shaky, now) for now in (0.0, 1.0, 3.0 + 9.999)] == [1, 2, 4]


@given(st.floats(0, 1, exclude_max=True), st.floats(0, 1))
def test_jitter_takes_at_most_its_share(chance: float, jitter: float) -> None:
    """A delay is shortened by a random share, up to the jitter, and never lengthened."""
    history = RestartHistory(RestartPolicy(backoff_first=2, backoff_max=2, jitter=jitter))
    decision = history.decide(0, lambda: chance)
    assert isinstance(decision, Restart)
    assert 2 * (1 - jitter) - 1e-9 <= decision.delay <= 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"intensity": -1},
        {"period_seconds": 0},
        {"backoff_first": 2, "backoff_max": 1},
        {"backoff_first": -1},
        {"jitter": 1.5},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    """Mistakes show where the policy is written, not at the first death."""
    with pytest.raises(ValueError, match="a restart policy needs"):
        RestartPolicy(**wrong)
