"""Judges what became of the tasks of a round, and shares no code with the product.

The commands' notes say what ran, the driver knows what each had to end with, whom it killed and what it stopped; the
journal's lines are read as plain JSON, the outputs as plain files. One violation is one line that names the task.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .mixed_tasks import MixedTask, notes_of

TERM, KILL = {"signal": 15}, {"signal": 9}
CUT_LINE_BYTES_MAX = 200
"""What may stand behind the limit in an output that was cut, one line that says so."""

_INBOX, _DATABASE = "inbox-", "store.sqlite"


@dataclass(frozen=True, slots=True)
class Line:
    """An event as it lies in the journal; `place` counts all of them."""

    place: int
    stream: str
    seq: int
    type: str
    data: dict[str, Any]


@dataclass(slots=True)
class Facts:
    """What the driver knows of a round, by the tasks' labels.

    `tasks` are the ids of those whose start was acknowledged; `may_lose_owner` are those whose host was killed or left
    while they might run, `stopped` those that the driver stopped; `lost` those whose shim was killed before their end
    stood, by their ids. `told` is what a host heard of an end before it was killed.
    """

    planned: dict[str, MixedTask]
    notes: Path
    tasks: dict[str, str] = field(default_factory=dict)
    may_lose_owner: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    told: dict[str, dict[str, Any]] = field(default_factory=dict)


class Journal:
    """The events of a store, by stream."""

    def __init__(self, store: Path) -> None:
        self.streams: dict[str, list[Line]] = defaultdict(list)
        for line in _lines(store):
            self.streams[line.stream].append(line)

    def tasks(self) -> dict[str, list[Line]]:
        """Give the tasks' streams, by their ids."""
        return {stream: lines for stream, lines in self.streams.items() if lines[0].type == "task/requested"}

    def inbox(self, session: str) -> list[Line]:
        """Give the messages of a session's inbox."""
        return self.streams.get(_INBOX + session, [])


def _lines(store: Path) -> Iterator[Line]:
    place = 0
    for text in _texts_in_database(store) if (store / _DATABASE).exists() else _texts_in_files(store):
        record = json.loads(text) if text else {}
        if "stream" in record:
            place += 1
            yield Line(place, record["stream"], record["seq"], record["type"], record["data"])


def _texts_in_files(store: Path) -> Iterator[bytes]:
    for path in sorted((store / "journal").glob("*.jsonl")):
        yield from path.read_bytes().split(b"\n")


def _texts_in_database(store: Path) -> Iterator[bytes]:
    with closing(sqlite3.connect(f"file:{store / _DATABASE}?mode=ro", uri=True)) as database:
        for (text,) in database.execute("SELECT line FROM events ORDER BY position"):
            yield text


def label_of(request: Line) -> str:
    """Give the label of the task that a request is for: a script's name, or what the shell is told it is called."""
    command: list[str] = request.data["command"]
    return command[3] if len(command) > 1 else Path(command[0]).stem


def is_finished(lines: list[Line]) -> bool:
    """Say whether a task's records say that nothing of it is left."""
    return any(
        line.type == "task/emptied" or (line.type == "task/ended" and not line.data["survivors"]) for line in lines
    )


def judge_tasks(store: Path, journal: Journal, facts: Facts) -> Iterator[str]:
    """Find what is wrong with the tasks of a store in which all have finished."""
    streams = journal.tasks()
    labels = {label_of(lines[0]): id for id, lines in streams.items()}
    if len(labels) != len(streams):
        yield f"{len(streams)} tasks for {len(labels)} commands: one was started twice"
    for label in sorted(facts.tasks.keys() - labels.keys()):
        yield f"{label}: its start was acknowledged, and the journal doesn't know it"
    for label, planned in facts.planned.items():
        noted = notes_of(planned, facts.notes)
        if label not in labels:
            if noted:
                yield f"{label}: it ran, and the journal doesn't know it"
            continue
        id = labels[label]
        if facts.tasks.get(label, id) != id:
            yield f"{label}: it is {id} in the journal, and {facts.tasks[label]} was acknowledged"
        for violation in _judge_task(store / "tasks" / id, planned, streams[id], noted, facts):
            yield f"{label} ({id}): {violation}"
    for id in sorted(facts.lost - streams.keys()):
        yield f"{id}: its shim was killed, and the journal doesn't know it"


