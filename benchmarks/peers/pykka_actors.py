"""Pykka's actors, as exchanges (`driving.exchanges`): each is a thread of its own, and blocks whoever asks it.

Importing this needs Pykka, which is no dependency. Its mailboxes have no bounds, so a sender never waits for its
receiver.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import pykka
import trio

from ..driving.exchanges import TEXT, ask_figures, tell_figures
from ..measuring.measured_process import stand_by
from ..measuring.runs import Figures


class PykkaTaker(pykka.ThreadingActor):  # type: ignore[misc]  # its types are left out, as they may not be there
    """Counts texts and gives them back; asked with None it tells how many it took since it was asked so last."""

    def __init__(self) -> None:
        super().__init__()
        self._taken = 0

    def on_receive(self, message: str | None) -> Any:
        if message is not None:
            self._taken += 1
            return message
        taken, self._taken = self._taken, 0
        return taken


def tell_pykka(starter: Connection, directory: str) -> None:
    """Tell an actor in another thread of the process."""
    _use_actor(starter, _time_tells)


def ask_pykka(starter: Connection, directory: str) -> None:
    """Ask an actor in another thread of the process."""
    _use_actor(starter, _time_asks)


def _use_actor(starter: Connection, exchange: Callable[[Any, int], Figures]) -> None:
    ref = PykkaTaker.start()
    try:
        trio.run(stand_by, starter, partial(_block, exchange, ref))
    finally:
        ref.stop()


async def _block(exchange: Callable[[Any, int], Figures], ref: Any, messages: int) -> Figures:
    return exchange(ref, messages)


def _time_tells(ref: Any, messages: int) -> Figures:
    begin = time.perf_counter_ns()
    for _ in range(messages):
        ref.tell(TEXT)
    return tell_figures(begin, messages, ref.ask(None))


def _time_asks(ref: Any, messages: int) -> Figures:
    spent, right = [], 0
    for _ in range(messages):
        begin = time.perf_counter_ns()
        right += ref.ask(TEXT) == TEXT
        spent.append(time.perf_counter_ns() - begin)
    return ask_figures(spent, right)
