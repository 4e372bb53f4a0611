"""The worker processes of one column of the demo, as the host has them: the store's agents, or those over plain files.

Sessions are dealt out to the workers in turn. A worker is asked one thing at a time. An agent over plain files is
itself what writes, so it is what the kills hit, and it is started again.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import anyio

from turnkeeper import ActorNotStarted, ActorRef, ActorUnknown, Runtime, SessionBusy

from ..measuring.marked_processes import WrongProcess
from .agent import Agent
from .killing import kill_child
from .plain_agent import PlainAgent
from .plan import Plan
from .planned_tasks import PlannedTask
from .progress import Column, Kill
from .workbench import Workbench

TURN_SECONDS_MAX = 20.0
"""How long a turn may take, restarts included; then the demo has failed."""

FINISH_SECONDS_MAX = 20.0
"""How long the end of all tasks may take, behind the last turn."""

Steps: TypeAlias = list[tuple[str, dict[str, Any]]]


class StoreAgents:
    """The agents whose sessions are in the store."""

    def __init__(
        self, runtime: Runtime, plan: Plan, store: Path, notes: Path, tasks: Workbench, column: Column
    ) -> None:
        self.column = column
        self.ids: list[str] = [""] * plan.sessions
        self._runtime = runtime
        self._plan = plan
        self._store = store
        self._notes = notes
        self._tasks = str(tasks.root)
        self._refs: dict[int, ActorRef] = {}

    async def start(self, worker: int) -> None:
        """Start one worker with its sessions."""
        sessions = range(worker, self._plan.sessions, self._plan.workers)
        notes = str(self._notes / f"agent-{worker}.jsonl")
        titles = [f"demo-agent-{session:03d}" for session in sessions]
        arguments = (str(self._store), notes, self._tasks, titles)
        ref = self._refs[worker] = await self._runtime.spawn(Agent, *arguments, process=True)
        for session, id in zip(sessions, await ref.ask("ids"), strict=True):
            self.ids[session] = id
        self.column.sessions += len(titles)

    async def replay(self, session: int, number: int, steps: Steps, task: PlannedTask | None) -> None:
        """Have a turn replayed, and count it."""
        place, worker = divmod(session, self._plan.workers)
        planned = None if task is None else task._asdict()
        report = await self._refs[worker].ask("replay", place, number, steps, planned, timeout=TURN_SECONDS_MAX)
        self.column.take(report)

    async def finish(self, worker: int) -> None:
        """Have one worker's tasks ended that are to end before it does."""
        await self._refs[worker].ask("finish", timeout=FINISH_SECONDS_MAX)

    async def try_second_owner(self, session: int) -> None:
        """Open a session here that an agent has open, as a second program would."""
        try:
            intruder = await self._runtime.open_session(self.ids[session])
        except SessionBusy:
            self.column.owners_refused += 1
        else:
            self.column.owners_let_in += 1
            await intruder.aclose()


class PlainAgents:
    """The agents whose sessions are plain files."""

    def __init__(
        self, runtime: Runtime, plan: Plan, files: Path, notes: Path, tasks: Workbench, column: Column
    ) -> None:
        self.column = column
        self._runtime = runtime
        self._plan = plan
        self._files = files
        self._notes = notes
        self._tasks = tasks
        self._starts = count()
        self._refs: dict[int, ActorRef] = {}
        self._pids: dict[int, int] = {}
        self._locks = [anyio.Lock() for _ in range(plan.workers)]

    async def start(self, worker: int) -> None:
        """Start one worker with its sessions."""
        await self._start(worker)
        self.column.sessions += len(self._sessions(worker))

    async def replay(self, session: int, number: int, steps: Steps, task: PlannedTask | None) -> None:
        """Have a turn replayed, and count it; one in which its process is killed is over."""
        report = await self._ask(session, "replay", number, steps, None if task is None else task._asdict())
        if report is not None:
            self.column.take(report)

    async def finish(self, worker: int) -> None:
        """Have one worker's tasks ended, those that its present process has started."""
        await self._refs[worker].ask("finish", timeout=FINISH_SECONDS_MAX)

    async def kill(self, session: int) -> None:
        """Kill the process that writes the session's file, whatever it is doing, and start it again."""
        worker = session % self._plan.workers
        ref, killed = self._refs[worker], None
        while killed is None:
            ref = self._refs[worker]
            try:
                killed = kill_child(self._pids[worker])
            except WrongProcess:  # it died a moment ago, and its successor is on its way
                await self._start_again(worker, ref)
        self.column.kills.append(Kill("agent", killed, replaced=killed))
        await ref.wait_ended()
        await self._start_again(worker, ref)

    async def tear_a_line(self, session: int, number: int) -> None:
        """Have the process that writes the session's file die between two writes of a line, and start it again."""
        await self._ask(session, "die_in_write", number)
        self.column.torn_writes += 1

    async def try_second_owner(self, session: int, number: int, steps: Steps) -> None:
        """Open the session's file in a second process, and replay a turn in it."""
        intruder = await self._spawn([session])
        await intruder.ask("replay", 0, number, steps, None, timeout=TURN_SECONDS_MAX)
        await intruder.stop()
        self.column.owners_let_in += 1

    async def _ask(self, session: int, method: str, *arguments: Any) -> Any:
        """Ask the session's worker; give None if it dies of that, and have one that is dead started again."""
        place, worker = divmod(session, self._plan.workers)
        async with self._locks[worker]:
            while True:
                try:
                    return await self._refs[worker].ask(method, place, *arguments, timeout=TURN_SECONDS_MAX)
                except ActorNotStarted:
                    await self._start(worker)
                except ActorUnknown:
                    await self._start(worker)
                    return None

    async def _start_again(self, worker: int, dead: ActorRef) -> None:
        """Start a worker again, unless somebody else has."""
        async with self._locks[worker]:
            if self._refs[worker] is dead:
                await self._start(worker)

    async def _start(self, worker: int) -> None:
        ref = await self._spawn(self._sessions(worker))
        self._refs[worker], self._pids[worker] = ref, await ref.ask("pid")

    async def _spawn(self, sessions: Iterable[int]) -> ActorRef:
        """Start a process that writes these sessions' files, with a notebook of its own."""
        names = [f"session-{session:03d}" for session in sessions]
        arguments = (str(self._files), str(self._notes), str(self._tasks.root), f"agent-{next(self._starts)}", names)
        return await self._runtime.spawn(PlainAgent, *arguments, process=True)

    def _sessions(self, worker: int) -> range:
        return range(worker, self._plan.sessions, self._plan.workers)
