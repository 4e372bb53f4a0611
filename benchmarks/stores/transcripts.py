"""Recorded transcripts for agents to replay: eight that are shipped, or sessions of other programs from their files.

A transcript is a list of turns, a turn a list of steps. A step is an event as a session logs it: `user/message`,
`assistant/message`, `tool/started` or `tool/finished`. Every call of a turn starts and then finishes in it, and its
id is unique in the transcript. Turns have no events of their own: whoever replays makes them.

The shipped files hold one step a line, `{"type": …, "data": …}`; a user's message begins a turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from turnkeeper.actors.importing import ImportedSession, ImportReport, read_sessions
from turnkeeper.storage.exact_json import encode_data

TRANSCRIPTS_MAX = 64
"""Sessions taken from files, at most."""

TRANSCRIPT_BYTES_MAX = 4 * 1024 * 1024
"""Where a transcript from a file is cut off: at the first step that goes beyond it."""

_MEMBERS = {
    "user/message": ("text", "content"),
    "assistant/message": ("text", "content", "message_id", "model", "usage"),
    "tool/started": ("id", "name", "arguments", "effect"),
    "tool/finished": ("id", "output", "error"),
}
_WHYS_SHOWN = 3


class Step(NamedTuple):
    """One event to log."""

    type: str
    data: dict[str, Any]


Turn = list[Step]


@dataclass(frozen=True, slots=True)
class Transcript:
    """What one agent did. The name is the shipped file's, or the imported session's key."""

    name: str
    turns: list[Turn]


class NoTranscripts(ValueError):
    """None of the files holds a session that can be replayed. The message names them, and what was found wrong."""


def shipped() -> list[Transcript]:
    """Return the transcripts of the package, in the order of their names."""
    folder = resources.files(__package__) / "transcripts"
    files = sorted((each for each in folder.iterdir() if each.name.endswith(".jsonl")), key=lambda each: each.name)
    return [Transcript(each.name.removesuffix(".jsonl"), _shipped_turns(each.read_bytes())) for each in files]


def from_paths(paths: Iterable[Path], *, transcripts_max: int = TRANSCRIPTS_MAX) -> list[Transcript]:
    """Read transcripts from session files of Claude Code and Codex, or from folders of them, the first ones found.

    Damaged lines are passed over. Raises NoTranscripts if there is nothing to replay.
    """
    paths = list(paths)
    report = ImportReport()
    transcripts: list[Transcript] = []
    for path in paths:
        for session in read_sessions(path, report):
            if len(transcripts) >= transcripts_max:
                return transcripts
            turns = _imported_turns(session)
            if turns:
                transcripts.append(Transcript(session.header.key, turns))
    if not transcripts:
        where = ", ".join(map(str, paths)) or "no path"
        whys = "; ".join(f"{each.file}:{each.line}: {each.why}" for each in report.problems[:_WHYS_SHOWN])
        raise NoTranscripts(f"nothing to replay in {where}" + (f" ({whys})" if whys else ""))
    return transcripts


def _shipped_turns(content: bytes) -> list[Turn]:
    turns: list[Turn] = []
    for line in filter(None, content.split(b"\n")):
        step = Step(**orjson.loads(line))
        if step.type == "user/message":
            turns.append([])
        turns[-1].append(step)
    return turns


def _imported_turns(session: ImportedSession) -> list[Turn]:
    """Return the session's turns, without those in which nothing happened that can be replayed."""
    turns: list[Turn] = [[]]
    for step in _first_steps(session):
        if step.type == "turn/start":
            turns.append([])
        elif step.type in _MEMBERS:
            turns[-1].append(step)
    return [whole for whole in map(_whole, turns) if whole]


def _first_steps(session: ImportedSession) -> Iterator[Step]:
    """Yield the session's events with those of their members that are replayed, as far as a transcript may go."""
    size = 0
    for event in session.events():
        members = _MEMBERS.get(event.type, ())
        data = {name: event.data[name] for name in members if name in event.data}
        size += len(encode_data(event.type, data))
        if size > TRANSCRIPT_BYTES_MAX:
            return
        yield Step(event.type, data)


def _whole(turn: Turn) -> Turn:
    """Leave out calls that the turn does not finish, and results of calls that it did not start."""
    started = {step.data["id"] for step in turn if step.type == "tool/started"}
    finished = {step.data["id"] for step in turn if step.type == "tool/finished"}
    return [step for step in turn if not step.type.startswith("tool/") or step.data["id"] in started & finished]
