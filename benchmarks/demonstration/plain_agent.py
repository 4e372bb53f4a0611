"""The same agent over plain files: one JSONL file a session, opened for appending, no locks, as programs often do it.

What reached `write` survives the death of the process, and is acknowledged then; nothing is synced, so a power cut may
take it. A line longer than the file's buffer takes several writes, and between two of them the process may die. Who
opens a file goes on behind the last line that can be read, whoever else is doing so, too. Its tasks are its children.
"""

from __future__ import annotations

import io
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from .agent_report import Span, TurnReport
from .oracle import Notebook
from .plain_tasks import PlainTasks
from .planned_tasks import PlannedTask, place_of_call
from .workbench import Workbench

LONG_LINE_CHARACTERS = 64 * 1024
"""Of an output that a buffer of 8 KiB doesn't hold."""


class PlainAgent:
    """The agent of some sessions, given by their names: those of their files in `directory`.

    `label` names its own files: its notes in `notes`, and those that it has in its column's workbench, `tasks`.
    """

    def __init__(self, directory: str, notes: str, tasks: str, label: str, names: list[str]) -> None:
        self._notebook = Notebook(Path(notes) / f"{label}.jsonl")
        self._tasks = PlainTasks(Workbench(Path(tasks)), label)
        self._files = [_PlainFile(Path(directory) / f"{name}.jsonl") for name in names]

    async def __aenter__(self) -> PlainAgent:
        return self

    async def __aexit__(self, *exception: object) -> None:
        for file in self._files:
            file.close()
        self._notebook.close()
        self._tasks.close()

    async def pid(self) -> int:
        """Give the process to kill."""
        return os.getpid()

    async def replay(
        self, session: int, number: int, steps: list[tuple[str, dict[str, Any]]], task: dict[str, Any] | None
    ) -> TurnReport:
        """Replay a turn, the session's `number`th, with its task, and note its events once they are written."""
        file = self._files[session]
        await self._tasks.stop_due(file.name, number)
        events: list[tuple[int, str, dict[str, Any]]] = []
        flushes: list[Span] = []
        starts: list[Span] = []
        call = place_of_call(steps) + 1  # behind the turn's beginning
        for place, (type, data) in enumerate(_turn(number, steps)):
            began = time.monotonic()
            events.append((file.append(type, data), type, data))
            flushes.append((began, time.monotonic()))
            if place == call and task is not None:
                starts.append(await self._tasks.start(PlannedTask.from_map(task), file.name, number))
        self._notebook.note(file.name, events)
        return {"events": len(events), "flushes": flushes, "starts": starts}

    async def finish(self) -> None:
        """Stop the tasks that last, and wait for all others."""
        await self._tasks.finish()

    async def die_in_write(self, session: int, number: int) -> None:
        """Begin a turn, and die by SIGKILL between two writes of one long line of it."""
        file = self._files[session]
        start = {"turn": number}
        self._notebook.note(file.name, [(file.append("turn/start", start), "turn/start", start)])
        file.raw.lethal = True
        file.append("tool/finished", {"id": f"long-{number}", "output": "x" * LONG_LINE_CHARACTERS})
        raise RuntimeError("a line of 64 KiB was written at once")


def _turn(number: int, steps: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """Give the events of a turn; those of a turn that is replayed again are new ones."""
    events: list[tuple[str, dict[str, Any]]] = [("turn/start", {"turn": number})]
    for place, (type, data) in enumerate(steps):
        events.append((type, {**data, "turn": number, "step": place}))
    return [*events, ("turn/end", {"turn": number, "reason": "completed"})]


class _RawFile(io.FileIO):
    """A file that, once `lethal`, ends its process after the next write."""

    lethal = False

    def write(self, content: Any) -> int:
        written = super().write(content)
        if self.lethal:
            os.kill(os.getpid(), signal.SIGKILL)
        return written


class _PlainFile:
    """One session's file, its next number found by reading what is there."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._next = _last_number(path) + 1
        self.raw = _RawFile(path, "a")
        self._text = io.TextIOWrapper(io.BufferedWriter(self.raw), encoding="utf-8")

    def append(self, type: str, data: dict[str, Any]) -> int:
        """Write an event, give it to the system, and return its number."""
        seq = self._next
        json.dump({"seq": seq, "time": time.time_ns() // 1_000_000, "type": type, "data": data}, self._text)
        self._text.write("\n")
        self._text.flush()
        self._next = seq + 1
        return seq

    def close(self) -> None:
        self._text.close()


def _last_number(path: Path) -> int:
    """Give the number of the last line that can be read; -1 where there is none."""
    last = -1
    if path.exists():
        for line in path.read_bytes().split(b"\n"):
            try:
                last = json.loads(line)["seq"]
            except ValueError:
                continue
    return last
