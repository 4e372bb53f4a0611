"""Processes that do what they are asked for, one thing after the other: readers, forkers, followers of one store.

Each is a host of its own, with a loop and a store that stays open; between two questions it does nothing but what it
began in its loop before. What it has made before the first one is kept from its garbage collector (`gc.freeze`), as in
a host that has run for a while.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, Self, TypeAlias

import anyio

from .hosts import LEAVE_SECONDS
from .measured_process import MeasuredProcess

Answer: TypeAlias = Callable[..., Awaitable[Any]]


class AskedProcess:
    """A process that runs `function(connection, *arguments)`, which answers by `answer_all`.

    Left as a context manager, it ends in order; if it is in the middle of an answer it is killed.
    """

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        self._process = MeasuredProcess(function, *arguments, ending_seconds=LEAVE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.__exit__(*exception)

    def wait_ready(self) -> None:
        """Wait until it can be asked. Raises what kept it from that."""
        self._process.receive()

    def ask(self, what: str, *arguments: Any) -> Any:
        """Let it do something, and give its answer. Raises what that raised."""
        self.begin(what, *arguments)
        return self.answer()

    def begin(self, what: str, *arguments: Any) -> None:
        """Let it begin to do something."""
        self._process.ending_seconds = 0.0  # it hears of nothing before the end of what it begins now
        self._process.send((what, arguments))

    def answer(self) -> Any:
        """Wait for the answer to what was begun."""
        answer = self._process.receive()
        self._process.ending_seconds = LEAVE_SECONDS
        return answer


async def answer_all(starter: Connection, answers: Mapping[str, Answer]) -> None:
    """Say that all is ready, then answer question after question, until the starter wants nothing more."""
    gc.collect()
    gc.freeze()
    starter.send("ready")
    while True:
        await anyio.wait_readable(starter)
        try:
            what, arguments = starter.recv()
        except EOFError:
            return
        starter.send(await answers[what](*arguments))
