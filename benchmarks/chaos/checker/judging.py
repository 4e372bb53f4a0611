"""The judgement of a round: every promise, held against all that is known of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from . import followers, leftovers, lineage, messages, numbering, sending, tasks, turns
from .evidence import Evidence
from .sending import has_to_be_there
from .surroundings import with_surroundings
from .violations import Violation

SHOWN_MAX: Final = 10
"""Violations of one promise that are described; all are counted."""

Promise = Callable[[Evidence], Iterator[Violation]]

PROMISES: Final[tuple[Promise, ...]] = (
    numbering.frame_is_whole,
    numbering.numbers_have_no_hole,
    numbering.epochs_only_grow,
    numbering.one_owner_at_a_time,
    sending.acknowledged_is_found,
    sending.found_is_a_prefix_of_sent,
    sending.refused_is_not_stored,
    turns.turns_are_closed_once,
    turns.noted_turns_are_there,
    turns.rewinds_are_there,
    messages.delivered_is_in_the_inbox,
    messages.inboxes_hold_what_was_sent_once,
    messages.accepted_once,
    messages.acknowledged_acceptance_is_there,
    lineage.forks_equal_their_prefix,
    lineage.readings_equal_the_journal,
    lineage.deleted_is_gone,
    lineage.lists_are_exact,
    followers.followers_saw_the_journal,
    tasks.starts_are_one_task,
    tasks.tasks_end_once_and_right,
    tasks.tasks_run_once,
    tasks.outputs_are_whole,
    tasks.sessions_are_told_once,
    lambda evidence: leftovers.nothing_is_left(evidence.leftovers),
    lambda evidence: leftovers.processes_stay_small(evidence.notes.get("process", ())),
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was judged, and what is wrong: `violations` are the first of each promise, `counts` how many there are."""

    sessions: int
    events: int
    acknowledged: int
    found: int
    messages: int
    followed: int
    tasks: int
    violations: tuple[Violation, ...]
    counts: dict[str, int]

    @property
    def is_clean(self) -> bool:
        """Say whether every promise was kept."""
        return not self.counts

    def as_map(self) -> dict[str, Any]:
        """Give it as plain values."""
        names = ("sessions", "events", "acknowledged", "found", "messages", "followed", "tasks", "counts")
        figures = {name: getattr(self, name) for name in names}
        return {**figures, "violations": [violation.as_map() for violation in self.violations]}


def judge(evidence: Evidence) -> Judgement:
    """Hold every promise against what is known."""
    counts: Counter[str] = Counter()
    shown: list[Violation] = []
    for promise in PROMISES:
        broken = promise(evidence)
        described = [with_surroundings(violation, evidence) for violation in islice(broken, SHOWN_MAX)]
        shown += described
        counts.update(violation.promise for violation in (*described, *broken))
    acknowledged, found = _acknowledged(evidence)
    return Judgement(
        sessions=len(evidence.stored.sessions()),
        events=len(evidence.stored.events),
        acknowledged=acknowledged,
        found=found,
        messages=len(evidence.notes.get("delivered", ())),
        followed=sum(len(note["events"]) for note in evidence.notes.get("followed", ())),
        tasks=len({note["task"] for note in evidence.notes.get("started", ())}),
        violations=tuple(shown),
        counts=dict(counts),
    )


def _acknowledged(evidence: Evidence) -> tuple[int, int]:
    """Count what was acknowledged, and what of it is there."""
    acknowledged = found = 0
    for outcome in evidence.outcomes:
        opening = outcome.opening
        due = max((each.items for each in opening.acknowledgements), default=0)
        for item, seq in list(zip(opening.items, outcome.seqs, strict=True))[:due]:
            acknowledged += has_to_be_there(item, seq, opening, evidence.stored)
            found += seq is not None
    return acknowledged, found
