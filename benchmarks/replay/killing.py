"""Kills the processes that serve a store, and nothing else, and sees when somebody serves it again.

A pid is only a number: the process that has it is held by a pidfd first, and is killed only if it works in the store's
directory, as node and writer do. A worker is killed if it is a child of this process.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from turnkeeper.actors.asking import ask_hello
from turnkeeper.actors.protocol import SERVING

from .plan import Victim
from .progress import Kill

_LOOK_SECONDS = 0.01


class WrongProcess(RuntimeError):
    """The process that was to be killed, or to come in its place, is not there."""


def find_server(store: Path, victim: Victim, patience: float) -> int:
    """Give the pid of the store's node or writer, waiting for one that is being started. Raises WrongProcess."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        hello = ask_hello(str(store), patience)
        pid = None if hello is None else hello["pid" if victim == "node" else "writer"]
        if isinstance(pid, int):
            return pid
        time.sleep(_LOOK_SECONDS)
    raise WrongProcess(f"no {victim} serves {store}")


def kill_server(pid: int, store: Path) -> float:
    """Kill a process that serves the store; give the time of it, by the monotonic clock. Raises WrongProcess."""
    own = os.stat(store)

    def works_in_store() -> bool:
        found = os.stat(f"/proc/{pid}/cwd")
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)

    return _kill(pid, works_in_store)


def kill_child(pid: int) -> float:
    """Kill a process that this one has started; give the time of it. Raises WrongProcess."""

    def is_own_child() -> bool:
        status = Path(f"/proc/{pid}/status").read_text()
        return f"\nPPid:\t{os.getpid()}\n" in status

    return _kill(pid, is_own_child)


def _kill(pid: int, is_meant: Callable[[], bool]) -> float:
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


def watch_successor(store: Path, kill: Kill, pid: int, patience: float) -> None:
    """Note in the kill of process `pid` when its successor was seen, and when the store was served again.

    Raises WrongProcess if that takes longer than `patience` seconds.
    """
    which = "pid" if kill.victim == "node" else "writer"
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        hello = ask_hello(str(store), patience)
        if hello is not None and hello[which] != pid:
            kill.replaced = kill.replaced or time.monotonic()
            if hello["state"] == SERVING:
                kill.served = time.monotonic()
                return
        time.sleep(_LOOK_SECONDS)
    raise WrongProcess(f"nobody serves {store} {patience:.0f} s after its {kill.victim} was killed")
