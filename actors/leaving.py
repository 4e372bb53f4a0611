"""What is left in order whatever fails: endings that are all carried out, and what becomes of what they raise."""

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


def note_or_raise(error: BaseException | None, failure: Exception) -> None:
    """Raise the failure of an ending, or make it a note of the exception that the body ended with."""
    if error is None:
        raise failure
    if str(failure) != str(error):
        error.add_note(f"turnkeeper: {failure}")
