"""What has happened so far in the two columns of the demo, as it is shown live and reported at the end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..measuring.runs import percentile
from .agent_report import Span, TurnReport


@dataclass(slots=True)
class Kill:
    """A kill, and what came after it, in seconds of the machine's monotonic clock.

    `replaced` is when nothing of the killed process could answer any more: a writer whose node was killed still ends
    its commits in order. `served` is when the status said that the store is served again, or has its spawner again.
    """

    victim: str
    killed: float
    replaced: float | None = None
    served: float | None = None


@dataclass(slots=True)
class Column:
    """One way to store: what the agents did with it, and what was done to it."""

    name: str
    sessions: int = 0
    turns: int = 0
    events: int = 0
    tasks: int = 0
    kills: list[Kill] = field(default_factory=list)
    owners_refused: int = 0
    owners_let_in: int = 0
    torn_writes: int = 0
    flushes: list[Span] = field(default_factory=list)
    starts: list[Span] = field(default_factory=list)

    def take(self, report: TurnReport) -> None:
        """Count a turn that was replayed."""
        self.turns += 1
        self.events += report["events"]
        self.tasks += len(report["starts"])
        self.flushes += [(began, ended) for began, ended in report["flushes"]]
        self.starts += [(began, ended) for began, ended in report["starts"]]

    def flush_ms(self) -> dict[str, float | None]:
        """Give the percentiles of all flushes so far, those that waited for a restart too, in milliseconds."""
        return _percentiles_ms(self.flushes)

    def start_ms(self) -> dict[str, float | None]:
        """Give the percentiles of the times from a task's request until it ran, in milliseconds, as of flushes."""
        return _percentiles_ms(self.starts)

    def recovery_ms(self, kill: Kill) -> float | None:
        """Give the time from a kill to the first acknowledgement of what was asked for after it; None if there is none.

        That is of an append; of a task's start where the spawner was killed. What the killed process's own writer still
        acknowledged doesn't count.
        """
        if kill.replaced is None:
            return None
        spans = self.starts if kill.victim == "spawner" else self.flushes
        answers = (ended for began, ended in spans if began >= kill.killed and ended >= kill.replaced)
        first = min(answers, default=None)
        return None if first is None else round((first - kill.killed) * 1000, 1)

    def serving_ms(self, kill: Kill) -> float | None:
        """Give the time from a kill until the status said that the store is served; None as long as it doesn't."""
        return None if kill.served is None else round((kill.served - kill.killed) * 1000, 1)


def _percentiles_ms(spans: list[Span]) -> dict[str, float | None]:
    if not spans:
        return {"p50": None, "p99": None}
    times = [(ended - began) * 1000 for began, ended in spans]
    return {f"p{percent}": round(percentile(times, percent), 3) for percent in (50, 99)}


@dataclass(slots=True)
class Progress:
    """The demo at one moment."""

    seed: int
    seconds: float
    phase: str = "starting the agents"
    began: float = field(default_factory=time.monotonic)
    store: Column = field(default_factory=lambda: Column("turnkeeper"))
    plain: Column = field(default_factory=lambda: Column("plain JSONL"))

    @property
    def elapsed(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self.began
