"""Tasks as they are shown: a row each, for scripts and for people."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from turnkeeper.actors.tasks.state import TaskState

from .printing import print_figures, print_json, print_table
from .values import moment, shown_duration, shown_size


def as_row(state: TaskState) -> dict[str, Any]:
    """Give what scripts read of a task."""
    return {name: value for name, value in asdict(state).items() if name != "position"}


def print_tasks(states: Iterable[TaskState], *, is_json: bool) -> None:
    """Print tasks, one a line."""
    if is_json:
        for state in states:
            print_json(as_row(state))
        return
    now = time.time()
    rows = [
        (
            state.id,
            state.state,
            ending(state) or shown_progress(state),
            moment(state.started or state.requested, now),
            _lasted(state, now),
            shown_size(state.output_bytes),
            shlex.join(state.command),
        )
        for state in states
    ]
    columns = ("id", "state", "how", "started", "for", "output", "command")
    print_table(columns, rows, right=("for", "output"), cut=("how", "command"))


def print_task(state: TaskState, *, output: str, is_json: bool) -> None:
    """Print all that is known of one; `output` is where its output lies."""
    if is_json:
        print_json(as_row(state))
        return
    now = time.time()
    incomplete = {None: "", "cut": ", cut at its limit", "disk full": ", incomplete: the disk was full"}
    figures = [
        ("id", state.id),
        ("state", state.state),
        ("how", ending(state)),
        ("why", state.why or ""),
        ("progress", shown_progress(state)),
        (
            "survivors",
            ", ".join(map(str, state.survivors)) + (f" and {state.survivors_more} more" * bool(state.survivors_more)),
        ),
        ("command", shlex.join(state.command)),
        ("directory", state.cwd),
        ("key", state.key or ""),
        ("session", state.session or ""),
        ("group", state.group or ""),
        ("process", str(state.pid) if state.pid and not state.is_over else ""),
        ("kept", "yes" if state.keep else "no, it ends with whoever started it"),
        ("started", moment(state.started, now) if state.started else "not yet" if not state.is_over else "never"),
        ("ended", moment(state.ended, now) if state.ended else ""),
        ("took", _lasted(state, now)),
        ("output", f"{state.output_bytes:,} bytes{incomplete.get(state.output, '')}: {output}"),
    ]
    print_figures([(name, value) for name, value in figures if value])


def ending(state: TaskState) -> str:
    """Say how a task ended, and who ended it if that wasn't itself; empty while it goes on."""
    if not state.is_over:
        return ""
    by = "" if state.by in (None, "itself", "unknown") else f", by {state.by}"
    left = len(state.survivors) + state.survivors_more
    behind = f", {left} process{'' if left == 1 else 'es'} left" if left else ""
    return f"{_how(state)}{by}{behind}"


def _how(state: TaskState) -> str:
    match state.how or {}:
        case {"code": code}:
            return f"exit {code}"
        case {"signal": number}:
            return signal_name(number)
        case {"not_started": why}:
            return f"not started: {why}"
    return f"lost: {state.why}" if state.why else "unknown"


def signal_name(number: int) -> str:
    """Name a signal, `SIGTERM`; by its number if it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def shown_progress(state: TaskState) -> str:
    """Show how far a task is, if it says so."""
    progress = state.progress or {}
    parts = []
    if "percent" in progress:
        parts.append(f"{progress['percent']:.0f}%")
    if "current" in progress:
        total = f"/{progress['total']:,}" if "total" in progress else ""
        parts.append(f"{progress['current']:,}{total} {progress.get('unit', '')}".rstrip())
    parts += [str(progress[name]) for name in ("phase", "message") if name in progress]
    return "  ".join(parts)


def _lasted(state: TaskState, now: float) -> str:
    if state.started is None:
        return ""
    end = now * 1000 if state.ended is None else state.ended
    return shown_duration(max(0.0, end - state.started) / 1000)
