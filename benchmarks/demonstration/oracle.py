"""Judges whether a store kept what it acknowledged, and shares no code with the product.

What was acknowledged stands in *notes*: files outside the store, each one agent's own and synced, a line after each
acknowledgement. What is stored is read from the journal's files as anybody may read them, a line of JSON each, those
with a `stream` being events (a large one's data lies in a file that its line names); or it is handed over as the
product read it back. One function states what must hold: every noted event is there, under its number and with its
content; no event is there twice; no number is missing; the numbers of a session stand in order; every turn that began
has ended. Tasks, whose streams stand among the sessions', are judged by task_oracle.py.

It is as strict as a reader of lines: a line that isn't whole JSON is unreadable, whatever might be rescued from it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

VIOLATIONS_MAX = 20
"""How many violations are described; all are counted."""

_TURN_START, _TURN_END = "turn/start", "turn/end"
_TASK, _INBOX = "task-", "inbox-"


class StoredEvent(NamedTuple):
    """An event as it was found. `turn` is the number of the turn that it begins or ends, else None."""

    seq: int
    type: str
    digest: str
    turn: int | None = None


class NotedEvent(NamedTuple):
    """An event whose acknowledgement somebody wrote down."""

    session: str
    seq: int
    type: str
    digest: str


@dataclass(slots=True)
class Found:
    """What is stored: each session's events in the order of the files, and how many lines were unreadable."""

    sessions: dict[str, list[StoredEvent]] = field(default_factory=lambda: defaultdict(list))
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found, and what is wrong: everything from `lost` on is 0 where all promises were kept."""

    sessions: int = 0
    events: int = 0
    acknowledged: int = 0
    found: int = 0
    lost: int = 0
    repeated: int = 0
    holes: int = 0
    disordered: int = 0
    open_turns: int = 0
    unreadable: int = 0
    violations: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Say whether every promise was kept."""
        wrong = (self.lost, self.repeated, self.holes, self.disordered, self.open_turns, self.unreadable)
        return not any(wrong)


def digest(data: Any) -> str:
    """Give the digest of an event's data, the same for the same JSON value whatever its spelling."""
    spelled = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(spelled.encode(), digest_size=16).hexdigest()


# -- notes


class Notebook:
    """An agent's own file, outside the store, of what it saw acknowledged; a note is on disk when `note` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, session: str, events: Iterable[tuple[int, str, Any]]) -> None:
        """Write down number, type and data of events that were acknowledged."""
        line = json.dumps({"session": session, "events": [[seq, type, digest(data)] for seq, type, data in events]})
        os.write(self._file, line.encode() + b"\n")
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_notes(paths: Iterable[Path]) -> Iterator[NotedEvent]:
    """Read what was noted. A last line without its end was never finished, by an agent that died: it says nothing."""
    for path in paths:
        for line in path.read_bytes().split(b"\n")[:-1]:
            note = json.loads(line)
            for seq, type, content in note["events"]:
                yield NotedEvent(note["session"], seq, type, content)


# -- what is stored


def stored_event(seq: int, type: str, data: Any) -> StoredEvent:
    """Make the oracle's view of an event."""
    turn = data.get("turn") if type in (_TURN_START, _TURN_END) else None
    return StoredEvent(seq, type, digest(data), turn)


def read_journal(store: Path) -> Found:
    """Read every event of the sessions in a store's journal from its files."""
    found = Found()
    for record in journal_records(store, found):
        if is_task(record["stream"]) or told_session(record["stream"]) is not None:
            continue
        try:
            data = whole_data(store, record["data"])
        except (OSError, ValueError):
            found.unreadable += 1
        else:
            found.sessions[record["stream"]].append(stored_event(record["seq"], record["type"], data))
    return found


def journal_records(store: Path, found: Found | None = None) -> Iterator[dict[str, Any]]:
    """Read every line of a store's journal that belongs to a stream; `found` counts those that can't be read."""
    for path in sorted((store / "journal").glob("*.jsonl")):
        for record in _records(path, Found() if found is None else found):
            if "stream" in record:
                yield record


def is_task(stream: str) -> bool:
    """Say whether a stream is a task's."""
    return stream.startswith(_TASK)


