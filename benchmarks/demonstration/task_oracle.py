"""Judges whether tasks ended as they had to, ran once, and left nothing behind; shares no code with the product.

What must happen stands in *notes*: files outside the store, each one agent's own and synced, a line before a task's
start is asked for and one after it was acknowledged. Each task also has a *witness*, a file into which its command
itself writes that it begins and how it ends. What is recorded is read from the journal's lines, as oracle.py reads
them, and from the files that hold what tasks printed; or it is handed over as the product read it back. Processes that
are left are handed over, too.

One function states what must hold of each task that began or whose start was acknowledged: exactly one record says how
it ended, and says that rightly; its command ran exactly once; what it printed is there, byte for byte; its session was
told once; and nothing of any task is left.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from .oracle import VIOLATIONS_MAX, is_task, journal_records, told_session

_REQUESTED, _ENDED = "task/requested", "task/ended"
_BEGAN = "began"


class TaskEnd(NamedTuple):
    """How a task ended: {"code": n} or {"signal": n}, None for nobody knows; `by` None where that isn't said."""

    how: Mapping[str, Any] | None
    by: str | None

    def __str__(self) -> str:
        how = "nobody knows how"
        if self.how is not None:
            how = ", ".join(f"{name} {value}" for name, value in self.how.items())
        return how if self.by is None else f"{how}, by {self.by}"


class NotedTask(NamedTuple):
    """What somebody noted of a task: how it must end, what it prints, and whether its start was acknowledged.

    `ends_itself`: its command says in the witness how it ends. `session` is to be told of the end.
    """

    name: str
    end: TaskEnd
    output: str
    ends_itself: bool
    session: str | None = None
    is_acknowledged: bool = False


@dataclass(slots=True)
class FoundTask:
    """What is recorded of a task: each end, a digest of what it printed, and which sessions were told of an end.

    A task that was recorded twice under one name has all of both. `told` is None where that can't be seen.
    """

    ends: list[TaskEnd] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    told: list[str] | None = None


FoundTasks = Mapping[str, FoundTask]


@dataclass(frozen=True, slots=True)
class TaskVerdict:
    """What was found, and what is wrong: everything from `wrong_exits` on is 0 where all promises were kept."""

    tasks: int = 0
    wrong_exits: int = 0
    wrong_runs: int = 0
    wrong_outputs: int = 0
    wrong_notices: int = 0
    orphans: int = 0
    violations: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Say whether every promise was kept."""
        wrong = (self.wrong_exits, self.wrong_runs, self.wrong_outputs, self.wrong_notices, self.orphans)
        return not any(wrong)


def output_digest(content: bytes) -> str:
    """Give the digest of what a task printed."""
    return blake2b(content, digest_size=16).hexdigest()


# -- notes


class TaskNotebook:
    """An agent's own file of the tasks that it starts; a note is on disk when the method returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, task: NotedTask) -> None:
        """Write down a task whose start is asked for next."""
        self._write({**task._asdict(), "end": task.end._asdict()})

    def note_acknowledged(self, name: str) -> None:
        """Write down that a start was acknowledged."""
        self._write({"acknowledged": name})

    def _write(self, note: Mapping[str, Any]) -> None:
        os.write(self._file, json.dumps(note).encode() + b"\n")
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_task_notes(paths: Iterable[Path]) -> list[NotedTask]:
    """Read what was noted. A last line without its end was never finished, by an agent that died: it says nothing."""
    noted: dict[str, NotedTask] = {}
    for note in _lines(paths):
        if "acknowledged" in note:
            name = note["acknowledged"]
            noted[name] = noted[name]._replace(is_acknowledged=True)
        else:
            noted[note["name"]] = NotedTask(**{**note, "end": TaskEnd(**note["end"])})
    return list(noted.values())


