"""How a round came out: what the checker says of it, what its runner has seen, and what was struck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .checker.evidence import read_evidence
from .checker.judging import judge
from .checker.leftovers import look_for_leftovers
from .checker.losses import CopyReading, Loss, copy_is_same_or_reported
from .course import Course, course_of
from .notes import read_notebooks
from .recovering import recoveries
from .report import FIGURES
from .stage import Stage


@dataclass(frozen=True, slots=True)
class Copied:
    """A damaged copy: what it may have lost, and what programs say of it."""

    name: str
    loss: Loss
    reading: CopyReading


COMPLAINTS = "programs end as they should"
"""The promise that is broken by what the runner itself has seen."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A round's outcome: its course, what was counted in it, and how often each promise was broken.

    `violations` are plain values, each with what promise was broken, whose, and how.
    """

    course: Course
    figures: Mapping[str, int]
    broken: Mapping[str, int]
    violations: Sequence[Mapping[str, Any]]


def judge_round(stage: Stage, copies: Sequence[Copied], patience: float) -> Outcome:
    """Judge what was played on a stage, when nobody should be left there, or be gone in `patience` seconds."""
    leftovers = look_for_leftovers(stage.store, stage.mark, patience=patience)
    notes = read_notebooks(stage.notes.iterdir())
    course = course_of(notes, recoveries(notes))
    evidence = read_evidence(stage.store, stage.notes.iterdir(), stage.bench / "witnesses", leftovers)
    judgement = judge(evidence)
    broken = Counter(judgement.counts)
    violations = [violation.as_map() for violation in judgement.violations]
    for copy in copies:
        for violation in copy_is_same_or_reported(evidence.stored, copy.loss, copy.reading):
            broken[violation.promise] += 1
            violations.append({**violation.as_map(), "subject": f"{copy.name}, {violation.subject}"})
    for complaint in stage.complaints:
        broken[COMPLAINTS] += 1
        violations.append({"promise": COMPLAINTS, "subject": stage.place.name, "says": complaint, "seq": None})
    figures = {name: getattr(judgement, name) for name in FIGURES}
    return Outcome(course, figures, broken, violations)