def _judge_task(path: Path, planned: MixedTask, lines: list[Line], noted: list[str], facts: Facts) -> Iterator[str]:
    yield from _judge_records(lines)
    ends = [line for line in lines if line.type == "task/ended"]
    if len(ends) != 1:
        yield f"{len(ends)} terminal records"
        return
    end = ends[0].data
    starts = [line for line in noted if line.startswith("start ")]
    if len(starts) > 1:
        yield f"ran {len(starts)} times"
    told = facts.told.get(planned.label)
    if told is not None and {name: end.get(name) for name in told} != told:
        yield f"a wait was told {told}, and recorded is {end}"
    if (lines[0].stream in facts.lost) != (end["state"] == "lost"):
        yield f"{'its shim was killed' if lines[0].stream in facts.lost else 'its shim was left alone'}: {end}"
    elif end["state"] != "lost":
        yield from _judge_end(planned, end, noted, facts)
        yield from _judge_output(path / "output.log", planned, end)
    if (path / "env.json").exists():
        yield "its environment is still there"


def _judge_records(lines: list[Line]) -> Iterator[str]:
    if [line.seq for line in lines] != list(range(len(lines))):
        yield f"its records are numbered {[line.seq for line in lines]}"
    types = [line.type.removeprefix("task/") for line in lines]
    order = ["requested", "started", "stopping", "ended", "emptied"]
    stopped_early = ["requested", "stopping", "started", "ended"]  # its start was seen only by the next node
    if sorted(types, key=order.index) != types and types not in (stopped_early, [*stopped_early, "emptied"]):
        yield f"its records are out of order: {types}"
    if len(set(types)) != len(types):
        yield f"its records are repeated: {types}"


def _judge_end(planned: MixedTask, end: Mapping[str, Any], noted: list[str], facts: Facts) -> Iterator[str]:
    how, by = end.get("how"), end.get("by")
    if by == "owner":
        is_allowed = planned.label in facts.may_lose_owner and not planned.is_kept
    elif by == "stop":
        is_allowed = planned.label in facts.stopped
    else:
        yield from _judge_own_end(planned, end, noted)
        return
    if not is_allowed:
        yield f"nobody did this: {end}"
    if not ("not_started" in (how or {}) or how in (TERM, KILL, planned.how)):
        yield f"it was stopped, and ended so: {end}"


def _judge_own_end(planned: MixedTask, end: Mapping[str, Any], noted: list[str]) -> Iterator[str]:
    how, by = end.get("how"), end.get("by")
    if planned.how is not None and "not_started" in planned.how:
        said = (how or {}).get("not_started", "")
        if planned.how["not_started"] not in said or by != planned.by:
            yield f"it can't be started, and ended so: {end}"
    elif (how, by) != (planned.how, planned.by):
        yield f"it had to end with {planned.how} by {planned.by}, and ended so: {end}"
    elif not noted:
        yield "it ended by itself, and never ran"
    elif by in ("itself", "unknown") and noted[-1] != "end":
        yield f"it ended by itself, and had only done this: {noted}"
    if planned.leaves_process and end["survivors"]:
        left = {int(line.split()[1]) for line in noted if line.startswith("left ")}
        if not left <= {each["pid"] for each in end["survivors"]}:
            yield f"it left {left} behind, and {end['survivors']} are named"


def _judge_output(path: Path, planned: MixedTask, end: Mapping[str, Any]) -> Iterator[str]:
    output = path.read_bytes() if path.exists() else b""
    if end["output_bytes"] != len(output):
        yield f"its output has {len(output)} bytes, and recorded are {end['output_bytes']}"
    if end["by"] not in ("owner", "stop"):
        whole = output[: len(planned.output)] if planned.is_endless_output else output
        if whole != planned.output:
            yield f"its output isn't what it printed: {len(output)} bytes, {output[:100]!r}"
        if len(output) > len(planned.output) + CUT_LINE_BYTES_MAX:
            yield f"its output has {len(output)} bytes, above its limit"
    elif not planned.is_endless_output and not planned.output.startswith(output):
        yield f"its output isn't how that begins which it prints: {len(output)} bytes, {output[:100]!r}"


def judge_notices(journal: Journal, facts: Facts, sessions: Mapping[str, str]) -> Iterator[str]:
    """Find what is wrong with the notices in the inboxes of sessions, which are the labels' ones."""
    labels = {label_of(lines[0]): id for id, lines in journal.tasks().items()}
    expected = {session: set[str]() for session in sessions.values()}
    for label, id in labels.items():
        if facts.planned[label].has_session:
            expected[sessions[label]].add(id)
    for session, tasks in expected.items():
        messages = journal.inbox(session)
        senders = [line.data["sender"] for line in messages if line.data.get("type") == "task/ended"]
        if sorted(senders) != sorted(tasks):
            yield f"{session} was told of {sorted(senders)}, and these were to be told of: {sorted(tasks)}"
        for line in messages:
            sender = line.data.get("sender")
            if sender in tasks:
                end = next(each.data for each in journal.streams[sender] if each.type == "task/ended")
                if line.data["data"] != {"task": sender, **end}:
                    yield f"{session} was told {line.data['data']}, and recorded is {end}"
