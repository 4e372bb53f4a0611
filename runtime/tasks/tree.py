"""The processes below one, as /proc shows them, and signals that reach exactly the process that was meant.

A process is known by its pid and its start in clock ticks since the boot: a pid alone may be somebody else's by now. A
signal goes through a pidfd that was opened before the start was compared, so it can't hit a successor. A zombie is
dead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

COMMAND_CHARACTERS_MAX = 200

LOADING_SECONDS = 1.0
"""How long a process may take to load its program until it is taken for one without variables."""

_LOADING_LOOK_SECONDS = 0.001
_ENVIRONMENT_END = 48
"""Which of `_fields_of` says where the variables end in memory."""

_READ_BYTES = 4096
_DEAD = ("Z", "X", "x")
_STOPPED = ("T", "t")


class Process(NamedTuple):
    """One process at the moment of a look; `start` in clock ticks since the boot."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start: int

    @property
    def is_alive(self) -> bool:
        """Whether it could still do something."""
        return self.state not in _DEAD

    @property
    def is_stopped(self) -> bool:
        """Whether it waits for SIGCONT, and acts on no other signal but SIGKILL."""
        return self.state in _STOPPED


def process_of(pid: int) -> Process | None:
    """Look at the process that has this pid now, a zombie too; None if there is none, or /proc does not show it."""
    fields = _fields_of(pid)
    if not fields:
        return None
    return Process(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def is_alive(pid: int, start: int) -> bool:
    """Say whether this very process still runs."""
    found = process_of(pid)
    return found is not None and found.start == start and found.is_alive


def open_process(pid: int, start: int) -> int | None:
    """Open a pidfd of this very process; None if it is dead, or its pid is another's.

    Raises:
        OSError: No descriptor is left.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except (ProcessLookupError, OverflowError):
        return None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return None
    if is_alive(pid, start):
        return pidfd
    os.close(pidfd)
    return None


def send_signal(pid: int, start: int, number: int) -> bool:
    """Send this very process a signal; False if it is dead, or not ours to signal.

    Raises:
        OSError: No descriptor is left.
    """
    pidfd = open_process(pid, start)
    if pidfd is None:
        return False
    try:
        signal.pidfd_send_signal(pidfd, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(pidfd)
    return True


def command_of(pid: int) -> str:
    """Say in one line what the process runs: its arguments, or its name where it has none."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4 * COMMAND_CHARACTERS_MAX).rstrip(b"\0").split(b"\0")
        if words == [b""]:
            with open(f"/proc/{pid}/comm", "rb") as file:
                words = [file.read().rstrip(b"\n")]
    except OSError:
        return "?"
    text = b" ".join(words).decode("utf-8", "replace")
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)[
        :COMMAND_CHARACTERS_MAX
    ]


def environment_of(pid: int) -> list[bytes]:
    """Give the variables, as name=value, that the process's program was started with; none if they can't be read.

    While the kernel loads a program, the process has no variables yet: for some 10 µs, and longer where the program has
    to come from the disk. So one that seems to have none is looked at again, for `LOADING_SECONDS` at most. Blocks.
    """
    deadline = time.monotonic() + LOADING_SECONDS
    is_loading = True
    while True:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                content = file.read()
        except OSError:
            return []
        if content or not is_loading:
            return content.split(b"\0")
        # One that has loaded its program between that look and this one has them at the next.
        is_loading = _is_being_loaded(pid) and time.monotonic() < deadline
        if is_loading:
            time.sleep(_LOADING_LOOK_SECONDS)


def _is_being_loaded(pid: int) -> bool:
    """Say whether the process has a program, but its variables no place yet. A zombie has neither."""
    try:
        os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False
    fields = _fields_of(pid)
    return len(fields) > _ENVIRONMENT_END and fields[_ENVIRONMENT_END] == b"0"


def below(root: int) -> list[Process]:
    """Find the processes below the process `root`, dead ones that nobody reaped too, parents before their children.

    One that begins, or is orphaned, during the look may be missing.
    """
    children_of = _children_by_files if has_children_files() else _children_by_scan()
    found: dict[int, Process] = {}
    parents = [root]
    for parent in parents:
        began = found[parent].start if parent in found else None
        children = [each for each in children_of(parent) if each.pid not in found and each.parent == parent]
        # If the parent's pid is another's by now, these may be the other's children.
        if children and (began is None or is_alive(parent, began)):
            found.update({each.pid: each for each in children})
            parents += [each.pid for each in children]
    return list(found.values())


def kill_below(root: int) -> None:
    """Send SIGKILL to all processes below `root`, which must be this process, but for one that just begins.

    To be called until waitpid finds no child any more, and before each reaping: an unreaped child keeps the number of
    its process group from being another's, so that the whole group can be killed by it in one step. That ends a chain
    of processes each of which forks the next and exits before it is found.

    Raises:
        OSError: No descriptor is left.
    """
    for process in below(root):
        if process.is_alive:
            send_signal(process.pid, process.start, signal.SIGKILL)
    for group in {child.group for child in children(root) if not child.is_alive} - {os.getpgrp()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def children(parent: int) -> list[Process]:
    """Find the children of a process, dead ones that nobody reaped too."""
    children_of = _children_by_files if has_children_files() else _children_by_scan()
    return children_of(parent)


def has_children_files() -> bool:
    """Say whether the kernel lists the children of each thread (CONFIG_PROC_CHILDREN)."""
    return os.path.exists("/proc/thread-self/children")


def _children_by_files(parent: int) -> list[Process]:
    pids: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{parent}/task"):
            pids += _children_of_thread(parent, thread)
    return [process for pid in pids if (process := process_of(pid)) is not None]


def _children_of_thread(process: int, thread: str) -> list[int]:
    return [int(pid) for pid in _read(f"/proc/{process}/task/{thread}/children").split()]


def _children_by_scan() -> Callable[[int], list[Process]]:
    children: dict[int, list[Process]] = {}
    for name in os.listdir("/proc"):
        process = process_of(int(name)) if name.isdecimal() else None
        if process is not None:
            children.setdefault(process.parent, []).append(process)
    return lambda parent: children.get(parent, [])


def _fields_of(pid: int) -> list[bytes]:
    """Give what /proc/PID/stat says behind the name, from the state on (proc_pid_stat(5)); nothing if it has ended.

    The name stands in parentheses and may itself hold spaces and parentheses: the fields begin behind the last one.
    """
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    """Read a file of /proc; empty if the process has ended."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return b""
    try:
        content = b""
        while piece := os.read(descriptor, _READ_BYTES):
            content += piece
        return content
    except ProcessLookupError:
        return b""
    finally:
        os.close(descriptor)
