"""Property tests of the append protocol's model: its rules suffice, and none of them can be left out."""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .append_protocol.steps import successors
from .append_protocol.walking import explore, replay, violation
from .append_protocol.worlds import PLANS, Budget, FailedIndexTransaction, Invariant, Rules, World, first_world

TRACE_STEPS_MAX: Final = 19
"""No rule needs a longer story than this to be missed."""

WHOLE: Final = (
    Budget(kills=1, takeovers=1, lost_connections=1),
    Budget(kills=2, torn_writes=1, takeovers=1),
    Budget(kills=1, lost_indexes=1, takeovers=2),
    Budget(stops=1, takeovers=1),
    Budget(stops=2, kills=1),
    Budget(failed_syncs=1, failed_index_transactions=1, lost_indexes=1, takeovers=1),
    Budget(failed_syncs=2, kills=1, lost_connections=1),
    Budget(full_disks=1, takeovers=1, lost_connections=1),
    Budget(killed_hosts=1, takeovers=2),
)
"""Budgets whose worlds are few enough to visit all of them, up to 50,000 each."""

EVERYTHING_ONCE: Final = Budget(*(1 for _ in Budget._fields))
LARGE: Final = (
    Budget(kills=2, stops=1, torn_writes=1, takeovers=2),
    Budget(kills=1, failed_syncs=1, failed_index_transactions=1, lost_indexes=1, full_disks=1, takeovers=1),
    EVERYTHING_ONCE._replace(takeovers=2),
    Budget(kills=1, torn_writes=1, takeovers=2, lost_connections=1),
    Budget(kills=1, stops=1, lost_connections=2),
    Budget(full_disks=1, takeovers=2, lost_connections=2),
    Budget(kills=1, takeovers=2, killed_hosts=2),
)
"""Budgets for the long form, which visits up to ``LARGE_WORLDS_MAX`` worlds of each."""
BOUNDED_WORLDS_MAX: Final = 40_000
LARGE_WORLDS_MAX: Final = 400_000

WALK_STEPS_MAX: Final = 150
WALK_BUDGET: Final = Budget(*(2 for _ in Budget._fields))._replace(takeovers=4)
WALKS_MAX: Final = 500
"""How many random walks may pass by a missing rule before they count as blind to it."""


class Case(NamedTuple):
    """A rule left out, the accidents that it takes to miss it, and what then breaks first, some invariants ignored."""

    rules: Rules
    budget: Budget
    broken: Invariant
    ignored: frozenset[Invariant] = frozenset()

    @property
    def left_out(self) -> set[tuple[str, object]]:
        """What these rules have otherwise than all rules together."""
        mine, all_rules = asdict(self.rules), asdict(Rules())
        return {(rule, value) for rule, value in mine.items() if value != all_rules[rule]}

    def __str__(self) -> str:
        names = (rule if value is False else f"{rule}={value}" for rule, value in self.left_out)
        return f"{'-'.join(names)}-{self.broken.name}"


BEHIND_DAMAGE: Final = frozenset({Invariant.NO_FALSE_DAMAGE})
BEHIND_CONFUSION: Final = frozenset(
    {Invariant.ACKNOWLEDGED_IS_READABLE, Invariant.REFUSED_IS_NOT_STORED, Invariant.REFUSED_FOR_A_REASON}
)
"""What breaks sooner than durability where several things do: ignored, the story goes on to the loss itself."""

