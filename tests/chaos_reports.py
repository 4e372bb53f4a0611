"""Reports of chaos as runs make them, without a run: rounds whose courses and violations are written down here."""

from __future__ import annotations

from typing import Any

from turnkeeper.benchmarks.chaos.course import Course, Lane, Lifetime, Mark
from turnkeeper.benchmarks.chaos.report import Report, RoundReport
from turnkeeper.benchmarks.chaos.times import Times

BEGAN = 1_000.0
FIGURES = {
    "sessions": 9,
    "events": 4210,
    "acknowledged": 4000,
    "found": 4000,
    "messages": 70,
    "followed": 9000,
    "tasks": 41,
}

COURSE = Course(
    began=BEGAN,
    seconds=12.5,
    lanes=(
        Lane("host-0", (Lifetime(100, 0.1, 4.0, True), Lifetime(140, 4.2, 9.8, False))),
        Lane("host-1", (Lifetime(101, 0.1, 9.9, False),)),
        Lane("node", (Lifetime(110, 0.3, 4.0, True), Lifetime(141, 4.1, 9.9, False))),
        Lane("writer", (Lifetime(111, 0.5, 2.25, True), Lifetime(130, 2.4, 4.0, True), Lifetime(142, 4.3, 9.9, False))),
        Lane("spawner", (Lifetime(112, 0.5, 9.9, False),)),
    ),
    marks=(
        Mark(1.5, "arm", "writer-committed", "writer", "writer", (), {"point": "writer-committed"}),
        Mark(2.25, "kill", "kill", "writer", "writer", (111,), {"point": "writer-committed"}, recovery=0.181),
        Mark(3.0, "missed", "eio", "writer", "writer", (), {"why": "there is no writer now"}),
        Mark(4.0, "kill", "kill", "host-0", "host", (100,), {}),
        Mark(4.0, "kill", "kill", "node", "node", (110,), {}, recovery=1.42),
        Mark(4.0, "kill", "kill", "writer", "writer", (130,), {}, recovery=1.42),
        Mark(5.5, "kill", "kill", "shims", "shim", (150, 151, 152), {}),
        Mark(6.0, "fault", "slow", "writer", "writer", (142,), {}, until=7.25),
        Mark(10.0, "fault", "index-damaged", "store", "index", (), {"how": "zeroed"}),
    ),
    borders=(9.9,),
    flushes=Times.of([0.002] * 98 + [0.004, 1.5]),
)


def violation(**members: Any) -> dict[str, Any]:
    """Give a violation as the checker gives it, with what is said otherwise."""
    told = {
        "promise": "acknowledged is found",
        "subject": "brave-otter",
        "says": "lost: chaos/step 3f2a",
        "seq": 17,
        "file": "host-0.1.jsonl",
        "line": 40,
        "at": BEGAN + 2.2,
        "journal": ['{"stream":"brave-otter","seq":16,"time":1,"type":"chaos/step","data":{"text":"a"}}'],
        "notes": ['host-0.1.jsonl:40: {"what":"sent","at":1002.2}', 'runner.jsonl:9: {"what":"strike","kind":"kill"}'],
    }
    return {**told, **members}


def round_report(seed: int, *violations: dict[str, Any], course: Course = COURSE) -> RoundReport:
    """Give a round in which these promises were broken."""
    broken: dict[str, int] = {}
    for each in violations:
        broken[each["promise"]] = broken.get(each["promise"], 0) + 1
    kept = f"/tmp/turnkeeper-chaos/round-{seed}" if violations else None
    return RoundReport(seed, 14.2, {"seed": seed, "lives": []}, course, FIGURES, broken, violations, kept)


def report_of(*rounds: RoundReport) -> Report:
    """Give the report of these rounds."""
    report = Report(rounds[0].seed if rounds else 7, {"clock": "libfaketime is not installed"}, elapsed=61.0)
    for each in rounds:
        report.take(each)
    return report
