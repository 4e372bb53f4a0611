"""Processes that carry a mark in their environments: all that was started under it, in whatever session, by whomever.

A pid is only a number: the process that has it is held by a pidfd first, and is killed only if it is the one that is
meant. Linux only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from turnkeeper.runtime.tasks.tree import environment_of

_LOOK_SECONDS: Final = 0.02


class WrongProcess(RuntimeError):
    """The process that was to be killed, or to come in its place, is not there."""


@contextmanager
def carrying(variable: str, value: str) -> Iterator[None]:
    """Have all processes that are started meanwhile, by whomever of them, carry a mark in their environments."""
    before = os.environ.get(variable)
    os.environ[variable] = value
    try:
        yield
    finally:
        os.environ.pop(variable)
        if before is not None:
            os.environ[variable] = before


def belongs(pid: int, mark: str) -> bool:
    """Say whether a process carries the mark: a variable of its environment begins so. One that is gone doesn't."""
    return any(each.startswith(os.fsencode(mark)) for each in environment_of(pid))


def left_behind(mark: str) -> list[int]:
    """List the living processes that carry the mark, but for this one."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [pid for pid in pids if pid != os.getpid() and belongs(pid, mark)]


def wait_left_behind(mark: str, patience: float) -> list[int]:
    """List what is left once nothing is, or after `patience` seconds: what is ending may take that long."""
    deadline = time.monotonic() + patience
    while (left := left_behind(mark)) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return left


def kill_left_behind(mark: str, patience: float) -> None:
    """Kill all processes that carry the mark, until nothing of them is left.

    Raises WrongProcess if that takes longer than `patience` seconds.
    """
    deadline = time.monotonic() + patience
    while left := left_behind(mark):
        if time.monotonic() >= deadline:
            raise WrongProcess(f"processes {left} can't be ended")
        for pid in left:
            with suppress(WrongProcess):
                kill_meant(pid, partial(belongs, pid, mark))
        time.sleep(_LOOK_SECONDS)


def kill_meant(pid: int, is_meant: Callable[[], bool]) -> float:
    """Hold the process that has the pid now, look whether it is the one that is meant, and kill that very one."""
    try:
        held = os.pidfd_open(pid)
    except ProcessLookupError:
        raise WrongProcess(f"there is no process {pid} to kill") from None
    try:
        if not is_meant():
            raise WrongProcess(f"process {pid} is not the one that was to be killed")
        signal.pidfd_send_signal(held, signal.SIGKILL)
        return time.monotonic()
    except (FileNotFoundError, ProcessLookupError):
        raise WrongProcess(f"process {pid} ended before it could be killed") from None
    finally:
        os.close(held)
