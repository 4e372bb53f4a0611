"""Following a task's output as it grows, whatever the task does to its file, until the task has ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from .output import Output

Ended: TypeAlias = Callable[[float], Awaitable[bool]]
"""Waits until the task has ended, but no longer than so many seconds; says whether it has. Called again and again."""


class OutputFollowing:
    """An iterator over the pieces of the output at `path`, from `start` on until the task has ended and all is read.

    For one task at a time. Cancelled in the middle it has lost nothing: the next `__anext__` goes on where it was.
    `aclose` lets go of the files.
    """

    def __init__(self, path: str, ended: Ended, *, start: int = 0) -> None:
        self._path = path
        self._ended = ended
        self._start = start

    def __aiter__(self) -> OutputFollowing:
        return self

    async def __anext__(self) -> Output:
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Let go of the files."""