def told_session(stream: str) -> str | None:
    """Give the session whose inbox a stream is; None if it is none."""
    return stream.removeprefix(_INBOX) if stream.startswith(_INBOX) else None


def whole_data(store: Path, data: Any) -> Any:
    """Give an event's data: what stands in its line, or in the file that stands there instead.

    Raises OSError or ValueError where that file can't be read, or is another one.
    """
    name = data.get("$blob")
    if not isinstance(name, str):
        return data
    content = (store / "blobs" / name[:2] / name).read_bytes()
    if hashlib.blake2b(content, digest_size=32).hexdigest() != name:
        raise ValueError(name)
    return json.loads(content)


def read_plain(directory: Path) -> Found:
    """Read every event of a directory that holds a plain file for each session, named as the session."""
    found = Found()
    for path in sorted(directory.glob("*.jsonl")):
        for record in _records(path, found):
            found.sessions[path.stem].append(stored_event(record["seq"], record["type"], record["data"]))
    return found


def _records(path: Path, found: Found) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for line in file:
            content = line.strip(b"\n\0")
            if not content:
                continue
            try:
                yield json.loads(content)
            except ValueError:
                found.unreadable += 1


# -- the judgement


def judge(noted: Iterable[NotedEvent], found: Found) -> Verdict:
    """Compare what was acknowledged with what is stored."""
    violations: list[str] = []
    contents = {session: {event[:3] for event in events} for session, events in found.sessions.items()}
    acknowledged = kept = 0
    for event in noted:
        acknowledged += 1
        if event[1:] in contents.get(event.session, ()):
            kept += 1
        else:
            violations.append(f"lost: {event.session} number {event.seq}, {event.type}")
    repeated = holes = disordered = open_turns = 0
    for session, events in found.sessions.items():
        copies = list(_copies(events))
        missing = _missing(events)
        early = [second.seq for first, second in pairwise(events) if second.seq < first.seq]
        unended = _open_turns(events)
        violations += [f"repeated: {session} number {event.seq}, {event.type}" for event in copies]
        violations += [f"hole: {session} number {seq}" for seq in missing]
        violations += [f"out of order: {session} number {seq}" for seq in early]
        violations += [f"open: {session} turn {turn}" for turn in unended]
        repeated += len(copies)
        holes += len(missing)
        disordered += len(early)
        open_turns += len(unended)
    return Verdict(
        sessions=len(found.sessions),
        events=sum(map(len, found.sessions.values())),
        acknowledged=acknowledged,
        found=kept,
        lost=acknowledged - kept,
        repeated=repeated,
        holes=holes,
        disordered=disordered,
        open_turns=open_turns,
        unreadable=found.unreadable,
        violations=tuple(violations[:VIOLATIONS_MAX]),
    )


def worse(one: Verdict, other: Verdict) -> Verdict:
    """Join the judgements of two readings of the same store: what is wrong in either is wrong."""
    return Verdict(
        sessions=min(one.sessions, other.sessions),
        events=min(one.events, other.events),
        acknowledged=max(one.acknowledged, other.acknowledged),
        found=min(one.found, other.found),
        lost=max(one.lost, other.lost),
        repeated=max(one.repeated, other.repeated),
        holes=max(one.holes, other.holes),
        disordered=max(one.disordered, other.disordered),
        open_turns=max(one.open_turns, other.open_turns),
        unreadable=max(one.unreadable, other.unreadable),
        violations=(*one.violations, *other.violations)[:VIOLATIONS_MAX],
    )


def _copies(events: Sequence[StoredEvent]) -> Iterator[StoredEvent]:
    """Yield events whose number, or whose type and content, were there before: every event's content is unique."""
    numbers: set[int] = set()
    contents: set[tuple[str, str]] = set()
    for event in events:
        content = (event.type, event.digest)
        if event.seq in numbers or content in contents:
            yield event
        numbers.add(event.seq)
        contents.add(content)


def _missing(events: Sequence[StoredEvent]) -> list[int]:
    numbers = {event.seq for event in events}
    return sorted(set(range(max(numbers, default=-1) + 1)) - numbers)


def _open_turns(events: Sequence[StoredEvent]) -> list[int]:
    begun = {event.turn for event in events if event.type == _TURN_START and event.turn is not None}
    ended = {event.turn for event in events if event.type == _TURN_END}
    return sorted(begun - ended)