def _lines(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        for line in path.read_bytes().split(b"\n")[:-1]:
            yield json.loads(line)


# -- what is recorded


def read_journal_tasks(store: Path) -> FoundTasks:
    """Read what a store's journal says of its tasks, each by its key, and what its directories hold of their output."""
    names: dict[str, str] = {}
    found: dict[str, FoundTask] = defaultdict(lambda: FoundTask(told=[]))
    for record in journal_records(store):
        stream, data = record["stream"], record["data"]
        if is_task(stream):
            if record["type"] == _REQUESTED:
                name = names[stream] = data.get("key", stream)
                found[name].outputs.append(_output_of(store / "tasks" / stream / "output.log"))
            elif record["type"] == _ENDED:
                found[names.get(stream, stream)].ends.append(TaskEnd(data.get("how"), data.get("by")))
        elif (session := told_session(stream)) is not None and data.get("type") == _ENDED:
            task = data["data"]["task"]
            told = found[names.get(task, task)].told
            assert told is not None
            told.append(session)
    return found


def read_logs(logs: Iterable[Path], outputs: Path) -> FoundTasks:
    """Read what agents without a store wrote down of their tasks' ends, and what their tasks printed into `outputs`."""
    found: dict[str, FoundTask] = defaultdict(FoundTask)
    for path in outputs.iterdir():
        found[path.name].outputs.append(_output_of(path))
    for line in _lines(logs):
        found[line["task"]].ends.append(TaskEnd(line["end"], None))
    return found


def _output_of(path: Path) -> str:
    return output_digest(path.read_bytes()) if path.exists() else "no file"


def read_witnesses(directory: Path) -> Mapping[str, list[str]]:
    """Read what each task's command wrote down of itself."""
    return {path.name: path.read_text().splitlines() for path in directory.iterdir()}


# -- the judgement


def judge_tasks(
    noted: Sequence[NotedTask],
    witnesses: Mapping[str, Sequence[str]],
    readings: Sequence[FoundTasks],
    left: Sequence[int] = (),
) -> TaskVerdict:
    """Compare what had to happen with what is recorded, in each of several readings: what is wrong in one is wrong."""
    known = {task.name: task for task in noted}
    ended = {name for found in readings for name, task in found.items() if task.ends}
    began = [task for task in known.values() if task.is_acknowledged or task.name in ended or task.name in witnesses]
    strangers = sorted({name for found in (*readings, witnesses) for name in found} - known.keys())

    def worst(check: Callable[[NotedTask, FoundTask], str | None]) -> list[str]:
        """Say what is wrong with each task in the first reading in which something is."""
        wrongs = ([check(task, found.get(task.name, FoundTask())) for found in readings] for task in began)
        return [wrong for each in wrongs if (wrong := next(filter(None, each), None)) is not None]

    runs = [_wrong_run(task, witnesses.get(task.name, ())) for task in began]
    wrong = {
        "wrong_exits": worst(_wrong_end),
        "wrong_runs": [each for each in runs if each is not None]
        + [f"wrong run: nobody asked for {name}" for name in strangers],
        "wrong_outputs": worst(_wrong_output),
        "wrong_notices": worst(_wrong_notice),
        "orphans": [f"orphan: process {pid}" for pid in left],
    }
    counts = {kind: len(found) for kind, found in wrong.items()}
    violations = [each for found in wrong.values() for each in found]
    return TaskVerdict(tasks=len(began), violations=tuple(violations[:VIOLATIONS_MAX]), **counts)


def _wrong_end(task: NotedTask, found: FoundTask) -> str | None:
    if len(found.ends) == 1 and found.ends[0].how == task.end.how and task.end.by in (None, found.ends[0].by):
        return None
    said = "; and ".join(map(str, found.ends)) or "nobody knows how"
    return f"wrong end: {task.name} ended: {task.end}; recorded: {said}"


def _wrong_run(task: NotedTask, witness: Sequence[str]) -> str | None:
    wanted = [_BEGAN, str(TaskEnd(task.end.how, None))] if task.ends_itself else [_BEGAN]
    if list(witness) == wanted:
        return None
    return f"wrong run: {task.name} witnessed {', '.join(witness) or 'nothing'}, not {', '.join(wanted)}"


def _wrong_output(task: NotedTask, found: FoundTask) -> str | None:
    return None if found.outputs == [task.output] else f"wrong output: {task.name}"


def _wrong_notice(task: NotedTask, found: FoundTask) -> str | None:
    if found.told is None:
        return None
    wanted = [] if task.session is None else [task.session]
    return None if found.told == wanted else f"wrong notices: {task.name} was told to {found.told}, not to {wanted}"
