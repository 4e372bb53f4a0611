"""An agent in a worker process of its host: an actor that works from its start to its stop, with notes of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio

from turnkeeper import open_runtime

from .agent import Agent
from .noted_session import Maker
from .notes import Notebook
from .plan import agent_from_map


class WorkerAgent:
    """The actor. `notes` is the path of its notebook, whose name nobody else's values have."""

    def __init__(
        self, store: str, notes: str, plan: Mapping[str, Any], peers: Sequence[str], bench: str, draw: int
    ) -> None:
        self._store = store
        self._notes = Path(notes)
        self._plan = agent_from_map(plan)
        self._peers = peers
        self._bench = Path(bench)
        self._draw = draw
        self._resources = AsyncExitStack()
        self._leaving = anyio.Event()

    async def __aenter__(self) -> WorkerAgent:
        notebook = self._resources.enter_context(Notebook(self._notes))
        runtime = await self._resources.enter_async_context(open_runtime(self._store))
        self._resources.callback(notebook.leaving)
        maker = Maker(self._notes.stem)
        agent = Agent(runtime, self._plan, notebook, maker, self._peers, self._bench, self._leaving, self._draw)
        group = await self._resources.enter_async_context(anyio.create_task_group())
        group.start_soon(agent.work)
        return self

    async def __aexit__(self, *exception: Any) -> None:
        self._leaving.set()
        await self._resources.__aexit__(*exception)

    async def name(self) -> str:
        """Give the agent's name: an actor has to be one that can be asked."""
        return self._plan.name
