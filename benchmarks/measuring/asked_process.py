"""Processes that do what they are asked for, one thing after the other: readers, forkers, followers of one store.

Each is a host of its own, with a loop and a store that stays open; between two questions it does nothing but what it
began in its loop before. What it has made before the first one is kept from its garbage collector (`gc.freeze`), as in
a host that has run for a while.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from .measured_process import StandingProcess, stand_by

Answer: TypeAlias = Callable[..., Awaitable[Any]]


class AskedProcess(StandingProcess):
    """A process that runs `function(connection, *arguments)`, which answers by `answer_all`."""

    def ask(self, what: str, *arguments: Any) -> Any:
        """Let it do something, and give its answer. Raises what that raised."""
        self.begin(what, *arguments)
        return self.outcome()

    def begin(self, what: str, *arguments: Any) -> None:
        """Let it begin to do something."""
        self.tell((what, arguments))


async def answer_all(starter: Connection, answers: Mapping[str, Answer]) -> None:
    """Say that all is ready, then answer question after question, until the starter wants nothing more."""

    async def answer(question: tuple[str, tuple[Any, ...]]) -> Any:
        what, arguments = question
        return await answers[what](*arguments)

    await stand_by(starter, answer)