CASES: Final = (
    Case(Rules(lock=False), Budget(stops=1), Invariant.ACKNOWLEDGED_IS_READABLE),
    Case(Rules(lock=False), Budget(stops=1), Invariant.ACKNOWLEDGED_IS_DURABLE, BEHIND_CONFUSION),
    Case(Rules(hung_writer_is_killed=False), Budget(stops=1), Invariant.NEVER_STUCK),
    Case(Rules(torn_tail_is_cut=False), Budget(torn_writes=1), Invariant.NO_FALSE_DAMAGE),
    Case(Rules(torn_tail_is_cut=False), Budget(torn_writes=1), Invariant.ACKNOWLEDGED_IS_DURABLE, BEHIND_DAMAGE),
    Case(Rules(rewrite_on_open=False), Budget(failed_syncs=1), Invariant.NO_FALSE_DAMAGE),
    Case(Rules(rewrite_on_open=False), Budget(failed_syncs=1), Invariant.ACKNOWLEDGED_IS_DURABLE, BEHIND_DAMAGE),
    Case(Rules(sync_on_open=False), Budget(kills=1), Invariant.NO_FALSE_DAMAGE),
    Case(Rules(sync_on_open=False), Budget(kills=1), Invariant.ACKNOWLEDGED_IS_DURABLE, BEHIND_DAMAGE),
    Case(Rules(fencing=False), Budget(takeovers=1), Invariant.FENCED_STAYS_OUT),
    Case(Rules(durable_grants=False), Budget(kills=1, lost_indexes=1, takeovers=1), Invariant.FENCED_STAYS_OUT),
    Case(Rules(recognition=False), Budget(lost_connections=1), Invariant.REFUSED_IS_NOT_STORED),
    Case(Rules(recognition_before_fencing=False), Budget(kills=1, takeovers=1), Invariant.REFUSED_IS_NOT_STORED),
    Case(Rules(recognition_compares_epochs=False), Budget(takeovers=2), Invariant.ACKNOWLEDGED_TO_ITS_EPOCH),
    Case(Rules(refusals_say_what_is_stored=False), Budget(kills=1, takeovers=1), Invariant.REFUSED_IS_NOT_STORED),
    Case(Rules(full_disk_leaves_heads=False), Budget(full_disks=1), Invariant.REFUSED_FOR_A_REASON),
    Case(Rules(full_disk_judges_again=False), Budget(full_disks=1, takeovers=1), Invariant.REFUSED_FOR_A_REASON),
    Case(
        Rules(failed_index_transaction=FailedIndexTransaction.ANSWERED_AS_FULL),
        Budget(failed_index_transactions=1),
        Invariant.REFUSED_IS_NOT_STORED,
    ),
    Case(
        Rules(failed_index_transaction=FailedIndexTransaction.GOES_ON),
        Budget(failed_index_transactions=1),
        Invariant.EXACTLY_ONCE_IN_ORDER,
    ),
    Case(Rules(failed_sync_ends_the_writer=False), Budget(failed_syncs=1), Invariant.ACKNOWLEDGED_IS_DURABLE),
    Case(Rules(sync_before_answers=False), Budget(), Invariant.ACKNOWLEDGED_IS_DURABLE),
    Case(Rules(index_before_answers=False), Budget(), Invariant.ACKNOWLEDGED_IS_READABLE),
    Case(Rules(deterministic_closings=False), Budget(killed_hosts=1, takeovers=1), Invariant.CLOSED_AS_SHOWN),
    Case(Rules(closings_follow_the_grant=False), Budget(takeovers=2), Invariant.TURN_CLOSED_ONCE),
)


def budget_name(budget: Budget) -> str:
    """Name a budget by what is in it."""
    return "-".join(f"{count}_{what}" for what, count in budget._asdict().items() if count)


def spent(worlds: dict[World, tuple[World, str] | None], budget: Budget) -> dict[str, int]:
    """Return how much of each part of the budget was spent in the world that spent most of it."""
    left = [min(counts) for counts in zip(*(world.budget for world in worlds), strict=True)]
    return {what: had - has for what, had, has in zip(Budget._fields, budget, left, strict=True)}


@pytest.mark.parametrize("budget", WHOLE, ids=budget_name)
def test_with_all_rules_no_world_breaks_an_invariant(budget: Budget) -> None:
    """Every world that these accidents can lead to is visited, each accident happens, and no invariant breaks."""
    exploration = explore(first_world(budget), Rules(), worlds_max=100_000)
    assert exploration.counter_example is None, str(exploration.counter_example)
    assert exploration.complete
    assert spent(exploration.worlds, budget) == budget._asdict()


def test_with_all_rules_and_everything_going_wrong_no_near_world_breaks_an_invariant() -> None:
    """With each accident once, the nearest worlds break nothing, and each accident is among them."""
    exploration = explore(first_world(EVERYTHING_ONCE), Rules(), BOUNDED_WORLDS_MAX)
    assert exploration.counter_example is None, str(exploration.counter_example)
    assert spent(exploration.worlds, EVERYTHING_ONCE) == EVERYTHING_ONCE._asdict()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("budget", LARGE, ids=budget_name)
def test_with_all_rules_no_farther_world_breaks_an_invariant(budget: Budget) -> None:
    """Hundreds of thousands of worlds, with accidents in combination, break nothing."""
    exploration = explore(first_world(budget), Rules(), LARGE_WORLDS_MAX)
    assert exploration.counter_example is None, str(exploration.counter_example)
    assert exploration.complete or len(exploration.worlds) >= LARGE_WORLDS_MAX
    assert spent(exploration.worlds, budget) == budget._asdict()


def test_the_story_can_end_well() -> None:
    """Among the worlds are those in which every client's whole plan and the closing are acknowledged, after a kill."""
    budget = Budget(kills=1, takeovers=1)
    worlds = explore(first_world(budget), Rules(), worlds_max=100_000).worlds
    planned = {line for plan in PLANS for line in plan}
    acknowledged = [
        {line for _, line in world.acknowledged} for world in worlds if not any(world.budget) and not world.refused
    ]
    assert any(planned <= lines and any(line.startswith("closing") for line in lines) for lines in acknowledged)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_without_a_rule_a_short_story_breaks_an_invariant(case: Case) -> None:
    """Each rule is needed: left out alone, a shortest counter-example has fewer than twenty steps and can be replayed.

    Along it nothing is broken before the last world, and in that world just what was expected is.
    """
    first = first_world(case.budget)
    found = explore(first, case.rules, BOUNDED_WORLDS_MAX, case.ignored).counter_example
    assert found is not None, f"nothing breaks without {case.left_out}"
    assert found.invariant is case.broken, str(found)
    assert len(found.trace) <= TRACE_STEPS_MAX, str(found)
    *before, last = replay(first, found.trace, case.rules)
    assert last == found.world, str(found)
    assert [violation(world, case.rules, case.ignored) for world in before] == [None] * len(found.trace), str(found)
    assert violation(last, case.rules, case.ignored) is case.broken, str(found)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_with_the_rule_back_the_same_accidents_break_nothing(case: Case) -> None:
    """It is the missing rule and not the accidents that broke the invariant."""
    exploration = explore(first_world(case.budget), Rules(), BOUNDED_WORLDS_MAX)
    assert exploration.counter_example is None, str(exploration.counter_example)
    assert exploration.complete


