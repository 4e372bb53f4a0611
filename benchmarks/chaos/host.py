"""Run as a process: a host of a round, with its agents and followers.

`python -m turnkeeper.benchmarks.chaos.host`, with its `HostStart` as one line of JSON on its standard input. The next
lines are orders: `{"take": [AGENT…]}` to take over sessions from another host, `{"leave": true}` to leave the store in
order, after which it ends with 0. If its input just ends, nobody is there any more who would end it, and it ends at
once. What its agents do is in its notes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from turnkeeper import Runtime, TurnkeeperError, WorkerStartError, open_runtime

from .agent import Agent
from .follower import follow
from .noted_session import Maker
from .notes import Notebook
from .plan import AgentPlan, HostPlan, agent_from_map, host_from_map
from .worker_agent import WorkerAgent

AGAIN_SECONDS = 0.1
FORSAKEN = 3
"""How it ends when nobody is there any more."""

_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class HostStart:
    """What a host has to know: `name` is this run's of it, `after` the positions behind which its followers go on."""

    name: str
    store: str
    notes: str
    bench: str
    plan: Mapping[str, Any]
    peers: list[str]
    after: Mapping[str, int]
    draw: int


class Host:
    """The host's program, from its start to its end."""

    def __init__(self, start: HostStart) -> None:
        self._start = start
        self._plan: HostPlan = host_from_map(start.plan)
        self._notebook = Notebook(Path(start.notes) / f"{start.name}.jsonl")
        self._maker = Maker(start.name)
        self._leaving = anyio.Event()
        self._reached = dict(start.after)
        self._taken: list[AgentPlan] = []
        self._takeovers = 0
        self._has_news = anyio.Event()

    async def run(self) -> None:
        """Work until the order to leave."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._obey)
            while not self._leaving.is_set():
                try:
                    await self._visit()
                except* TurnkeeperError as errors:
                    for error in errors.exceptions:
                        self._notebook.failed("host", error)
                    await anyio.sleep(AGAIN_SECONDS)
            group.cancel_scope.cancel()

    async def _visit(self) -> None:
        """Have the store open, and let everybody work in it."""
        async with open_runtime(self._start.store) as runtime:
            async with anyio.create_task_group() as group:
                for agent in self._plan.agents:
                    self._begin(group, runtime, agent)
                for follower in self._plan.followers:
                    group.start_soon(follow, runtime, follower, self._reached, self._notebook, self._leaving)
                await self._take_over(group, runtime)
            self._notebook.leaving()

    def _begin(self, group: TaskGroup, runtime: Runtime, plan: AgentPlan) -> None:
        if plan.in_worker:
            group.start_soon(self._keep_worker, group, runtime, plan)
        else:
            group.start_soon(self._agent(runtime, plan, self._notebook).work)

    def _agent(self, runtime: Runtime, plan: AgentPlan, notebook: Notebook) -> Agent:
        start = self._start
        bench = Path(start.bench)
        return Agent(runtime, plan, notebook, self._maker, start.peers, bench, self._leaving, start.draw)

    async def _take_over(self, group: TaskGroup, runtime: Runtime) -> None:
        """Take sessions over as it is ordered.

        Each time with notes of its own: ordered twice, it has the same session open twice for a while, and whoever
        reads notes can't tell two openings in one file apart.
        """
        while not self._leaving.is_set():
            while self._taken:
                self._takeovers += 1
                notes = Path(self._start.notes) / f"{self._start.name}.taken-{self._takeovers}.jsonl"
                agent = self._agent(runtime, self._taken.pop(), Notebook(notes))

                async def work(agent: Agent = agent) -> None:
                    await agent.work(takeover=True)

                group.start_soon(work)
            await self._has_news.wait()
            self._has_news = anyio.Event()

    async def _keep_worker(self, group: TaskGroup, runtime: Runtime, plan: AgentPlan) -> None:
        """Keep an agent alive in a worker process, another one when that was killed."""
        number = 0
        while not self._leaving.is_set():
            number += 1
            start = self._start
            notes = Path(start.notes) / f"{start.name}.{plan.name}.{number}.jsonl"
            arguments = (start.store, str(notes), plan.as_map(), start.peers, start.bench, start.draw + number)
            try:
                ref = await runtime.spawn(WorkerAgent, *arguments, process=True)
            except (WorkerStartError, TimeoutError) as error:
                self._notebook.failed("worker", error)
                await anyio.sleep(AGAIN_SECONDS)
                continue
            async with anyio.create_task_group() as watching:
                watching.start_soon(self._stop_when_leaving, ref.stop)
                await ref.wait_ended()
                watching.cancel_scope.cancel()

    async def _stop_when_leaving(self, stop: Any) -> None:
        await self._leaving.wait()
        await stop()

    async def _obey(self) -> None:
        async for order in _orders():
            if order.get("leave"):
                self._leaving.set()
            self._taken += [agent_from_map(each) for each in order.get("take", ())]
            self._has_news.set()


async def _orders() -> AsyncIterator[dict[str, Any]]:
    """Give each order, without end."""
    rest = b""
    while True:
        await anyio.wait_readable(0)
        content = os.read(0, _READ_BYTES)
        if not content:
            os._exit(FORSAKEN)
        *lines, rest = (rest + content).split(b"\n")
        for line in lines:
            yield json.loads(line)


def main() -> None:
    """Be a host."""
    start = HostStart(**json.loads(_first_line()))
    anyio.run(Host(start).run, backend=host_from_map(start.plan).loop)


def _first_line() -> bytes:
    """Read no further than this line: the rest is for the loop."""
    line = b""
    while not line.endswith(b"\n"):
        content = os.read(0, 1)
        if not content:
            sys.exit(FORSAKEN)
        line += content
    return line


if __name__ == "__main__":
    main()
