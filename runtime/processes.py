"""Wait for other processes, reap and end our own children, on any event loop.

Waiting is done on a pidfd, and a child is reaped without blocking once that is readable: never through a loop's child
watcher, which a host may have replaced, and never by a thread for each child. Every child handled here leads a process
session of its own, so a terminal's signals reach the host alone and what the child left in its group ends with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import warnings

import anyio

TERMINATE_SECONDS = 2.0
"""How long a child has after SIGTERM, before SIGKILL."""

LINE_BYTES_MAX = 64 * 1024
"""The longest line that a child may say on a pipe."""

READ_BYTES = 64 * 1024

_KILLED_BY = (signal.SIGKILL, signal.SIGTERM)


def open_pidfd(pid: int) -> int | None:
    """Open a descriptor that is readable once the process has ended, a zombie's too; None if there is no process.

    Raises:
        OSError: The system has no pidfds (Linux before 5.3) or no descriptor is left.
    """
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


async def wait_exit(pidfd: int) -> None:
    """Wait until the pidfd's process has ended. Any number of tasks may wait, and the pidfd may be closed meanwhile."""
    own = os.dup(pidfd)
    try:
        await anyio.wait_readable(own)
    finally:
        os.close(own)


def died_by_signal(returncode: int | None) -> int | None:
    """Return the signal that killed a process; None if it ended by itself, or nobody knows."""
    return -returncode if returncode is not None and returncode < 0 else None


def describe_exit(returncode: int | None) -> str:
    """Say how a process ended; None is a return code that somebody else took."""
    if returncode is None:
        return "ended, and its exit code was taken by somebody else"
    killer = died_by_signal(returncode)
    if killer is None:
        return f"ended with exit code {returncode}"
    try:
        return f"was killed by {signal.Signals(killer).name}"
    except ValueError:
        return f"was killed by signal {killer}"


def was_killed(returncode: int | None) -> bool:
    """Say whether a process ended because somebody killed it, which says nothing of what it did."""
    return died_by_signal(returncode) in _KILLED_BY


class ProcessEnded(Exception):
    """A process that was to live on has ended; `what` is what to call it."""

    def __init__(self, what: str, returncode: int | None) -> None:
        super().__init__(what, returncode)
        self.what = what
        self.returncode = returncode

    def __str__(self) -> str:
        return f"{self.what} {describe_exit(self.returncode)}"

    @property
    def was_killed(self) -> bool:
        """Whether somebody killed it."""
        return was_killed(self.returncode)


class ChildProcess:
    """A child of this process that leads a process session of its own.

    It is reaped exactly once, by whichever of `poll`, `wait` and `end` first sees that it has ended; what is left of
    its process group is killed just before, while the group's number still belongs to it. Closing gives up our ends
    of its pipes and needs a child that has ended or was left; a forgotten one gives a ResourceWarning.
    """

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        """Take over a process started with `start_new_session=True`; nobody else may wait for it.

        `stdin` and `stdout` are then our ends of its pipes, or None.
        """
        self.pid = popen.pid
        self.stdin = None if popen.stdin is None else popen.stdin.fileno()
        self.stdout = None if popen.stdout is None else popen.stdout.fileno()
        self._popen = popen
        self._returncode: int | None = None
        self._ended = False
        self._pidfd = open_pidfd(popen.pid)

    @property
    def ended(self) -> bool:
        """Whether it is known to have ended."""
        return self._ended

    @property
    def returncode(self) -> int | None:
        """Its exit code, minus the signal that killed it, or None: it runs, or somebody else reaped it."""
        return self._returncode

    def poll(self) -> bool:
        """Reap it if it has ended, and say whether it has."""
        if self._ended:
            return True
        try:
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            # Somebody waits for every child, or SIGCHLD is ignored. Popen would call this exit code 0.
            self._popen.returncode = 255
            self._ended = True
            return True
        if found is None:
            return False
        # Until the zombie is reaped its pid is nobody else's, nor is its group's number.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._returncode = self._popen.wait()
        self._ended = True
        return True

    async def wait(self) -> int | None:
        """Wait until it has ended and was reaped; return its return code. Cancelling only ends the wait."""
        if self._pidfd is not None:
            await wait_exit(self._pidfd)
        # It has ended; only a debugger that traces it is told before us, and nothing tells when.
        while not self.poll():  # noqa: ASYNC110
            await anyio.sleep(0.01)
        return self._returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if not self.poll():
            os.kill(self.pid, number)

    async def end(self, *, shutdown_seconds: float, terminate_seconds: float = TERMINATE_SECONDS) -> int | None:
        """See it end: as long as it was asked to before, then SIGTERM, then SIGKILL to its group; return its code.

        Shielded from cancellation, and over soon after the sum of both times, whatever the child does.
        """
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(shutdown_seconds):
                await self.wait()
            if not self._ended:
                self.send_signal(signal.SIGTERM)
                with anyio.move_on_after(terminate_seconds):
                    await self.wait()
            if not self.poll():
                os.killpg(self.pid, signal.SIGKILL)
                await self.wait()
        return self._returncode

    def leave(self) -> None:
        """Let it live on, and be reaped by a daemon thread if it ends before this process does; closes this object."""
        if not self.poll():
            threading.Thread(target=self._popen.wait, name=f"reaper of {self.pid}", daemon=True).start()
        self._release()

    def close_stdin(self) -> None:
        """Close our end of its standard input, if we have one."""
        if self._popen.stdin is not None:
            self._popen.stdin.close()

    def close(self) -> None:
        """Give up our ends of its pipes.

        Raises:
            RuntimeError: It has not ended: `end` or `leave` it.
        """
        if not self.poll():
            raise RuntimeError(f"process {self.pid} has not ended")
        self._release()

    def _release(self) -> None:
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def __del__(self) -> None:
        if getattr(self, "_pidfd", None) is not None:
            self._release()
            warnings.warn(f"unclosed child process {self.pid}", ResourceWarning, source=self, stacklevel=2)


async def write_all(pipe: int, content: bytes) -> None:
    """Write it all into our end of a pipe, without blocking the loop. Cancelled in between, some of it is written.

    Raises:
        BrokenPipeError: Nobody reads any more.
    """
    os.set_blocking(pipe, False)
    rest = memoryview(content)
    while rest:
        try:
            rest = rest[os.write(pipe, rest) :]
        except BlockingIOError:
            await anyio.wait_writable(pipe)


async def read_line(pipe: int) -> bytes:
    """Read one line from our end of a pipe on which nothing follows it; without a newline the other side has ended.

    Cancelled in between, some of it is lost.

    Raises:
        ValueError: It is longer than `LINE_BYTES_MAX`.
    """
    os.set_blocking(pipe, False)
    line = bytearray()
    while not line.endswith(b"\n"):
        try:
            content = os.read(pipe, READ_BYTES)
        except BlockingIOError:
            await anyio.wait_readable(pipe)
            continue
        if not content:
            break
        line += content
        if len(line) > LINE_BYTES_MAX:
            raise ValueError(f"the other side said more than {LINE_BYTES_MAX:,} bytes without a newline")
    return bytes(line)
