"""Endings that are all carried out, whatever fails: what they raise is kept and told at the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import anyio

Ending: TypeAlias = Callable[[], Awaitable[object]]


async def carry_out_all(failures: list[Exception], endings: Sequence[Ending]) -> None:
    """Run the endings side by side, and keep what they raise. Nothing is raised but cancellation."""
    if endings:
        async with anyio.create_task_group() as tasks:
            for ending in endings:
                tasks.start_soon(carry_out, failures, ending)


async def carry_out(failures: list[Exception], ending: Ending) -> None:
    """Run an ending, and keep what it raises. Nothing is raised but cancellation."""
    try:
        await ending()
    except Exception as failure:
        failures.append(failure)
