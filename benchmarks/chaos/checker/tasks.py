"""Promises about tasks: each start is one task, which ran once and has one end, the right one, told to its session.

What a task must end with was noted before it began. It may end otherwise only by what was done to it: somebody asked
for its stop, the process that started it was killed or left, or its shim was killed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

from ...demonstration.oracle import is_task
from ...demonstration.task_oracle import TaskEnd
from ..notes import Note
from .evidence import Evidence
from .messages import inbox_of
from .stored import Stored, StoredEvent
from .violations import Violation

_ORDER: Final = ("requested", "started", "stopping", "ended", "emptied")
_SEEN_LATE: Final = ("requested", "stopping", "started", "ended", "emptied")
"""A stop was recorded, and the start seen only by the next node."""

_CUT: Final = "…"
"""What ends a text of which only the beginning is told."""

_SIGNALS: Final = ({"signal": 15}, {"signal": 9})
"""How a stop ends what doesn't end itself."""


@dataclass(slots=True)
class _Task:
    """What is known of one key: the note before its start, those after, and the streams that have it."""

    key: str
    starting: Note
    started: list[Note] = field(default_factory=list)
    ended: list[Note] = field(default_factory=list)
    is_stopped: bool = False
    streams: list[str] = field(default_factory=list)

    @property
    def expect(self) -> Mapping[str, Any]:
        """How it ends if nobody interferes."""
        expect: Mapping[str, Any] = self.starting["expect"]
        return expect


def starts_are_one_task(evidence: Evidence) -> Iterator[Violation]:
    """A start that was acknowledged is in the journal, under that id; however often it was asked for, it is one."""
    tasks = _tasks(evidence)
    for task in tasks.values():
        if len(task.streams) > 1:
            yield _violation("one task", task, f"it was started {len(task.streams)} times: {', '.join(task.streams)}")
        for note in task.started:
            if note["id"] not in task.streams:
                says = (
                    f"its start was acknowledged as {note['id']}; the journal has {', '.join(task.streams) or 'none'}"
                )
                yield _violation("one task", task, says, note)
    for stream in _task_streams(evidence.stored):
        key = _request_of(evidence.stored, stream).get("key")
        if key not in tasks:
            yield Violation("one task", stream, f"nobody asked for it (key {key})")


def tasks_end_once_and_right(evidence: Evidence) -> Iterator[Violation]:
    """Each task has one end, as it had to or as was done to it; its records are in order; who waited was told so."""
    struck = _struck(evidence)
    for task in _tasks(evidence).values():
        for stream in task.streams:
            events = evidence.stored.streams[stream]
            yield from _judge_records(task, events)
            ends = [event for event in events if event.type == "task/ended"]
            if len(ends) == 1:
                may_be_lost = _is_shim_struck(stream, evidence, struck["shim"]) or _has_lost_power(
                    evidence, task.starting["at"]
                )
                yield from _judge_end(task, ends[0].data, struck, may_be_lost)
                yield from _judge_told(task, ends[0].data)
            elif ends or evidence.is_settled:
                yield _violation("task ends", task, f"it has {len(ends)} ends")


def tasks_run_once(evidence: Evidence) -> Iterator[Violation]:
    """A task's command ran once, or never if it was ended before; one that ended itself did all that it had to."""
    if evidence.witnesses is None:
        return
    tasks = _tasks(evidence)
    for key in sorted(evidence.witnesses.keys() - tasks.keys()):
        yield Violation("task runs", key, "it ran, and nobody asked for it")
    for task in tasks.values():
        witness = list(evidence.witnesses.get(task.key, ()))
        runs = witness.count("began")
        if runs > 1:
            yield _violation("task runs", task, f"it ran {runs} times")
        elif runs and not task.streams:
            yield _violation("task runs", task, "it ran, and the journal doesn't know it")
        for end in _ends(task, evidence.stored):
            how = end.get("how") or {}
            is_own = end.get("by") in ("itself", "unknown") and end.get("state") == "ended"
            said = ["began", str(TaskEnd(how, None))] if task.expect["ends_itself"] else ["began"]
            if is_own and "not_started" not in how and witness != said:
                yield _violation("task runs", task, f"it ended by itself, and witnessed {witness}, not {said}")
            if "not_started" in how and runs:
                yield _violation("task runs", task, "it was never started, as its end says, and ran")


