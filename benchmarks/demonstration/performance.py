"""The plan, carried out: agents replay turns and start tasks, by the store and without it, and things are killed.

Both columns have the same agents, turns, tasks and moments. Of the store the kills hit writer, node or spawner; of the
plain files the process that writes one, which is the agent itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from turnkeeper import Runtime, open_runtime

from ..stores.transcripts import Transcript
from .columns import PlainAgents, Steps, StoreAgents
from .killing import kill_serving, watch_successor
from .oracle import Found, stored_event
from .plan import Plan, PlannedKill, PlannedMischief
from .progress import Kill, Progress
from .task_oracle import FoundTask, FoundTasks, TaskEnd, output_digest
from .workbench import Workbench

PATIENCE_SECONDS = 15.0
"""How long a killed server's successor may take; then the demo has failed."""

LATE_SECONDS_MAX = 6.0
"""How long after the planned end agents still begin turns: on a machine that can't keep the pace some are left out."""

TASKS_SECONDS_MAX = 20.0
"""How long after its agents' end a task that outlives them may go on; then it is judged as it is."""

_PAGE = 1000


class Place:
    """Where a demo keeps its files: the store, the plain files, and outside of both what agents and tasks note."""

    def __init__(self, root: Path, store: Path) -> None:
        self.store = store
        self.tasks = Workbench(root / "tasks")
        self.plain_tasks = Workbench(root / "plain-tasks")
        self.plain = root / "plain"
        self.store_notes = root / "notes"
        self.plain_notes = root / "plain-notes"
        for directory in (self.plain, self.store_notes, self.plain_notes):
            directory.mkdir()


async def perform(plan: Plan, transcripts: Sequence[Transcript], place: Place, progress: Progress) -> list[str]:
    """Carry out the plan; give the ids of the sessions in the store, whose node has ended when this returns.

    Raises what an agent failed with, WrongProcess for a kill that could not be done or that nothing came back from.
    """
    async with open_runtime(place.store) as runtime:
        performance = _Performance(runtime, plan, transcripts, place, progress)
        await performance.start()
        await performance.run()
        await performance.finish()
        progress.phase = "ending the agents"
        return performance.store.ids


async def read_back(store: Path, ids: Sequence[str], tasks: Sequence[str]) -> tuple[Found, FoundTasks]:
    """Open the store again and read every session and every task, known by its key, through the product."""
    found, found_tasks = Found(), {}
    async with open_runtime(store) as runtime:
        for id in ids:
            events = found.sessions[id]
            while page := await runtime.read(id, start=len(events), limit=_PAGE):
                events += [stored_event(event.seq, event.type, event.data) for event in page]
        states = await runtime.wait_tasks(*tasks, tree=True, timeout=TASKS_SECONDS_MAX)
        for name, state in zip(tasks, states, strict=True):
            output = await runtime.task(state.id).output()
            ends = [TaskEnd(state.how, state.by)] if state.is_over else []
            found_tasks[name] = FoundTask(ends, [output_digest(output.data)])
    return found, found_tasks


class _Performance:
    def __init__(
        self, runtime: Runtime, plan: Plan, transcripts: Sequence[Transcript], place: Place, progress: Progress
    ) -> None:
        store, plain = progress.store, progress.plain
        self.store = StoreAgents(runtime, plan, place.store, place.store_notes, place.tasks, store)
        self.plain = PlainAgents(runtime, plan, place.plain, place.plain_notes, place.plain_tasks, plain)
        self._plan = plan
        self._transcripts = transcripts
        self._place = place
        self._progress = progress
        self._began = 0.0

    async def start(self) -> None:
        """Start all workers of both columns."""
        async with anyio.create_task_group() as group:
            for worker in range(self._plan.workers):
                group.start_soon(self.store.start, worker)
                group.start_soon(self.plain.start, worker)

    async def run(self) -> None:
        """Replay all turns and do all that is planned meanwhile."""
        plan = self._plan
        self._began = time.monotonic()
        self._progress.phase = "replaying"
        async with anyio.create_task_group() as group:
            for session in range(plan.sessions):
                group.start_soon(self._replay, self.store, session)
                group.start_soon(self._replay, self.plain, session)
            for kill in plan.kills:
                group.start_soon(self._kill_server, kill)
                group.start_soon(self._kill_plain, kill)
            group.start_soon(self._second_owner, plan.second_owner)
            group.start_soon(self._second_plain_owner, plan.second_owner)
            if plan.torn_write is not None:
                group.start_soon(self._torn_write, plan.torn_write)

    async def finish(self) -> None:
        """Have the tasks ended that are to end before their agents."""
        self._progress.phase = "ending the tasks"
        async with anyio.create_task_group() as group:
            for worker in range(self._plan.workers):
                group.start_soon(self.store.finish, worker)
                group.start_soon(self.plain.finish, worker)

    async def _until(self, at_ms: int) -> None:
        await anyio.sleep(max(0.0, self._began + at_ms / 1000 - time.monotonic()))

    def _steps(self, transcript: int, turn: int) -> Steps:
        return [(step.type, step.data) for step in self._transcripts[transcript].turns[turn]]

    async def _replay(self, agents: StoreAgents | PlainAgents, session: int) -> None:
        end = self._began + self._plan.seconds + LATE_SECONDS_MAX
        for number, turn in enumerate(self._plan.turns[session], 1):
            await self._until(turn.at_ms)
            if time.monotonic() > end:
                return
            await agents.replay(session, number, self._steps(turn.transcript, turn.turn), turn.task)

    async def _kill_server(self, planned: PlannedKill) -> None:
        store, victim = self._place.store, planned.victim
        await self._until(planned.at_ms)
        found, killed = await anyio.to_thread.run_sync(kill_serving, store, victim, PATIENCE_SECONDS)
        # A dead writer or spawner does nothing more; a dead node leaves a writer that ends in order.
        kill = Kill(victim, killed, replaced=None if victim == "node" else killed)
        self._progress.store.kills.append(kill)
        await anyio.to_thread.run_sync(watch_successor, store, kill, found, PATIENCE_SECONDS)

    async def _kill_plain(self, planned: PlannedKill) -> None:
        await self._until(planned.at_ms)
        await self.plain.kill(planned.session)

    async def _second_owner(self, planned: PlannedMischief) -> None:
        await self._until(planned.at_ms)
        await self.store.try_second_owner(planned.session)

    async def _second_plain_owner(self, planned: PlannedMischief) -> None:
        await self._until(planned.at_ms)
        first = self._plan.turns[planned.session][0]
        steps = self._steps(first.transcript, first.turn)
        await self.plain.try_second_owner(planned.session, len(self._plan.turns[planned.session]) + 2, steps)

    async def _torn_write(self, planned: PlannedMischief) -> None:
        await self._until(planned.at_ms)
        await self.plain.tear_a_line(planned.session, len(self._plan.turns[planned.session]) + 1)
