"""See a running command through to its end: reap, keep its limits, stop what is to be stopped, write the end down.

One loop that waits for a signal or for the next moment at which something is due. Times run on the monotonic clock.
The task has ended when its command has, whatever that left behind; the rest is named then and supervised on, and no
child left to wait for is the proof that nothing is. What fails here for want of descriptors, memory or space is tried
again: this process must not end before the task.
"""

from __future__ import annotations

import math
import os
import select
import signal
import time
from contextlib import suppress
from typing import Any

from . import control, directory, tree
from .bell import Bell
from .output import Output

SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
"""What is waited for, blocked as all others are; the last three do nothing."""

LIMIT_GRACE_SECONDS = 0.5
"""The grace of a task that writes more than it may is at most this."""

STOPPED_SECONDS = 0.1
"""How long the rest of a task that is being stopped has for its end, before it is said to survive the command."""

STRAY_SECONDS = 0.05
"""Until those are looked for that were being forked when the rest got SIGTERM."""

KILL_SECONDS = 0.02
KILL_SECONDS_MAX = 1.0
"""Between two rounds of SIGKILL, where no child's end comes first; longer and longer."""

RETRY_SECONDS = 0.05
"""Until what the node had no room for, or this process no descriptor, is tried again."""


SURVIVORS_MAX = 1024
SURVIVORS_ON_FULL_DISK = 8
"""How many survivors are named, and how many in the space that is kept for an end."""

_WAIT_SECONDS_MAX = 3600.0


class Running:
    """A task whose command runs, as the child `leader` of this process; `owner` is a pidfd or None."""

    def __init__(self, leader: int, output: Output, owner: int | None, *, timeout: float | None, grace: float) -> None:
        """Begin to count: `timeout` and `grace` are in seconds. The present directory is the task's."""
        now = time.monotonic()
        self._leader = leader
        self._output = output
        self._owner = owner
        self._grace = grace
        self._timeout_at = math.inf if timeout is None else now + timeout
        self._look_at = now
        self._order: tuple[str, float] | None = None
        self._stopped_by: str | None = None
        self._terminated: set[tuple[int, int]] | None = None
        self._terminate_at = math.inf
        self._kill_at = math.inf
        self._kill_seconds = KILL_SECONDS
        self._end: dict[str, Any] = {}
        self._tell_at = math.inf

    def supervise(self, bell: Bell) -> dict[str, Any]:
        """Return the end once nothing of the task is left."""
        while True:
            try:
                if self._is_over(bell):
                    break
                self._wait(bell)
            except (OSError, MemoryError):
                time.sleep(RETRY_SECONDS)
        with suppress(OSError):
            self._output.look()
        return self._end_with([])

    def _is_over(self, bell: Bell) -> bool:
        """Do all that is due; say whether nothing of the task is left."""
        if time.monotonic() >= self._kill_at:
            tree.kill_below(os.getpid())
        if self._reap():
            return True
        now = time.monotonic()
        if now >= self._look_at:
            self._look(now)
        if now >= self._timeout_at:
            self._timeout_at = math.inf
            self._stop("timeout", self._grace, now)
        if self._order is not None:
            by, grace = self._order
            self._order = None
            self._stop(by, grace, now)
        if now >= self._terminate_at:
            self._terminate(now)
        if now >= self._tell_at:
            return self._tell_end(bell)
        bell.ring_again()
        return False

    def _wait(self, bell: Bell) -> None:
        """Wait for a signal, or until something is due."""
        now = time.monotonic()
        kill_at = max(self._kill_at, now + self._kill_seconds)
        due = min(self._look_at, self._timeout_at, self._terminate_at, self._tell_at, kill_at)
        if not bell.is_silent:
            due = min(due, now + RETRY_SECONDS)
        found = signal.sigtimedwait(SIGNALS, min(max(due - now, 0.0), _WAIT_SECONDS_MAX))
        if found is None:
            if due == kill_at:
                self._kill_seconds = min(2 * self._kill_seconds, KILL_SECONDS_MAX)
        elif found.si_signo == signal.SIGTERM:
            self._order = ("stop", self._grace)
        elif found.si_signo == signal.SIGUSR1:
            self._order = control.read_order(self._grace)

    def _reap(self) -> bool:
        """Reap what has ended; say whether no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._leader:
                self._note_end(os.waitstatus_to_exitcode(status))

    def _note_end(self, code: int) -> None:
        """Note how the command ended. A stop names it by itself, if that is what ends the rest, too."""
        self._leader = 0  # its pid may be another child's now
        how = {"code": code} if code >= 0 else {"signal": -code}
        by = self._stopped_by or ("itself" if code >= 0 else "unknown")
        self._end = {"how": how, "by": by, "ended": time.time_ns() // 1_000_000}
        self._tell_at = time.monotonic() + (STOPPED_SECONDS if self._stopped_by else 0.0)

    def _tell_end(self, bell: Bell) -> bool:
        """Write that the command has ended and what survives it; say whether nothing does, after all."""
        survivors = [each for each in tree.below(os.getpid()) if each.is_alive]
        if self._reap():
            return True
        self._output.look()
        names = [
            {"pid": each.pid, "start": each.start, "command": tree.command_of(each.pid)}
            for each in survivors[:SURVIVORS_MAX]
        ]
        self._tell_at = math.inf
        try:
            directory.write_kept(directory.LEADER, self._end_with(names))
        except OSError:
            with suppress(OSError):
                directory.write_kept(directory.LEADER, self._end_with(names[:SURVIVORS_ON_FULL_DISK]))
        bell.ring("leader")
        return False

    def _end_with(self, survivors: list[dict[str, Any]]) -> dict[str, Any]:
        output = {"output_bytes": self._output.size, "output": self._output.lack}
        return {**self._end, "survivors": survivors, **output}

    def _look(self, now: float) -> None:
        """Look at the output and at the owner."""
        self._look_at = now + self._output.look()
        if self._output.is_cut:
            self._stop("output limit", min(self._grace, LIMIT_GRACE_SECONDS), now)
        if self._owner is not None and has_ended(self._owner):
            os.close(self._owner)
            self._owner = None
            self._stop("owner", self._grace, now)

    def _stop(self, by: str, grace: float, now: float) -> None:
        """Begin to stop all that is there; or, if that was begun, wait no longer for it than this grace."""
        if self._stopped_by is None:
            self._reap()  # what has ended by itself meanwhile was not stopped
            self._stopped_by = by
            self._terminate_at = now
        self._kill_at = min(self._kill_at, now + grace)

    def _terminate(self, now: float) -> None:
        """Send SIGTERM to all; a moment later, to those whose parent it ended while it forked them.

        Others that begin later are left alone: a parent that is ending may have started them to clean up.
        """
        own = os.getpid()
        is_first = self._terminated is None
        terminated = self._terminated or set()
        for process in tree.below(own) if is_first else tree.children(own):
            identity = (process.pid, process.start)
            if process.is_alive and identity not in terminated and tree.send_signal(*identity, signal.SIGTERM):
                terminated.add(identity)
                if process.is_stopped:
                    tree.send_signal(*identity, signal.SIGCONT)
        self._terminated = terminated
        self._terminate_at = now + STRAY_SECONDS if is_first else math.inf


def has_ended(pidfd: int) -> bool:
    """Say whether the process has ended, reaped or not."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
