"""Unit: what is accepted of an inbox, as a summary keeps it, and how often others may wake its owner."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.actors.ids import new_session_id
from turnkeeper.actors.session.acceptance import AHEAD_RANGES_MAX, Accepted, WakeBudget, is_agent
from turnkeeper.storage.format import encode_patch

SESSION, TASK, PERSON = "brave-otter-7f3a", "task-quiet-owl-0c1d", "alice"

ranges = st.tuples(st.integers(0, 30), st.integers(0, 5)).map(lambda each: (each[0], each[0] + each[1]))


@given(st.lists(st.lists(ranges, min_size=1, max_size=3), max_size=12))
def test_accepted_messages_are_a_set_that_a_summary_keeps(steps: list[list[tuple[int, int]]]) -> None:
    """In whatever order they come: exactly those are in it, also when it is read back, and `next` is the first gap."""
    accepted, model = Accepted(), set[int]()
    for step in steps:
        accepted = accepted.plus(*step)
        model.update(seq for first, last in step for seq in range(first, last + 1))
    assert {seq for seq in range(50) if seq in accepted} == model
    assert accepted.next == min(set(range(50)) - model)
    assert Accepted.from_summary(accepted.as_patch()) == accepted


def test_as_many_ranges_as_are_kept_fit_beside_whatever_else_a_patch_holds() -> None:
    """With the longest numbers there can be, it is 1 KiB; one range more isn't kept."""
    first = 10**12
    accepted = Accepted().plus(*((first + 2 * place, first + 2 * place) for place in range(AHEAD_RANGES_MAX)))
    assert accepted.is_kept
    assert len(encode_patch(accepted.as_patch())) <= 1024
    assert not accepted.plus((1, 1)).is_kept
    assert accepted.plus((0, first)).is_kept


@pytest.mark.parametrize(
    "found", [None, 3, "x", [], {}, {"next": "3"}, {"next": -1}, {"next": True}, {"ahead": [[1, 2]]}], ids=repr
)
def test_a_summary_that_says_nothing_readable_means_that_nothing_is_accepted(found: Any) -> None:
    """Then messages come again, which is what an inbox promises; none is lost."""
    assert Accepted.from_summary({"inbox": found}) == Accepted()


@pytest.mark.parametrize("ahead", [None, 3, [3], [["x", "y"]], [[1, 2, 3]]], ids=repr)
def test_ranges_that_cant_be_read_cost_only_themselves(ahead: Any) -> None:
    """What is below the first gap stays accepted."""
    assert Accepted.from_summary({"inbox": {"next": 3, "ahead": ahead}}) == Accepted(3)


def test_sessions_and_tasks_are_told_by_the_form_of_their_names() -> None:
    """Whatever else sends is somebody whom no budget holds back."""
    assert all(map(is_agent, [SESSION, TASK, *(new_session_id() for _ in range(200))]))
    assert not any(map(is_agent, [None, PERSON, "", "task-", "ci job 17", "brave-otter", "brave-otter-7f3g"]))


def test_a_budget_holds_back_the_wake_after_the_last_that_is_allowed() -> None:
    """By sessions and tasks in any mixture; somebody else's message is let through, and the count begins anew."""
    budget = WakeBudget(2)
    assert [budget.admit(senders) for senders in ([SESSION], [TASK, SESSION], [SESSION], [TASK])] == [
        *(True, True),
        *(False, False),
    ]
    assert budget.admit([SESSION, PERSON])
    assert [budget.admit([SESSION]) for _ in range(3)] == [True, True, False]
    assert budget.admit([None])


def test_messages_that_wake_nobody_cost_nothing_and_may_begin_the_count_anew() -> None:
    """Such as those that were there before."""
    budget = WakeBudget(1)
    assert budget.admit([SESSION])
    budget.note([SESSION, TASK])
    assert not budget.admit([SESSION])
    budget.note([TASK, None])
    assert budget.admit([SESSION])


def test_no_budget_is_no_limit_and_none_at_all_lets_only_others_wake() -> None:
    """The default, and the strictest."""
    assert all(WakeBudget(None).admit([SESSION]) for _ in range(1000))
    assert not WakeBudget(0).admit([SESSION])
    assert WakeBudget(0).admit([None])


@pytest.mark.parametrize("wakes_max", [-1, 1.5, True, "3"], ids=repr)
def test_a_budget_is_a_number_from_0_on(wakes_max: Any) -> None:
    """Anything else is refused where it is given."""
    with pytest.raises(ValueError, match="wakes_max is a number of wakes from 0 on"):
        WakeBudget(wakes_max)