def test_without_the_lock_the_same_lines_written_again_may_tear_what_is_acknowledged() -> None:
    """A power cut while a writer that woke overwrites its successor's batch loses it, even though no line differs."""
    trace = (
        "client 0 sends a1 at 1 under epoch 1",
        "writer 0 is stopped when serving",
        "the node starts writer 1",
        "writer 1 opens behind batch 0",
        "writer 1 syncs what it found",
        "writer 1 indexes what it found and serves",
        "client 0 gives up on writer 0",
        "client 0 connects to writer 1",
        "client 0 sends a1 at 1 under epoch 1",
        "writer 1 writes batch 1 for 1 of 1 messages: epoch 1, a1",
        "writer 1 syncs",
        "writer 1 indexes",
        "writer 1 answers",
        "writer 0 is continued",
        "writer 0 writes batch 1 for 1 of 1 messages: epoch 1, a1",
    )
    rules = Rules(lock=False)
    *before, last = replay(first_world(Budget(stops=1)), trace, rules)
    assert [violation(world, rules) for world in before] == [None] * len(trace)
    assert violation(last, rules) is Invariant.ACKNOWLEDGED_IS_DURABLE


def test_each_rule_is_left_out_alone_in_some_case() -> None:
    """A rule that joins the model without a counter-example is noticed, and so is another wrong way to follow one."""
    switches: set[tuple[str, object]] = {(rule, False) for rule, value in asdict(Rules()).items() if value is True}
    wrong = set(FailedIndexTransaction) - {Rules().failed_index_transaction}
    switches |= {("failed_index_transaction", value) for value in wrong}
    assert {rule for rule, _ in switches} == set(asdict(Rules()))
    assert all(len(case.left_out) == 1 for case in CASES)
    assert set.union(*(case.left_out for case in CASES)) == switches


def test_each_invariant_is_broken_in_some_case() -> None:
    """An invariant that nothing can break would say nothing."""
    assert {case.broken for case in CASES} == set(Invariant)


class Walk(NamedTuple):
    """One path through the model: what happened, where it led, and what it broke."""

    trace: tuple[str, ...]
    world: World
    broken: Invariant | None


def walk(choices: bytes, rules: Rules) -> Walk:
    """Take one step a byte, which chooses among what can happen, until nothing can or an invariant breaks."""
    world = first_world(WALK_BUDGET)
    trace: list[str] = []
    broken = violation(world, rules)
    for choice in choices:
        steps = tuple(successors(world, rules))
        if broken is not None or not steps:
            break
        step = steps[choice % len(steps)]
        trace.append(step.label)
        world = step.world
        broken = violation(world, rules)
    return Walk(tuple(trace), world, broken)


@given(choices=st.binary(min_size=WALK_STEPS_MAX, max_size=WALK_STEPS_MAX))
@settings(max_examples=200, print_blob=True)
def test_random_walks_break_nothing_and_can_be_replayed(choices: bytes) -> None:
    """Long walks with every accident twice break no invariant, and their labels alone lead to the same world again."""
    walked = walk(choices, Rules())
    assert walked.broken is None, "\n".join((str(walked.broken), *walked.trace))
    *_, replayed = replay(first_world(WALK_BUDGET), walked.trace, Rules())
    assert replayed == walked.world


@given(choices=st.binary(min_size=WALK_STEPS_MAX, max_size=WALK_STEPS_MAX))
@settings(max_examples=50, print_blob=True)
def test_what_can_happen_in_a_world_has_different_labels(choices: bytes) -> None:
    """A label names one step of its world, so that a trace names one path."""
    for world in replay(first_world(WALK_BUDGET), walk(choices, Rules()).trace, Rules()):
        labels = [step.label for step in successors(world, Rules())]
        assert len(set(labels)) == len(labels), labels


@pytest.mark.parametrize("case", CASES, ids=str)
def test_random_walks_see_a_missing_rule(case: Case) -> None:
    """Walks of the same kind find each missing rule, so that finding nothing means something."""
    chances = (walk(random.Random(seed).randbytes(WALK_STEPS_MAX), case.rules) for seed in range(WALKS_MAX))
    assert any(walked.broken is not None for walked in chances)
