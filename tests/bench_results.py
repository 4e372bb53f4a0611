"""Results of benchmarks as tests need them: small, with everything in them that a report shows."""

from __future__ import annotations

from turnkeeper.benchmarks.measuring.durability import POWER_LOSS, PROCESS_DEATH
from turnkeeper.benchmarks.measuring.runs import Figures, Measured, Run, run_of
from turnkeeper.benchmarks.report.results import Result

MACHINE = {
    "turnkeeper": "0.1.0",
    "commit": "0123456789ab",
    "cores": 2,
    "memory_bytes": 8_000_000_000,
    "fdatasync_us": 90.0,
}


NASTY_NAME = "files | of \u202e <b>sessions"


def flush_figures(p50: float) -> Figures:
    """Give the figures of a round of flushes."""
    return {"p50_ms": p50, "p99_ms": p50 * 2, "per_second": 1000 / p50}


def flush_runs(ours: float = 0.2, rounds: int = 5) -> list[Run]:
    """Give runs of one session and of a hundred, against two subjects; rounds differ by some percent."""
    params = {"loop": "trio", "events_a_flush": 1, "planned_per_second": None, "stored": 10_000_000}
    params |= {"where": "loop", "durability": "fsync", "event_bytes": 460}
    runs = []
    for sessions, load, compared in ((1, "closed", "p50_ms"), (100, "closed", "per_second")):
        for against, base, survives in (("append", 0.1, POWER_LOSS), (NASTY_NAME, 0.4, PROCESS_DEATH)):
            runs.append(
                run_of(
                    f"flush {compared}",
                    {"sessions": sessions, "load": load, "against": against, "survives": survives, **params},
                    [flush_figures(ours + turn / 100) for turn in range(rounds)],
                    [flush_figures(base + turn / 1000) for turn in range(rounds)],
                    compared=compared,
                )
            )
    return runs


def open_run(cache: str, events: int = 10_000_000) -> Run:
    """Give a run of openings after a kill."""
    params = {"cache": cache, "events": events, "base_events": 100_000}
    return run_of("open", params, [{"open_ms": 4.5}, {"open_ms": 4.4}], [{"open_ms": 4.4}] * 2, compared="open_ms")


def outage_run(after: str, log_bytes: int) -> Run:
    """Give a run of outages in a log of so many bytes."""
    params = {"after": after, "log_bytes": log_bytes, "against": "a program", "survives": POWER_LOSS}
    rounds = [{"total_ms": 130.0}, {"total_ms": 140.0}]
    return run_of("recovery total_ms", params, rounds, [{"total_ms": 20.0}] * 2, compared="total_ms")


def memory_run() -> Run:
    """Give a run of memory over time, as long as a line needs to be drawn through it."""
    points = [(float(second), 22_000.0 + second) for second in range(100)]
    figures = {"slope_kib_a_minute": 60.0, "end_kib": 22_100.0}
    params = {"sessions": 1_000, "seconds": 600.0}
    bounds = {"slope_kib_a_minute": (59.0, 61.0)}
    return Run("memory end over begin", params, figures, bounds=bounds, series={"writer_kib over seconds": points})


def result_of(*runs: Run, suite: str = "flush", left_out: dict[str, str] | None = None) -> Result:
    """Give a result with these runs in one suite, and more suites that were left out."""
    more = [Measured(name, 0.0, left_out=why) for name, why in (left_out or {}).items()]
    return Result(MACHINE, [Measured(suite, 12.0, runs), *more], "turnkeeper bench all --out results")
