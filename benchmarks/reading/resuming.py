"""What it costs to go on with a session from its last snapshot, however long it is.

Resuming is opening the session, reading its last snapshot, and the events behind that, until the program can go on.
Beside it: the same without a snapshot, which is opening it and reading all of it; and what a program does that keeps a
file, which is to parse every line. Sessions of several lengths; the runs of the longest have the curve over all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from turnkeeper import Runtime

from ..driving.loads import round_figures
from ..measuring.asked_process import Answer, AskedProcess
from ..measuring.runs import Figures, Run, Tell, interleaved, run_of
from ..stores.contents import EVENT_DATA, EVENT_TYPE
from .long_sessions import LongFile, session_of

BEHIND = 20
"""Events behind the last snapshot of a session that is resumed."""

_STATE = {"messages": [{"role": "assistant", **EVENT_DATA}] * 50}
"""What a snapshot holds: 20 KB, as 50 messages have."""

_OURS = "turnkeeper"


def compare_resuming(
    ours: AskedProcess, lengths: Sequence[int], files: Path, times: int, rounds: int, tell: Tell
) -> list[Run]:
    """Resume the session of each length so many times a round, in a process that answers by `RESUMING`."""
    runs = [run for length in lengths for run in _compare(ours, length, files, times, rounds, tell)]
    longest = [run for run in runs if run.params["events"] == max(lengths)]
    for run in longest:
        alike = [each for each in runs if each.params["against"] == run.params["against"]]
        for name, figures in (("resumed", "figures"), (run.params["against"], "base")):
            points = [(float(each.params["events"]), getattr(each, figures)["p50_ms"]) for each in alike]
            run.series[f"{name} ms over events"] = points
    return runs


def _compare(ours: AskedProcess, length: int, files: Path, times: int, rounds: int, tell: Tell) -> list[Run]:
    session = session_of(length)
    ours.ask("snapshot", session)
    subjects: dict[str, Callable[[], Figures]] = {
        _OURS: partial(_ask, ours, "resume", session, times),
        "reading all of it": partial(_ask, ours, "walk", session),
        "parsing a file": partial(_parse, LongFile(files, length).path, length),
    }
    measured = interleaved(rounds, subjects, lambda line: tell(f"resume {length:,}: {line}"))
    mine = measured.pop(_OURS)
    params = {"events": length, "events_behind": BEHIND, "cache": "warm"}
    return [
        run_of("resume p50_ms", {**params, "against": other}, mine, theirs, compared="p50_ms")
        for other, theirs in measured.items()
    ]


def _ask(ours: AskedProcess, *question: Any) -> Figures:
    return round_figures(ours.ask(*question))


def _parse(file: Path, events: int) -> Figures:
    began = time.perf_counter()
    with file.open("rb") as lines:
        found = sum(1 for line in lines if orjson.loads(line))
    taken = time.perf_counter() - began
    _require(found, events)
    return round_figures([taken])


def _require(found: int, expected: int) -> None:
    """Raise RuntimeError if not everything was read."""
    if found != expected:
        raise RuntimeError(f"{found:,} events were read and not {expected:,}")


# -- in the process that has the store open


async def _snapshot(runtime: Runtime, session: str) -> None:
    """Give a session a snapshot, and some events behind it."""
    async with await runtime.open_session(session) as opened:
        await opened.snapshot(_STATE)
        for _ in range(BEHIND):
            await opened.append(EVENT_TYPE, EVENT_DATA)


async def _resume(runtime: Runtime, session: str, times: int) -> list[float]:
    """Go on from the last snapshot again and again, and give the seconds that each time took."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        opened = await runtime.open_session(session)
        snapshot = await opened.last_snapshot()
        if snapshot is None:
            raise RuntimeError(f"{session} has no snapshot")
        behind = await opened.read(start=snapshot.seq + 1)
        taken.append(time.perf_counter() - began)
        _require(len(behind), BEHIND)
        await opened.aclose()
    return taken


async def _walk(runtime: Runtime, session: str) -> list[float]:
    """Open a session and read all of it, and give the seconds that it took."""
    began = time.perf_counter()
    opened = await runtime.open_session(session)
    found = 0
    async for _ in opened.events():
        found += 1
    taken = time.perf_counter() - began
    _require(found, opened.head)
    await opened.aclose()
    return [taken]


RESUMING: Mapping[str, Answer] = {"snapshot": _snapshot, "resume": _resume, "walk": _walk}
"""What a process has to answer, given its runtime first."""
