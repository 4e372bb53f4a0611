"""An agent of the demo: replays turns in sessions of the store, and starts tasks, from a worker process of its own.

After a turn, whose end `Session.turn` makes durable, it notes all events of the turn in a synced file outside the
store. It only knows the public face; that writer, node or spawner die meanwhile it sees as a flush, or a task's start,
that takes longer.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio.to_thread

from turnkeeper import Runtime, Session, open_runtime
from turnkeeper.actors.folding import Effect

from .agent_report import Span, TurnReport
from .agent_tasks import AgentTasks
from .oracle import Notebook
from .planned_tasks import PlannedTask, place_of_call
from .workbench import Workbench


class Agent:
    """The agent of some sessions, given by their titles, in the store at `store`; `tasks` is its column's workbench."""

    def __init__(self, store: str, notes: str, tasks: str, titles: list[str]) -> None:
        self._store = store
        self._bench = Workbench(Path(tasks))
        self._titles = titles
        self._notebook = Notebook(Path(notes))
        self._resources = AsyncExitStack()
        self._sessions: list[Session] = []

    async def __aenter__(self) -> Agent:
        self._resources.callback(self._notebook.close)
        runtime: Runtime = await self._resources.enter_async_context(open_runtime(self._store))
        self._tasks = AgentTasks(runtime, self._bench, self._titles[0])
        self._resources.callback(self._tasks.close)
        for title in self._titles:
            session = await runtime.create_session(title=title, agent="demo")
            self._sessions.append(await self._resources.enter_async_context(session))
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._resources.__aexit__(*exception)

    async def ids(self) -> list[str]:
        """Give the sessions' ids."""
        return [session.id for session in self._sessions]

    async def replay(
        self, session: int, number: int, steps: list[tuple[str, dict[str, Any]]], task: dict[str, Any] | None
    ) -> TurnReport:
        """Replay a turn, the session's `number`th, with its task, and note its events once they are durable."""
        replayed = _Turn(self._sessions[session], number)
        starts: list[Span] = []

        async def start_task() -> None:
            if task is not None:
                planned = PlannedTask.from_map(task)
                starts.append(await self._tasks.start(planned, replayed.session, self._titles[session], number))

        await self._tasks.stop_due(replayed.session, number)
        await replayed.replay(steps, start_task)
        await anyio.to_thread.run_sync(self._notebook.note, replayed.session.id, replayed.events)
        return {"events": len(replayed.events), "flushes": replayed.flushes, "starts": starts}

    async def finish(self) -> None:
        """Wait for the tasks that must not end with this agent."""
        await self._tasks.finish()


class _Turn:
    """One turn being replayed: keeps what was appended, for the notes, and the time of each flush."""

    def __init__(self, session: Session, number: int) -> None:
        self.session = session
        self.number = number
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.flushes: list[Span] = []

    async def replay(self, steps: list[tuple[str, dict[str, Any]]], start_task: Callable[[], Awaitable[None]]) -> None:
        """Append the turn's events; its task is what its first call runs, or its last step without one."""
        call = place_of_call(steps)
        self._keep("turn/start", {"turn": self.number})
        async with self.session.turn():
            for place, (type, data) in enumerate(steps):
                await self._step(place, type, data)
                if place == call:
                    await start_task()
            self._keep("turn/end", {"turn": self.number, "reason": "completed"})
            leaving = time.monotonic()
        self.flushes.append((leaving, time.monotonic()))

    async def _step(self, place: int, type: str, data: dict[str, Any]) -> None:
        """Append an event as an agent would. A transcript is replayed many times: each time its events are new ones."""
        session = self.session
        began = time.monotonic()
        if type == "tool/started":
            id, name, arguments = f"{data['id']}-{self.number}", data["name"], data.get("arguments")
            effect: Effect = data.get("effect") or "once"
            self._keep(type, {"id": id, "name": name, "arguments": arguments, "effect": effect})
            await session.tool_started(id, name, arguments, effect=effect)
        elif type == "tool/finished":
            id, output, error = f"{data['id']}-{self.number}", data.get("output"), data.get("error")
            result = {"id": id, "output": output}
            self._keep(type, result if error is None else {**result, "error": error})
            await session.tool_finished(id, output, error=error)
            return
        else:
            data = {**data, "turn": self.number, "step": place}
            self._keep(type, data)
            await session.append(type, data)
            if type != "user/message":
                return
            await session.flush()
        self.flushes.append((began, time.monotonic()))

    def _keep(self, type: str, data: dict[str, Any]) -> None:
        """Keep an event that is appended next, under the number that it will have."""
        self.events.append((self.session.head, type, data))
