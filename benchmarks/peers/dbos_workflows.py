"""DBOS on SQLite: a session is a workflow, and a flush a step of it, whose output is the events.

The step's output is what DBOS makes durable before the workflow goes on. A workflow waits for the next flush without
DBOS, so that this isn't measured. Importing this needs `dbos`, which is no dependency; nothing but the file is used:
no conductor, no OpenTelemetry.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from dbos import DBOS, SetWorkflowID

from ..measuring.durability import Durability
from .keeping import TEXT, Keeper
from .sqlite_connections import ConnectionWatch

_Wanted: TypeAlias = tuple[Sequence[str], anyio.Event]
"""What a flush is of, and what hears that it is done."""

_EVENTS_A_STEP: Final = 10
"""How many events a step of a session has that is only filled to be read."""

_wanted: dict[int, ObjectReceiveStream[_Wanted]] = {}
"""What each session's workflow is to do: a workflow's own arguments would be stored."""


@DBOS.step()  # type: ignore[untyped-decorator]  # its types are left out, as they may not be there
async def bring_events(texts: Sequence[str]) -> list[dict[str, str]]:
    """Give what an agent's turn has brought."""
    return [{"role": "assistant", "content": text} for text in texts]


@DBOS.workflow()  # type: ignore[untyped-decorator]  # as above
async def run_session(session: int) -> None:
    """Make a step whenever one is wanted."""
    async with _wanted[session] as wanted:
        async for texts, done in wanted:
            await bring_events(texts)
            done.set()


class WorkflowKeeper:
    """A workflow for each session."""

    def __init__(self, wanting: Sequence[ObjectSendStream[_Wanted]], watch: ConnectionWatch) -> None:
        self._wanting = wanting
        self._watch = watch

    async def flush(self, session: int, texts: Sequence[str]) -> None:
        """Let the session's workflow make a step."""
        done = anyio.Event()
        await self._wanting[session].send((texts, done))
        await done.wait()

    async def settle(self) -> None:
        """Do nothing: the file grows with every step, and the journal beside it is always new."""

    async def fill(self, session: int, events: int) -> None:
        """Make steps of some events each."""
        for begun in range(0, events, _EVENTS_A_STEP):
            await self.flush(session, [TEXT] * min(_EVENTS_A_STEP, events - begun))

    async def read(self, session: int) -> int:
        """List the workflow's steps with what they gave."""
        return sum([len(step["output"]) for step in await DBOS.list_workflow_steps_async(_workflow_id(session))])

    async def durability(self) -> Durability:
        """Ask the connection that was opened last."""
        return self._watch.durability()


def _workflow_id(session: int) -> str:
    return f"session-{session:08d}"


@asynccontextmanager
async def open_keeper(directory: Path, sessions: int) -> AsyncIterator[Keeper]:
    """Launch DBOS, and start the sessions' workflows."""
    watch = ConnectionWatch()
    config: Any = {
        "name": "turnkeeper-bench",
        "system_database_url": f"sqlite:///{directory / 'dbos.sqlite'}",
        "log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()
    wanting, handles = [], []
    try:
        for session in range(sessions):
            sending, _wanted[session] = anyio.create_memory_object_stream[_Wanted](math.inf)
            wanting.append(sending)
            with SetWorkflowID(_workflow_id(session)):
                handles.append(await DBOS.start_workflow_async(run_session, session))
        yield WorkflowKeeper(wanting, watch)
    finally:
        for sending in wanting:
            sending.close()
        for handle in handles:
            await handle.get_result()
        DBOS.destroy()
