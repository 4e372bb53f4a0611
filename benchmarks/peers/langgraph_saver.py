"""LangGraph's SQLite saver, called as the steps of an agent call it whose graph is run with `durability="sync"`.

A step stores what its node wrote, and then a checkpoint: two transactions, the second of which holds the whole state.
So a step costs what the state is large, and the state of a conversation is all its messages. What is measured has
states of so many messages and no more, as of an agent that trims its history. Importing this needs
`langgraph-checkpoint-sqlite`, which is no dependency; tracing to LangSmith is off.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from ..measuring.durability import Durability, sqlite_durability
from .keeping import SETTLING_EVENTS, TEXT, Keeper

_CHANNEL: Final = "messages"
_NODE: Final = "agent"


@dataclass(slots=True)
class _Thread:
    """A thread of a graph: where its last checkpoint is, how many steps it has made, and its state."""

    config: dict[str, Any]
    steps: int = 0
    messages: list[Any] = field(default_factory=list)


class SaverKeeper:
    """Threads of a graph whose state is the last `state_messages` messages."""

    def __init__(self, saver: Any, sessions: int, state_messages: int) -> None:
        self._saver = saver
        self._state_messages = state_messages
        self._threads = [
            _Thread({"configurable": {"thread_id": f"session-{number:08d}", "checkpoint_ns": ""}})
            for number in range(sessions)
        ]

    async def flush(self, session: int, texts: Sequence[str]) -> None:
        """Make one step, of a node that gives so many messages."""
        await self._step(self._threads[session], texts, max(len(texts), self._state_messages))

    async def settle(self) -> None:
        """Let the log reach its size."""
        await self.fill(0, SETTLING_EVENTS)

    async def fill(self, session: int, events: int) -> None:
        """Make one step whose state is the whole history."""
        await self._step(self._threads[session], [TEXT] * events, events)

    async def _step(self, thread: _Thread, texts: Sequence[str], state_messages: int) -> None:
        new = [AIMessage(content=text, id=f"{thread.steps}-{number}") for number, text in enumerate(texts)]
        if thread.steps:
            await self._saver.aput_writes(thread.config, [(_CHANNEL, new)], f"task-{thread.steps}")
        thread.steps += 1
        thread.messages = [*thread.messages, *new][-state_messages:]
        versions = {_CHANNEL: f"{thread.steps:032}"}
        checkpoint = {
            **empty_checkpoint(),
            "id": str(uuid6(clock_seq=thread.steps)),
            "channel_values": {_CHANNEL: thread.messages},
            "channel_versions": versions,
            "versions_seen": {_NODE: {_CHANNEL: f"{thread.steps - 1:032}"}},
            "updated_channels": [_CHANNEL],
        }
        metadata = {"source": "loop", "step": thread.steps, "parents": {}}
        thread.config = await self._saver.aput(thread.config, checkpoint, metadata, versions)

    async def read(self, session: int) -> int:
        """Get the last state."""
        configurable = {"thread_id": f"session-{session:08d}", "checkpoint_ns": ""}
        found = await self._saver.aget_tuple({"configurable": configurable})
        return len(found.checkpoint["channel_values"][_CHANNEL])

    async def durability(self) -> Durability:
        """Ask the saver's connection."""
        found = []
        for name in ("journal_mode", "synchronous"):
            async with self._saver.conn.execute(f"PRAGMA {name}") as cursor:
                found.append((await cursor.fetchone())[0])
        return sqlite_durability(*found)


@asynccontextmanager
async def _open_keeper(directory: Path, sessions: int, *, state_messages: int) -> AsyncIterator[Keeper]:
    os.environ["LANGSMITH_TRACING"] = "false"
    async with AsyncSqliteSaver.from_conn_string(str(directory / "checkpoints.sqlite")) as saver:
        yield SaverKeeper(saver, sessions, state_messages)


open_keeper = partial(_open_keeper, state_messages=1)
"""Opens a saver of states that are one message: the least that a step can cost."""

open_conversation_keeper = partial(_open_keeper, state_messages=100)
"""Opens a saver of states of a hundred messages."""
