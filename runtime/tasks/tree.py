"""The processes below one, as /proc shows them, and signals that reach exactly the process that was meant.

A process is known by its pid and its start in clock ticks since the boot: a pid alone may be somebody else's by now. A
signal goes through a pidfd that was opened before the start was compared, so it can't hit a successor. A zombie is
dead.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import NamedTuple

COMMAND_CHARACTERS_MAX = 200

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


def process_of(pid: int) -> Process | None:
    """Look at the process that has this pid now, a zombie too; None if there is none, or /proc does not show it."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            line = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may itself hold spaces and parentheses: count from the last one.
    fields = line[line.rindex(b")") + 2 :].split()
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
