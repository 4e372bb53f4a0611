"""The tasks of an agent whose sessions are in the store, started as any program would.

Each has a key: where an answer is late, the agent gives up waiting and asks again. All that it must wait for, or stop,
before it ends is kept here; the rest goes on without it.
"""

from __future__ import annotations

import time
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

import anyio
import anyio.to_thread

from turnkeeper import Runtime, Session, Task

from .agent_report import Span
from .planned_tasks import PlannedTask
from .task_oracle import NotedTask, TaskEnd, TaskNotebook, output_digest
from .workbench import Workbench, task_name


class _Lasting(NamedTuple):
    task: Task
    session: str
    output_bytes: int
    stop_turn: int | None


class AgentTasks:
    """The tasks that one agent starts; `label` names its notes."""

    def __init__(self, runtime: Runtime, bench: Workbench, label: str) -> None:
        self._runtime = runtime
        self._bench = bench
        self._notebook = TaskNotebook(bench.notes / f"{label}.jsonl")
        self._lasting: list[_Lasting] = []
        self._awaited: list[Task] = []

    async def start(self, planned: PlannedTask, session: Session, title: str, turn: int) -> Span:
        """Start the task of a session's turn, wait for its end if that is planned, and tell how long the start took."""
        name = task_name(title, turn)
        output = planned.output(name)
        end = TaskEnd(planned.end, planned.by)
        note = NotedTask(name, end, output_digest(output), not planned.lasts, session.id)
        await anyio.to_thread.run_sync(self._notebook.note, note)
        ask = partial(
            self._runtime.start_task,
            self._bench.argv(name, planned),
            key=name,
            session=session,
            cwd=str(self._bench.root),
            env=self._bench.environment(name),
            on_owner_exit="keep" if planned.keep else "kill",
        )
        began = time.monotonic()
        if planned.give_up_ms is not None:
            with anyio.move_on_after(planned.give_up_ms / 1000):
                await ask()
        task = await ask()
        running = time.monotonic()
        await anyio.to_thread.run_sync(self._notebook.note_acknowledged, name)
        if planned.waits:
            await task.wait()
        if planned.lasts:
            stop_turn = None if planned.stop_after is None else turn + planned.stop_after
            self._lasting.append(_Lasting(task, session.id, len(output), stop_turn))
        elif not planned.keep:
            self._awaited.append(task)
        return began, running

    async def stop_due(self, session: Session, turn: int) -> None:
        """Stop what is to last until this turn of a session."""
        for each in self._lasting.copy():
            if each.session == session.id and each.stop_turn is not None and each.stop_turn <= turn:
                await self._stop(each)

    async def finish(self) -> None:
        """Stop all that is to be stopped, and wait for what would else be ended with this agent before its time."""
        for each in self._lasting.copy():
            if each.stop_turn is None:
                await _wait_printed(each)
            else:
                await self._stop(each)
        await self._runtime.wait_tasks(*self._awaited, tree=True)

    def close(self) -> None:
        """Close the notes."""
        self._notebook.close()

    async def _stop(self, lasting: _Lasting) -> None:
        await _wait_printed(lasting)
        await lasting.task.stop()
        self._lasting.remove(lasting)


async def _wait_printed(lasting: _Lasting) -> None:
    """Wait until a task that lasts has printed all that it prints."""
    async with aclosing(lasting.task.follow()) as pieces:
        async for piece in pieces:
            if piece.end >= lasting.output_bytes:
                return
