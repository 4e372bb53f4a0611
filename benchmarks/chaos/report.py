"""What a run of chaos has shown, in figures: the one reading of its rounds that the table, the JSON and the page give.

A report grows round by round and stays small: of clean rounds only the first ones are kept with their course, and of
broken ones too; all are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..measuring.runs import percentile
from .course import Course
from .histogram import TimeClass, histogram
from .plan import StorePlan
from .times import Times

ROUNDS_SHOWN_MAX: Final = 300
"""So many rounds, of clean and of broken ones each, are kept to be shown one by one."""

HOW_RECOVERY_IS_MEASURED: Final = (
    "From the death of node or writer to the first acknowledgement of what was asked for behind it, by whomever: "
    "as the notes of runner and agents have it, each synced before the next step. Where the hosts were killed as well, "
    "their own start is in it; a death that ended a life of the store, with nobody left to be served, isn't counted."
)

_AS_IN_THE_DEMO: Final[Mapping[str, Sequence[str]]] = {
    "repeated": ("found is sent", "sent once", "accepted once"),
    "holes": ("numbers",),
    "open_turns": ("turns",),
    "wrong_exits": ("one task", "task ends", "task runs"),
    "orphans": ("nothing is left",),
}
"""What the demo counts, too, and the promises that are broken by it."""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """A round. `figures` are counts that add up, `broken` says how often each promise was broken.

    `violations` describe the first ones of each promise, as plain values; `kept` is the directory that was left there.
    """

    seed: int
    seconds: float
    plan: Mapping[str, Any]
    course: Course
    figures: Mapping[str, int]
    broken: Mapping[str, int]
    violations: Sequence[Mapping[str, Any]] = ()
    kept: str | None = None

    @property
    def store(self) -> str:
        """Say what kind of store it had."""
        return StorePlan(**self.plan.get("store", {})).kind

    @property
    def is_clean(self) -> bool:
        """Say whether every promise was kept."""
        return not self.broken


@dataclass(slots=True)
class Report:
    """All rounds from `seed` on. `shortest` is the shortest plan that was found to break a promise."""

    seed: int
    left_out: Mapping[str, str] = field(default_factory=dict)
    elapsed: float = 0.0
    shortest: Mapping[str, Any] | None = None
    rounds: int = 0
    stores: Counter[str] = field(default_factory=Counter)
    figures: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    broken_seeds: list[int] = field(default_factory=list)
    recoveries: dict[str, list[float]] = field(default_factory=dict)
    flushes: Times = field(default_factory=Times)
    shown: list[RoundReport] = field(default_factory=list)
    latest: RoundReport | None = None
    first_plan: Mapping[str, Any] | None = None

    def take(self, round: RoundReport) -> None:
        """Count the next round."""
        self.rounds += 1
        self.stores[round.store] += 1
        self.latest = round
        self.figures.update(round.figures)
        self.kills.update(round.course.kills)
        self.faults.update(round.course.counted("fault"))
        self.missed.update(round.course.counted("missed"))
        self.broken.update(round.broken)
        self.flushes.update(round.course.flushes)
        for mark in round.course.marks:
            if mark.recovery is not None:
                self.recoveries.setdefault(mark.target, []).append(mark.recovery)
        if not round.is_clean:
            self.broken_seeds.append(round.seed)
        if sum(each.is_clean == round.is_clean for each in self.shown) < ROUNDS_SHOWN_MAX:
            self.shown.append(round)
        self.first_plan = self.first_plan or round.plan

    @property
    def is_clean(self) -> bool:
        """Say whether every promise was kept in every round."""
        return not self.broken

    @property
    def stores_text(self) -> str:
        """Say how many rounds had a store of which kind."""
        return ", ".join(f"{times:,} {kind}" for kind, times in self.stores.most_common())

    @property
    def flush_ms(self) -> dict[str, float | None]:
        """Give the percentiles of all flushes, in milliseconds."""
        shares = {f"p{percent}": self.flushes.percentile(percent) for percent in (50, 99)}
        return {name: None if share is None else round(share * 1000, 2) for name, share in shares.items()}

    @property
    def recovery_seconds(self) -> list[float]:
        """Give all times of recovery."""
        return [seconds for times in self.recoveries.values() for seconds in times]

    @property
    def recovery_rows(self) -> list[tuple[str, dict[str, float | None]]]:
        """Give the figures of recovery after the death of each, and after any if there are several."""
        rows = [(target, times_ms(seconds)) for target, seconds in self.recoveries.items()]
        return rows if len(rows) < 2 else [*rows, ("either", times_ms(self.recovery_seconds))]

    @property
    def recovery_classes(self) -> list[TimeClass]:
        """Give the times of recovery in their classes."""
        return histogram(self.recovery_seconds)

    @property
    def violations(self) -> list[dict[str, Any]]:
        """Give all that are described, with the seed of their round."""
        return [{"seed": round.seed, **each} for round in self.shown for each in round.violations]

    @property
    def fault_rows(self) -> list[tuple[str, int, int, str]]:
        """Give each fault: its name, how often it was done, how often it found nobody, why it was left out."""
        names = {**self.faults, **self.missed, **self.left_out}
        return [(name, self.faults[name], self.missed[name], self.left_out.get(name, "")) for name in names]

    @property
    def plan(self) -> Mapping[str, Any] | None:
        """Give the plan to look at: the shortest that breaks a promise, else the first that did, else the first."""
        broken = next((each.plan for each in self.shown if not each.is_clean), None)
        return self.shortest or broken or self.first_plan

    def as_map(self) -> dict[str, Any]:
        """Give it as plain values."""
        figures = self.figures
        broken = {name: sum(self.broken[each] for each in promises) for name, promises in _AS_IN_THE_DEMO.items()}
        return {
            "seed": self.seed,
            "rounds": self.rounds,
            "stores": dict(self.stores),
            "elapsed_seconds": round(self.elapsed, 1),
            **{name: figures[name] for name in FIGURES},
            "lost": figures["acknowledged"] - figures["found"],
            **broken,
            "kills": dict(self.kills),
            "faults": dict(self.faults),
            "missed": dict(self.missed),
            "left_out": dict(self.left_out),
            "flush_ms": self.flush_ms,
            "recovery_ms": {
                **times_ms(self.recovery_seconds),
                "after": {target: times_ms(seconds) for target, seconds in self.recoveries.items()},
                "histogram": [each._asdict() for each in self.recovery_classes],
            },
            "broken": dict(self.broken),
            "broken_seeds": self.broken_seeds,
            "violations": self.violations,
            "kept": [each.kept for each in self.shown if each.kept is not None],
            "plan": self.plan,
        }


FIGURES: Final = ("sessions", "events", "acknowledged", "found", "messages", "followed", "tasks")
"""What rounds count: all that add up."""


def times_ms(seconds: Iterable[float]) -> dict[str, float | None]:
    """Give the figures that stand for many times, in milliseconds."""
    times = [each * 1000 for each in seconds]
    if not times:
        return {"times": 0, "p50": None, "p99": None, "max": None}
    shares = {f"p{percent}": round(percentile(times, percent), 1) for percent in (50, 99)}
    return {"times": len(times), **shares, "max": round(max(times), 1)}


def number_of(count: int, one: str) -> str:
    """Say how many there are of something, by the word for one."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"
