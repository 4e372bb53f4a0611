"""Where an actor lives, in the loop or in a worker process, and how long it may take until it is ready there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from anyio.abc import TaskGroup

from .actors import spawn_in_loop
from .mailbox_ref import MailboxRef

if TYPE_CHECKING:
    from .workers.worker_process import SpareWorker

Spare: TypeAlias = Callable[[], "SpareWorker"]
"""Gives what keeps a process for the next worker; called only when there is a worker to be started."""

LAST_WORDS_SECONDS = 0.5
"""How much later than a worker process's own time is over its start is given up: its own error says more."""


async def place_actor(
    task_group: TaskGroup,
    actor: Callable[..., Any] | str,
    arguments: tuple[Any, ...],
    *,
    process: bool,
    ready_seconds: float,
    blocked_seconds: float | None,
    spare: Spare | None,
    **options: Any,
) -> MailboxRef | None:
    """Make an actor and return once it is ready; None if it wasn't in its time, and then nothing of it is left.

    `options` are those that both places have. Raises as `spawn_in_loop` and `spawn_in_process` do.
    """
    if not process:
        with anyio.move_on_after(ready_seconds):
            return await spawn_in_loop(task_group, actor, *arguments, **options)  # type: ignore[arg-type]  # it says why
        return None
    # Who has no worker processes needn't import what they need.
    from .workers.worker import spawn_in_process

    options |= {"ready_seconds": ready_seconds, "blocked_seconds": blocked_seconds}
    with anyio.move_on_after(ready_seconds + LAST_WORDS_SECONDS):
        spawn = spawn_in_process(task_group, actor, *arguments, spare=spare and spare(), **options)  # type: ignore[arg-type]
        return await spawn
    return None
