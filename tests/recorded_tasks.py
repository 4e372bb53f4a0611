"""Tasks that only the journal knows: their records, and the way on which the node brings them there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from turnkeeper.actors.node.tasks.recorder import Recorder
from turnkeeper.actors.tasks.records import TaskRequest, ended, requested
from turnkeeper.storage.requests import Post

from .served import SECONDS_MAX


def request(task: str, **more: str) -> Post:
    """Make a task's first record."""
    asked = TaskRequest(id=task, command=["true"], cwd="/", grace=5.0, limit=9, keep=True, starter={}, **more)  # type: ignore[arg-type]
    return requested(asked, 5)


def end(task: str, code: int = 0) -> Post:
    """Make its last one."""
    return ended(task, {"how": {"code": code}, "by": "itself", "output_bytes": 0}, 7, is_tree_empty=True)


@asynccontextmanager
async def recording(store: Path) -> AsyncIterator[Recorder]:
    """Record as the store's node does."""
    recorder = Recorder(str(store))
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(SECONDS_MAX):
            await tasks.start(recorder.run)
        yield recorder
        tasks.cancel_scope.cancel()
