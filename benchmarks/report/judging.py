"""Whether marks are met: each is bound to the run that measures it, by the run's name and parameters.

A mark holds for stores and crowds of a size: a run of another size is shown and not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ..measuring.bounds import Bounds
from ..measuring.runs import Run

Verdict: TypeAlias = Literal["met", "missed", "another size", "not measured"]


@dataclass(frozen=True, slots=True)
class Mark:
    """`figure` of the run `name` is to be at most, or at least, so much.

    `params` are those of the run that is meant; `size` is how large it has to be at least to be judged. `bound` says
    what is judged: the median, or the lower one of its bounds for what has to be told from none.
    """

    work: str
    what: str
    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    figure: str = "ratio"
    at_most: float | None = None
    at_least: float | None = None
    size: Mapping[str, float] = field(default_factory=dict)
    bound: Literal["median", "low"] = "median"
    hindered: str = ""

    @property
    def words(self) -> str:
        """Say what is to be reached."""
        return f"≤ {self.at_most:,}" if self.at_most is not None else f"≥ {self.at_least:,}"

    def is_of(self, run: Run) -> bool:
        """Say whether this is the run that is meant, of whatever size."""
        return run.name == self.name and all(run.params.get(name) == value for name, value in self.params.items())

    def holds_for(self, run: Run) -> bool:
        """Say whether the run is large enough to be judged."""
        return all(run.params.get(name, 0) >= least for name, least in self.size.items())

    def is_met_by(self, value: float) -> bool:
        """Say whether this value reaches it."""
        return value <= self.at_most if self.at_most is not None else value >= (self.at_least or 0.0)


@dataclass(frozen=True, slots=True)
class Judged:
    """A mark beside what was measured: the value and its bounds, where there is a run."""

    mark: Mark
    verdict: Verdict
    value: float | None = None
    bounds: Bounds | None = None

    @property
    def words(self) -> str:
        """Say how it stands; also whether another run could stand otherwise."""
        if self.verdict == "another size":
            return "of another size"
        return self.verdict if self.is_sure else f"{self.verdict}, by the median"

    @property
    def is_sure(self) -> bool:
        """Say whether both bounds stand as the median does."""
        if self.bounds is None or self.mark.bound == "low" or self.verdict not in ("met", "missed"):
            return True
        return all(self.mark.is_met_by(value) == (self.verdict == "met") for value in self.bounds)

    @property
    def hindered(self) -> str:
        """Say what stands in the way, where it was missed."""
        return self.mark.hindered if self.verdict == "missed" else ""


def judge(runs: Iterable[Run], marks: Sequence[Mark]) -> list[Judged]:
    """Hold each mark against the run that it is bound to, and note it there."""
    runs = list(runs)
    for run in runs:
        run.marks = []
    return [_judge(mark, runs) for mark in marks]


def _judge(mark: Mark, runs: Sequence[Run]) -> Judged:
    found = [run for run in runs if mark.is_of(run) and _value(mark, run) is not None]
    if not found:
        return Judged(mark, "not measured")
    run = max(found, key=mark.holds_for)
    value, bounds = _value(mark, run), run.bounds.get(mark.figure)
    assert value is not None
    if not mark.holds_for(run):
        return Judged(mark, "another size", value, bounds)
    met = mark.is_met_by(bounds[0] if mark.bound == "low" and bounds else value)
    bound = {"at_most": mark.at_most} if mark.at_most is not None else {"at_least": mark.at_least}
    run.marks.append({"of": mark.figure, **bound, "met": met})
    return Judged(mark, "met" if met else "missed", value, bounds)


def _value(mark: Mark, run: Run) -> float | None:
    return run.ratio if mark.figure == "ratio" else run.figures.get(mark.figure)
