"""Kills the processes that serve a store, and nothing else, and sees when somebody serves it again.

Who serves it is known by his work in the store's directory, as node, writer and spawner do theirs; a worker, by being a
child of this process.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from turnkeeper.actors.client.asking import ask_hello, ask_status
from turnkeeper.actors.protocol import SERVING

from ..measuring.marked_processes import WrongProcess, kill_meant
from .plan import Victim
from .progress import Kill

_LOOK_SECONDS = 0.01


class Served(NamedTuple):
    """Who serves a store at one moment: the process that is looked for, None if there is none, and the node."""

    pid: int | None
    node: int | None
    state: str | None


def kill_serving(store: Path, victim: Victim, patience: float) -> tuple[Served, float]:
    """Kill the store's node, writer or spawner, waiting for one that is being started; give who it was, and the time.

    Raises WrongProcess.
    """
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        found = _look(store, victim, patience)
        if found.pid is not None:
            with suppress(WrongProcess):  # another kill was faster, as a spawner ends with its node
                return found, kill_server(found.pid, store)
        time.sleep(_LOOK_SECONDS)
    raise WrongProcess(f"no {victim} serves {store}")


def _look(store: Path, victim: str, patience: float) -> Served:
    if victim == "spawner":  # the hello doesn't name it
        status = ask_status(str(store), patience)
        if status is not None:
            return Served(status["pids"]["spawner"], status["pids"]["node"], status["state"])
    elif (hello := ask_hello(str(store), patience)) is not None:
        return Served(hello["pid" if victim == "node" else "writer"], hello["pid"], hello["state"])
    return Served(None, None, None)


def kill_server(pid: int, store: Path) -> float:
    """Kill a process that serves the store; give the time of it, by the monotonic clock. Raises WrongProcess."""
    own = os.stat(store)

    def works_in_store() -> bool:
        found = os.stat(f"/proc/{pid}/cwd")
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)

    return kill_meant(pid, works_in_store)


def kill_child(pid: int) -> float:
    """Kill a process that this one has started; give the time of it. Raises WrongProcess."""

    def is_own_child() -> bool:
        status = Path(f"/proc/{pid}/status").read_text()
        return f"\nPPid:\t{os.getpid()}\n" in status

    return kill_meant(pid, is_own_child)


def watch_successor(store: Path, kill: Kill, killed: Served, patience: float) -> None:
    """Note in a kill when the successor of what was killed was seen, and when the store was served again.

    A new node has no spawner until there is a task to start: then there is nobody to wait for.
    Raises WrongProcess if it takes longer than `patience` seconds.
    """
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        found = _look(store, kill.victim, patience)
        is_back = found.pid != killed.pid if found.pid else kill.victim == "spawner" and found.node != killed.node
        if is_back and found.node is not None:
            kill.replaced = kill.replaced or time.monotonic()
            if found.state == SERVING:
                kill.served = time.monotonic()
                return
        time.sleep(_LOOK_SECONDS)
    raise WrongProcess(f"nobody serves {store} {patience:.0f} s after its {kill.victim} was killed")
