"""Running a command that needs an event loop, so that Ctrl-C ends it in order, and within a second in any case."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar

import anyio

from . import INTERRUPTED

ORDERLY_END_SECONDS = 0.8
"""How long a command may take to end in order after Ctrl-C: sessions are closed and the node is left meanwhile."""

Answer = TypeVar("Answer")


def run_in_loop(function: Callable[[], Awaitable[Answer]]) -> Answer:
    """Run the function in an event loop and return what it returns.

    Ctrl-C cancels it, and KeyboardInterrupt is raised when it has ended. If that takes too long (a store that doesn't
    answer, an output that nobody reads) the process ends at once. The loop is asyncio's, which costs the least to load.
    """
    return anyio.run(_run, function, backend="asyncio")


async def _run(function: Callable[[], Awaitable[Answer]]) -> Answer:
    answers: list[Answer] = []
    interrupted = False
    with _interrupts() as arrived:

        async def end_on_interrupt() -> None:
            nonlocal interrupted
            await anyio.wait_readable(arrived)
            interrupted = True
            tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(end_on_interrupt)
                answers.append(await function())
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise (KeyboardInterrupt() if interrupted else group.exceptions[0]) from None
    if interrupted or not answers:
        raise KeyboardInterrupt
    return answers[0]


@contextmanager
def _interrupts() -> Iterator[socket.socket]:
    """Give a socket that is readable once Ctrl-C was pressed.

    A handler of our own rather than the loop's, because it runs even while the main thread is stuck in a write.
    """
    arrived, sender = socket.socketpair()
    sender.setblocking(False)

    def note(number: int, frame: FrameType | None) -> None:
        timer = threading.Timer(ORDERLY_END_SECONDS, os._exit, (INTERRUPTED,))
        timer.daemon = True
        timer.start()
        with suppress(OSError):
            sender.send(b"!")

    before = signal.signal(signal.SIGINT, note)
    try:
        with arrived, sender:
            yield arrived
    finally:
        signal.signal(signal.SIGINT, before)
