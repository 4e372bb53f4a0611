"""Ray's actors, as exchanges (`driving.exchanges`): each in a worker process, told and asked through remote calls.

A Ray of its own runs for each exchange, with two processors and without dashboard, as `ray.init` starts one on a single
machine; it isn't the local mode, which starts no process. Its object store is small, as messages of this size don't go
through it. Usage statistics are off: its processes talk to each other, over the machine's own address, and to nobody
else. Its queues have no bounds: a sender never waits for its receiver. Importing this needs Ray, which is no
dependency.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

import ray
import trio

from ..driving.exchanges import TEXT, ask_figures, tell_figures
from ..measuring.measured_process import stand_by
from ..measuring.runs import Figures

_SETTINGS: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns of its next release
}

_CPUS: Final = 2
_STORE_BYTES: Final = 80_000_000
"""The least that Ray allows."""


class RayTaker:
    """Does what our Taker does."""

    def __init__(self) -> None:
        self._taken = 0

    def take(self, text: str) -> None:
        """Do nothing but count."""
        self._taken += 1

    def echo(self, text: str) -> str:
        """Give it back."""
        return text

    def taken(self) -> int:
        """Tell how many were taken since this was asked last."""
        taken, self._taken = self._taken, 0
        return taken


def tell_ray(starter: Connection, directory: str) -> None:
    """Tell an actor in another process."""
    _use_actor(starter, directory, _time_tells)


def ask_ray(starter: Connection, directory: str) -> None:
    """Ask an actor in another process."""
    _use_actor(starter, directory, _time_asks)


def _use_actor(starter: Connection, directory: str, exchange: Callable[[Any, int], Figures]) -> None:
    os.environ.update(_SETTINGS)
    # Sockets in Ray's directory allow paths of some forty characters: this one is short wherever it leads.
    os.chdir(directory)
    ray.init(
        address="local",
        num_cpus=_CPUS,
        include_dashboard=False,
        object_store_memory=_STORE_BYTES,
        log_to_driver=False,
        logging_level="error",
        _temp_dir=f"/proc/{os.getpid()}/cwd/ray-{os.getpid()}",
    )
    try:
        ref = ray.remote(RayTaker).remote()
        ray.get(ref.taken.remote())
        trio.run(stand_by, starter, partial(_block, exchange, ref))
    finally:
        ray.shutdown()


async def _block(exchange: Callable[[Any, int], Figures], ref: Any, messages: int) -> Figures:
    return exchange(ref, messages)


def _time_tells(ref: Any, messages: int) -> Figures:
    begin = time.perf_counter_ns()
    for _ in range(messages):
        ref.take.remote(TEXT)
    return tell_figures(begin, messages, ray.get(ref.taken.remote()))


def _time_asks(ref: Any, messages: int) -> Figures:
    spent, right = [], 0
    for _ in range(messages):
        begin = time.perf_counter_ns()
        right += ray.get(ref.echo.remote(TEXT)) == TEXT
        spent.append(time.perf_counter_ns() - begin)
    return ask_figures(spent, right)
