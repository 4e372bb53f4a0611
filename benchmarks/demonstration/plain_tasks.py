"""The tasks of an agent over plain files, as programs of today run commands: careful ones, that write codes down.

Each command is a child in a process session of its own, with a file for its output. The moment it ends, its exit code
is appended to the agent's log. A stop is SIGTERM to the whole process group. Before the agent ends it waits for all, as
nobody could tell the codes later. An agent that dies leaves what it started to nobody: its successor is no parent.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from typing import Any, NamedTuple

import anyio
import anyio.to_thread

from .agent_report import Span
from .planned_tasks import PlannedTask
from .task_oracle import NotedTask, TaskEnd, TaskNotebook, output_digest
from .workbench import Workbench, task_name

_LOOK_SECONDS = 0.01


class _Running(NamedTuple):
    name: str
    process: subprocess.Popen[bytes]
    end: threading.Thread
    session: str
    output_bytes: int
    is_lasting: bool
    stop_turn: int | None


class PlainTasks:
    """The tasks that one agent process starts; `label` names its notes and its log."""

    def __init__(self, bench: Workbench, label: str) -> None:
        self._bench = bench
        self._notebook = TaskNotebook(bench.notes / f"{label}.jsonl")
        self._log = (bench.logs / f"{label}.jsonl").open("ab", buffering=0)
        self._running: list[_Running] = []

    async def start(self, planned: PlannedTask, session: str, turn: int) -> Span:
        """Start the task of a session's turn, wait for its end if that is planned, and tell how long the start took."""
        name = task_name(session, turn)
        output = planned.output(name)
        note = NotedTask(name, TaskEnd(planned.end, None), output_digest(output), not planned.lasts)
        self._notebook.note(note)
        began = time.monotonic()
        process = self._run(name, planned)
        running = time.monotonic()
        end = threading.Thread(target=self._log_end, args=(name, process), daemon=True)
        end.start()
        self._notebook.note_acknowledged(name)
        stop_turn = None if planned.stop_after is None else turn + planned.stop_after
        started = _Running(name, process, end, session, len(output), planned.lasts, stop_turn)
        self._running.append(started)
        if planned.waits:
            await self._wait(started)
        return began, running

    async def stop_due(self, session: str, turn: int) -> None:
        """Stop what is to last until this turn of a session."""
        for each in self._running.copy():
            if each.session == session and each.stop_turn is not None and each.stop_turn <= turn:
                await self._stop(each)

    async def finish(self) -> None:
        """Stop what lasts, and wait for all the rest."""
        for each in self._running.copy():
            if each.is_lasting:
                await self._stop(each)
            else:
                await self._wait(each)

    def close(self) -> None:
        """Close log and notes."""
        self._log.close()
        self._notebook.close()

    def _run(self, name: str, planned: PlannedTask) -> subprocess.Popen[bytes]:
        with (self._bench.outputs / name).open("wb") as output:
            return subprocess.Popen(
                self._bench.argv(name, planned),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._bench.root,
                env={**os.environ, **self._bench.environment(name)},
                start_new_session=True,
            )

    def _log_end(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """Wait for a command, in a thread of its own, and write down at once how it ended."""
        code = process.wait()
        line: dict[str, Any] = {"task": name, "end": {"code": code} if code >= 0 else {"signal": -code}}
        self._log.write(json.dumps(line).encode() + b"\n")

    async def _stop(self, running: _Running) -> None:
        """Stop a command once it has printed all that it prints."""
        await anyio.to_thread.run_sync(self._wait_printed, running)
        if running.process.returncode is None:
            os.killpg(running.process.pid, signal.SIGTERM)
        await self._wait(running)

    def _wait_printed(self, running: _Running) -> None:
        output = self._bench.outputs / running.name
        while output.stat().st_size < running.output_bytes and running.end.is_alive():
            time.sleep(_LOOK_SECONDS)

    async def _wait(self, running: _Running) -> None:
        await anyio.to_thread.run_sync(running.end.join)
        if running in self._running:
            self._running.remove(running)
