"""The processes of a store, as /proc shows them: nothing here asks the product who they are."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

DEADLINE_SECONDS = 20.0

_PROGRAMS = {"node_main.py": "node", "writer_main.py": "writer", "spawner.py": "spawner"}


class Process:
    """One process, held by a pidfd, so that it can't become another one. Close it."""

    def __init__(self, pid: int) -> None:
        """Raises ProcessLookupError when there is none."""
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)

    def kill(self) -> None:
        """Send SIGKILL; one that is dead already is no error."""
        self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; one that is dead already is no error."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def wait_dead(self) -> None:
        """Wait until it is dead, reaped or not."""
        assert select.select([self._pidfd], [], [], DEADLINE_SECONDS)[0], f"process {self.pid} doesn't die"

    def close(self) -> None:
        """Let go of it."""
        os.close(self._pidfd)


def processes_by_role(store: Path) -> dict[str, list[int]]:
    """Find the processes of a store by their role: node, writer, spawner, shim. Zombies don't count, nor what ends."""
    found: dict[str, list[int]] = {"node": [], "writer": [], "spawner": [], "shim": []}
    for pid in all_pids():
        with contextlib.suppress(OSError):
            cwd = os.readlink(f"/proc/{pid}/cwd").removesuffix(" (deleted)")
            program = _program(pid)
            if program == "spawner" and Path(cwd).parent == store / "tasks":
                found["shim"].append(pid)
            elif program is not None and cwd == str(store):
                found[program].append(pid)
    # A shim that has just begun is where its spawner is, and looks like it.
    young = [pid for pid in found["spawner"] if state_and_parent(pid)[1] in found["spawner"]]
    found["spawner"] = [pid for pid in found["spawner"] if pid not in young]
    found["shim"] += young
    return found


def marked_processes(tasks: Iterable[str]) -> dict[int, str]:
    """Find the living processes that have the mark of one of these tasks: which has which."""
    marks = {f"TURNKEEPER_TASK={task}".encode(): task for task in tasks}
    found = {}
    for pid in all_pids():
        with contextlib.suppress(OSError):
            for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if variable in marks and is_alive(pid):
                    found[pid] = marks[variable]
    return found


def zombies_below(parents: Collection[int]) -> list[int]:
    """Find the processes that have ended, and that these parents didn't reap."""
    return [pid for pid in all_pids() if state_and_parent(pid) in [("Z", parent) for parent in parents]]


def is_alive(pid: int) -> bool:
    """Say whether there is such a process, and it has not ended."""
    return state_of(pid) not in ("", "Z", "X")


def state_of(pid: int) -> str:
    """Give the letter of a process's state; none if there is no such process."""
    return state_and_parent(pid)[0]


def parent_of(pid: int) -> int:
    """Give the pid of a process's parent; 0 if there is no such process."""
    return state_and_parent(pid)[1]


def state_and_parent(pid: int) -> tuple[str, int]:
    """Give the letter of a process's state, and its parent's pid; neither if there is no such process."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()[:2]
    except (OSError, ValueError):
        return "", 0
    return state.decode(), int(parent)


def descriptors(pid: int) -> Counter[str]:
    """Count what a process has open, by kind: files by their names, without digits."""
    found: Counter[str] = Counter()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            kind = os.path.basename(os.readlink(f"/proc/{pid}/fd/{name}"))
            found[re.sub(r":\[\d+\]$|\d+", "", kind)] += 1
    return found


def all_pids() -> list[int]:
    """List all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _program(pid: int) -> str | None:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    names = [_PROGRAMS.get(os.path.basename(os.fsdecode(word))) for word in words[:8]]
    return next((name for name in names if name is not None), None)