def outputs_are_whole(evidence: Evidence) -> Iterator[Violation]:
    """What a task printed that ended as it had to is there, byte for byte, and no end tells of more than is there.

    Who is left behind by a command may print more after its end. Nobody syncs what commands print, so nothing can be
    said of it where the power was cut.
    """
    if evidence.outputs is None or _has_lost_power(evidence):
        return
    for task in _tasks(evidence).values():
        for stream, end in zip(task.streams, _ends(task, evidence.stored), strict=False):
            output = evidence.outputs.get(stream)
            size = 0 if output is None else output.size
            if end.get("output_bytes", size) > size:
                says = f"it printed {end['output_bytes']} bytes, as its end says, and {size} are there"
                yield _violation("task outputs", task, says)
            wanted = task.expect["output"]
            is_due = (end.get("how"), end.get("by")) == (task.expect["how"], task.expect["by"])
            if is_due and wanted is not None and (output is None or output.digest != wanted):
                yield _violation("task outputs", task, f"its output isn't what it printed: {size} bytes")


def sessions_are_told_once(evidence: Evidence) -> Iterator[Violation]:
    """The session of a task has one message about its end, which says the same; nobody else has any."""
    stored = evidence.stored
    told: dict[str, list[tuple[str, StoredEvent]]] = defaultdict(list)
    for session in stored.sessions():
        for message in inbox_of(stored, session):
            if message.data.get("type") == "task/ended" and is_task(str(message.data.get("sender"))):
                told[str(message.data["sender"])].append((session, message))
    for task in _tasks(evidence).values():
        for stream, end in zip(task.streams, _ends(task, stored), strict=False):
            session = task.starting["session"]
            who = [each for each, _ in told[stream]]
            may_be_untold = session is None or stored.is_deleted(session) or not stored.streams.get(session)
            if who != [session] and not (may_be_untold and not who):
                yield _violation("task notices", task, f"its end was told to {who}, and {session} was to be told once")
            for _, message in told[stream]:
                if message.data.get("data") != {"task": stream, **end}:
                    yield _violation(
                        "task notices", task, f"its end is {end}, and what was told is {message.data.get('data')}"
                    )


# -- One task


def _violation(promise: str, task: _Task, says: str, note: Note | None = None) -> Violation:
    return Violation(promise, task.key, says, note=note or task.starting)


def _judge_records(task: _Task, events: Sequence[StoredEvent]) -> Iterator[Violation]:
    types = [event.type.removeprefix("task/") for event in events if event.type != "task/stalled"]
    unknown = set(types) - set(_ORDER)
    if unknown or not any(types == [each for each in order if each in types] for order in (_ORDER, _SEEN_LATE)):
        yield _violation("task ends", task, f"its records are {', '.join(types)}")


def _judge_end(
    task: _Task, end: Mapping[str, Any], struck: Mapping[str, set[int]], may_be_lost: bool
) -> Iterator[Violation]:
    how, by, expect = end.get("how"), end.get("by"), task.expect
    said = f"it ended with {dict(how or {}) or end.get('why')} by {by}"
    if end.get("state") == "lost":
        if not may_be_lost:
            yield _violation("task ends", task, f"{said}: it is called lost, and nobody killed its shim")
    elif by == "stop" or (by == "owner" and task.starting["policy"] == "kill"):
        is_allowed = task.is_stopped if by == "stop" else task.starting["pid"] in struck["owner"]
        if (how, by) == (expect["how"], expect["by"]):
            return
        if not is_allowed:
            yield _violation("task ends", task, f"{said}, and nobody did that")
        elif not ("not_started" in (how or {}) or how in _SIGNALS or how == expect["how"]):
            yield _violation("task ends", task, f"{said}, and a stop doesn't end it so")
    elif not _is_expected(how, by, expect):
        yield _violation("task ends", task, f"{said}; it had to end with {expect['how']} by {expect['by']}")


