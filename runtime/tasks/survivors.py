"""Find the processes that a killed shim left behind, and stop them.

While a shim lives this is its own business: it knows its tree, and proves it empty. Afterwards the tree has no root
any more; what belongs to it is known by the shim's process session and by the marks in its environment, which name task
and shim. A process that left the session and cleared its environment is not found.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from . import directory, tree

KILL_SECONDS = 10.0
"""How long to go on killing what does not die: it may be in a system call that nothing interrupts."""


def find(task: str, shim: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Find what is left of the task, whose shim, of this identity, is dead: [{"pid", "start", "command"}, ...]."""
    if shim["boot"] != directory.boot_id():
        return []
    # A session's number stays taken while it has a process. If another leads a session of that number, ours is empty.
    leader = tree.process_of(shim["pid"])
    session = shim["pid"] if leader is None or leader.start == shim["start"] else None
    marks = directory.marks(task, shim)
    found = []
    for pid in [int(name) for name in os.listdir("/proc") if name.isdecimal()]:
        process = tree.process_of(pid)
        if process is not None and process.is_alive and pid != shim["pid"] and _belongs(process, marks, session):
            found.append({"pid": pid, "start": process.start, "command": tree.command_of(pid)})
    return found


def _belongs(process: tree.Process, marks: Mapping[str, str], session: int | None) -> bool:
    variables = tree.environment_of(process.pid)
    found = {each for each in variables if each.partition(b"=")[0].decode("latin-1") in marks}
    if found:
        return found == {f"{name}={value}".encode() for name, value in marks.items()}
    return process.session == session


def stop(task: str, shim: Mapping[str, Any], *, grace: float) -> list[dict[str, Any]]:
    """Stop what is left of the task: SIGTERM, and after the grace, in seconds, SIGKILL; return what can't be killed.

    Blocks for the grace and `KILL_SECONDS` at most, so a loop calls it in a thread.
    """
    left = find(task, shim)
    for each in left:
        tree.send_signal(each["pid"], each["start"], signal.SIGTERM)
        tree.send_signal(each["pid"], each["start"], signal.SIGCONT)
    _wait(left, grace)
    deadline = time.monotonic() + KILL_SECONDS
    while left := find(task, shim):
        for each in left:
            tree.send_signal(each["pid"], each["start"], signal.SIGKILL)
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            break
        _wait(left, min(seconds, 0.1))
    return left


def living(named: Any) -> list[dict[str, Any]]:
    """Give those processes that a file or a record names, and that live still; anybody may have written it."""
    maps = [each for each in named if isinstance(each, dict)] if isinstance(named, list) else []
    whole = [each for each in maps if all(isinstance(each.get(name), int) for name in ("pid", "start"))]
    return [each for each in whole if tree.is_alive(each["pid"], each["start"])]


def _wait(processes: Sequence[Mapping[str, Any]], seconds: float) -> None:
    """Wait until all these have ended, so long at most."""
    deadline = time.monotonic() + seconds
    for each in processes:
        pidfd = tree.open_process(each["pid"], each["start"])
        if pidfd is not None:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            os.close(pidfd)
