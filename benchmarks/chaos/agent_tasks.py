"""The tasks that one run of an agent starts: noted before and behind, waited for, stopped, or left to themselves.

Each has a key, so that where an answer is late the agent gives up waiting and asks again. A task that is not kept ends
with its host, in whatever state it is then.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import NamedTuple

import anyio

from turnkeeper import Runtime, Task, TurnkeeperError

from .notes import Notebook
from .planned_tasks import ChaosTask, draw_task

AGAIN_SECONDS = 0.1
STARTS_MAX = 20

LASTING_MAX = 3
"""So many tasks that last an agent has at a time; one more, and it stops the first."""


class _Lasting(NamedTuple):
    key: str
    task: Task
    output_bytes: int


class AgentTasks:
    """The tasks of one run of an agent; `bench` has what their commands need: `witnesses`, and the FIFO `hold`."""

    def __init__(self, runtime: Runtime, bench: Path, notebook: Notebook, random: Random) -> None:
        self._runtime = runtime
        self._bench = bench
        self._notebook = notebook
        self._random = random
        self._lasting: list[_Lasting] = []

    async def start(self, key: str, session: str) -> None:
        """Start one, and wait for its end, or not; raises what the last attempt raised."""
        planned = draw_task(self._random)
        argv = planned.argv(key, self._bench)
        self._notebook.starting(
            key,
            argv,
            session=session,
            policy="keep" if planned.is_kept else "kill",
            how=planned.how(self._bench),
            by=planned.by,
            output=planned.output_digest(key),
            ends_itself=planned.ends_itself,
        )
        task = await self._ask(planned, argv, key, session)
        id = await task.known_id()
        self._notebook.started(key, id)
        if planned.lasts:
            self._lasting.append(_Lasting(key, task, len(planned.output(key))))
            if len(self._lasting) > LASTING_MAX:
                await self._stop(self._lasting.pop(0))
        elif self._random.random() < planned.wait_share:
            state = await task.wait()
            self._notebook.ended(key, id, state.state, state.how, state.by)

    async def _ask(self, planned: ChaosTask, argv: list[str], key: str, session: str) -> Task:
        """Ask for its start, giving up soon the first time, now and then, and again after errors."""
        options: Mapping[str, object] = {
            "key": key,
            "session": session,
            "cwd": str(self._bench),
            "on_owner_exit": "keep" if planned.is_kept else "kill",
            **planned.options,
        }
        if self._random.random() < 0.2:
            with anyio.move_on_after(self._random.random() * 0.03):
                await self._runtime.start_task(argv, **options)  # type: ignore[arg-type]
        for _ in range(STARTS_MAX - 1):
            try:
                return await self._runtime.start_task(argv, **options)  # type: ignore[arg-type]
            except TurnkeeperError as error:
                self._notebook.failed("start task", error)
                await anyio.sleep(AGAIN_SECONDS)
        return await self._runtime.start_task(argv, **options)  # type: ignore[arg-type]

    async def _stop(self, lasting: _Lasting) -> None:
        """Stop one, once it has printed all that it prints."""
        async with aclosing(lasting.task.follow()) as pieces:
            async for piece in pieces:
                if piece.end >= lasting.output_bytes:
                    break
        self._notebook.stopping(lasting.key)
        await lasting.task.stop()