def _is_expected(how: Mapping[str, Any] | None, by: str | None, expect: Mapping[str, Any]) -> bool:
    """Compare an end with the one that was due; why a command can't be started is said in more words than noted."""
    wanted = expect["how"] or {}
    if "not_started" in wanted:
        return by == expect["by"] and wanted["not_started"] in (how or {}).get("not_started", "")
    return (how, by) == (expect["how"], expect["by"])


def _judge_told(task: _Task, end: Mapping[str, Any]) -> Iterator[Violation]:
    for note in task.ended:
        told = (note["state"], note["how"], note["by"])
        found = (end.get("state"), end.get("how"), end.get("by"))
        if not _is_told(told, found):
            yield _violation("task ends", task, f"a wait was told {told}, and recorded is {found}", note)


def _is_told(told: tuple[Any, ...], found: tuple[Any, ...]) -> bool:
    """Say whether a wait was told what is recorded; of why a command can't be started it may be the beginning."""
    if told == found:
        return True
    (state, how, by), (its_state, its_how, its_by) = told, found
    if (state, by) != (its_state, its_by) or not {"not_started"} == {*(how or ())} == {*(its_how or ())}:
        return False
    text, whole = str(how["not_started"]), str(its_how["not_started"])
    return text.endswith(_CUT) and len(text) > len(_CUT) and whole.startswith(text.removesuffix(_CUT))


# -- What is known


def _tasks(evidence: Evidence) -> dict[str, _Task]:
    tasks: dict[str, _Task] = {}
    for note in evidence.notes.get("starting", ()):
        tasks.setdefault(note["task"], _Task(note["task"], note))
    for word in ("started", "ended"):
        for note in evidence.notes.get(word, ()):
            getattr(tasks[note["task"]], word).append(note)
    for note in evidence.notes.get("stopping", ()):
        tasks[note["task"]].is_stopped = True
    for stream in _task_streams(evidence.stored):
        task = tasks.get(_request_of(evidence.stored, stream).get("key", ""))
        if task is not None:
            task.streams.append(stream)
    return tasks


def _task_streams(stored: Stored) -> list[str]:
    return [stream for stream, events in stored.streams.items() if is_task(stream) and events]


def _request_of(stored: Stored, stream: str) -> Mapping[str, Any]:
    return stored.streams[stream][0].data


def _ends(task: _Task, stored: Stored) -> list[Mapping[str, Any]]:
    """Give the ends of a task's streams that have one."""
    found = [[event.data for event in stored.streams[stream] if event.type == "task/ended"] for stream in task.streams]
    return [ends[0] for ends in found if ends]


def _is_shim_struck(stream: str, evidence: Evidence, struck: Set[int]) -> bool:
    """Say whether a task's shim was struck: that of its record, or that which began it and died before there was one.

    Where neither is known, and nobody has looked for those that began something, any one is enough.
    """
    recorded = [event.data["shim"]["pid"] for event in evidence.stored.streams[stream] if event.type == "task/started"]
    if recorded:
        return recorded[0] in struck
    return bool(struck) if evidence.shims is None else evidence.shims.get(stream) in struck


def _has_lost_power(evidence: Evidence, since: float = 0.0) -> bool:
    """Say whether the power was cut, since a moment: then what nobody had synced is lost, a task's files among it."""
    return any(note["kind"] == "power" and note["at"] > since for note in evidence.notes.get("strike", ()))


def _struck(evidence: Evidence) -> dict[str, set[int]]:
    """Give the pids of those whose death, or leaving, may have ended tasks: shims, and owners."""
    struck: dict[str, set[int]] = {"shim": set(), "owner": {note["pid"] for note in evidence.notes.get("leaving", ())}}
    for note in evidence.notes.get("strike", ()):
        if note["kind"] in ("kill", "stop"):
            struck["owner"].update(note["pids"])
            if note["target"] in ("shim", "spawner", "all"):
                struck["shim"].update(note["pids"])
    return struck
