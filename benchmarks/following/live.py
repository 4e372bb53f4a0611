"""How soon followers in another process have an event, at a pace that everybody keeps: see `followed_stores`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..driving.loads import latency_figures
from ..measuring.asked_process import AskedProcess
from ..measuring.durability import POWER_LOSS
from ..measuring.runs import Figures, Run, Tell, interleaved, run_of
from .followed_stores import (
    LOOKING,
    SELECT_SECONDS,
    TAIL_SECONDS,
    WOKEN,
    Moments,
    Pace,
    Received,
    append_to_file,
    append_to_store,
    append_to_table,
    follow_file,
    follow_store,
    follow_table,
)

_OURS = "turnkeeper"


@dataclass(frozen=True, slots=True)
class _Form:
    """Who appends to something, who follows it, and the names of the ways in which followers hear of more."""

    append: Callable[..., None]
    follow: Callable[..., None]
    ways: Mapping[str, str]


_FORMS = (
    _Form(append_to_store, follow_store, {_OURS: WOKEN}),
    _Form(
        append_to_file,
        follow_file,
        {"JSONL, inotify": WOKEN, f"JSONL, each {TAIL_SECONDS * 1000:.0f} ms": LOOKING},
    ),
    _Form(append_to_table, follow_table, {f"SQLite, each {SELECT_SECONDS * 1000:.0f} ms": LOOKING}),
)


@dataclass(slots=True)
class _Followed:
    """Something that is appended to and followed; `place` is behind its last event."""

    appender: AskedProcess
    followers: AskedProcess
    place: int = 0

    def burst(self, how: str, pace: Pace, followers: int) -> Figures:
        """Let events be appended and followed; give how soon they were had."""
        self.followers.begin(how, followers, self.place, pace.events)
        moments, self.place = self.appender.ask("append", pace)
        return _figures(moments, self.followers.outcome())


def _figures(moments: list[Moments], received: list[Received]) -> Figures:
    """Give how long behind its acknowledgement, and behind its planned moment, each follower had each event.

    Whoever had one before its appender knew that it was durable had it at once.
    """
    pairs = [(moment, had) for times in received for moment, had in zip(moments, times, strict=True)]
    behind_plan = latency_figures(had - moment.planned for moment, had in pairs)
    acknowledged = latency_figures(moment.acknowledged - moment.planned for moment in moments)
    return {
        **latency_figures(max(0.0, had - moment.acknowledged) for moment, had in pairs),
        "from_plan_p50_ms": behind_plan["p50_ms"],
        "from_plan_p99_ms": behind_plan["p99_ms"],
        "acknowledged_p50_ms": acknowledged["p50_ms"],
    }


def compare_live(directory: Path, pace: Pace, crowds: Sequence[int], rounds: int, tell: Tell) -> list[Run]:
    """Let each number of followers follow each kind of store."""
    runs = []
    with ExitStack() as opened:
        followed = _open_all(directory, pace, opened)
        for followers in crowds:
            subjects = {
                name: partial(each.burst, how, pace, followers)
                for form, each in zip(_FORMS, followed, strict=True)
                for name, how in form.ways.items()
            }
            for burst in subjects.values():
                burst()  # the first time, sessions are made and files are opened
            measured = interleaved(rounds, subjects, partial(_tell, tell, followers))
            runs += _runs(pace, followers, measured)
    return runs


def _open_all(directory: Path, pace: Pace, opened: ExitStack) -> list[_Followed]:
    """Start all processes, at a time."""
    followed = []
    for number, form in enumerate(_FORMS):
        place = directory / f"followed-{number}"
        appender = opened.enter_context(AskedProcess(form.append, place, pace.sessions))
        followed.append(_Followed(appender, opened.enter_context(AskedProcess(form.follow, place))))
    for each in followed:
        each.appender.wait_ready()
        each.followers.wait_ready()
    return followed


def _tell(tell: Tell, followers: int, line: str) -> None:
    tell(f"live, {followers} followers: {line}")


def _runs(pace: Pace, followers: int, measured: dict[str, list[Figures]]) -> list[Run]:
    mine = measured.pop(_OURS)
    params = {
        "followers": followers,
        "sessions": pace.sessions,
        "planned_per_second": pace.per_second,
        "events": pace.events,
        "survives": POWER_LOSS,
    }
    return [
        run_of(f"follow live {figure}", {**params, "against": other}, mine, theirs, compared=figure)
        for other, theirs in measured.items()
        for figure in ("from_plan_p50_ms", "from_plan_p99_ms")
    ]
