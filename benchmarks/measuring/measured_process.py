"""Processes of a benchmark's own: each runs one function, talks to its starter over a pipe, and never outlives it long.

What is filled, opened, killed or measured as a host lives in a process of its own, so that nobody is measured with
another's heap, garbage or caches. Such a process leads a process session, so Ctrl-C reaches the starter alone, which
ends the process and all that it started. The function's arguments, and what is said, are pickled: both ends are ours.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Self

import anyio

import turnkeeper
from turnkeeper.runtime.tasks import tree

ANSWER_SECONDS = 600.0
"""So long is waited for what a process says; the longest thing that it does in between is to build a large index."""

LEAVE_SECONDS = 10.0
"""How long a process that stands by may take to end in order when it is no longer needed."""

DEATH_SECONDS = 5.0
"""How long a killed process may take to die."""

_RUN = f"import sys; from {__name__} import run_child; run_child(int(sys.argv[1]))"


class MeasuredProcess:
    """A process that runs `function(connection, *arguments)`; what it raises, of many the first, `receive` raises here.

    Left as a context manager, its end of the pipe is closed, it gets `ending_seconds` to end by itself (they may change
    with what it does), and is then killed with all of its process session; left by an exception, at once.
    """

    def __init__(self, function: Callable[..., None], *arguments: Any, ending_seconds: float = 0.0) -> None:
        self.ending_seconds = ending_seconds
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _RUN, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=child_environment(),
                start_new_session=True,
            )
        self._connection.send((function, arguments))

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._connection.close()
        try:
            if self.ending_seconds and not any(exception):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(self.ending_seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            _end_session(self._process.pid)

    def send(self, message: Any) -> None:
        """Say something to it."""
        self._connection.send(message)

    def receive(self, seconds: float = ANSWER_SECONDS) -> Any:
        """Wait for what it says next.

        Raises what its function raised, RuntimeError if it ended without a word, TimeoutError.
        """
        if not self._connection.poll(seconds):
            raise TimeoutError(f"a measured process said nothing for {seconds:.0f} s")
        try:
            message = self._connection.recv()
        except (EOFError, ConnectionResetError):
            raise RuntimeError("a measured process ended without a word") from None
        if isinstance(message, _Raised):
            raise message.error
        return message

    def has_said(self, seconds: float) -> bool:
        """Wait at most so long for it to say something or to end; say whether there is something to receive."""
        return self._connection.poll(seconds)

    def wait_killed(self) -> None:
        """Wait until it has killed itself. Raises RuntimeError if it ended in another way, or hasn't."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ANSWER_SECONDS)
        if self._process.returncode != -signal.SIGKILL:
            raise RuntimeError(f"a measured process ended with {self._process.returncode} and not by SIGKILL")


class StandingProcess:
    """A process that says when it is ready, and then does what it is told, one thing after the other.

    Left as a context manager, it ends in order; if it is in the middle of something, or by an exception, it is killed.
    """

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        self._process = MeasuredProcess(function, *arguments, ending_seconds=LEAVE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.__exit__(*exception)

    def wait_ready(self) -> Any:
        """Wait until it stands by, and give what it says then. Raises what kept it from that."""
        return self._process.receive()

    def tell(self, order: Any) -> None:
        """Let it begin to do something."""
        self._process.ending_seconds = 0.0  # it hears of nothing before the end of what it begins now
        self._process.send(order)

    def has_ended(self, seconds: float) -> bool:
        """Wait at most so long for the end of what was begun, and say whether it has come."""
        return self._process.has_said(seconds)

    def outcome(self) -> Any:
        """Wait for the end of what was begun, and give what came of it. Raises what that raised."""
        outcome = self._process.receive()
        self._process.ending_seconds = LEAVE_SECONDS
        return outcome


async def stand_by(
    starter: Connection, carry_out: Callable[[Any], Awaitable[Any]] | None = None, *, ready: Any = "ready"
) -> None:
    """Say that all is ready, then carry out order after order, until the starter wants nothing more.

    Without anything to carry out, a process is only there for another one. What was made before is kept from the
    garbage collector, as in a process that has run for a while.
    """
    gc.collect()
    gc.freeze()
    starter.send(ready)
    while True:
        await anyio.wait_readable(starter)
        try:
            order = starter.recv()
        except EOFError:
            return
        if carry_out is not None:
            starter.send(await carry_out(order))


class _Raised:
    """What the function raised, on its way to the starter; its words alone where it can't be pickled."""

    def __init__(self, error: Exception) -> None:
        try:
            ForkingPickler.dumps(error)
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        self.error = error


def child_environment() -> dict[str, str]:
    """Give the environment in which a process finds this package, from wherever it is run."""
    package = str(Path(turnkeeper.__file__).parent.parent)
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _end_session(leader: int) -> None:
    """Kill who is left of a process session, in groups of their own, and wait until all are dead. Linux only."""
    deadline = time.monotonic() + DEATH_SECONDS
    while (left := _session(leader)) and time.monotonic() < deadline:
        for each in left:
            tree.send_signal(each.pid, each.start, signal.SIGKILL)
        time.sleep(0.005)


def _session(leader: int) -> list[tree.Process]:
    pids = map(int, filter(str.isdecimal, os.listdir("/proc"))) if os.path.isdir("/proc") else ()
    found = [each for pid in pids if (each := tree.process_of(pid)) is not None]
    return [each for each in found if each.session == leader and each.is_alive]


def receive_from_any(processes: Sequence[MeasuredProcess]) -> MeasuredProcess:
    """Wait until any of the processes has said something or ended, and give it. Raises TimeoutError."""
    ready = wait([process._connection for process in processes], ANSWER_SECONDS)
    for process in processes:
        if process._connection in ready:
            return process
    raise TimeoutError(f"the measured processes said nothing for {ANSWER_SECONDS:.0f} s")


def run_child(descriptor: int) -> None:
    """Be a measured process, with its end of the pipe."""
    with Connection(descriptor) as starter:
        try:
            function, arguments = starter.recv()
            function(starter, *arguments)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass  # the starter has gone, and nobody wants anything any more
        except Exception as error:
            with contextlib.suppress(OSError):
                starter.send(_Raised(_first(error)))


def _first(error: Exception) -> Exception:
    """Give the first of errors that came together: sessions that fail side by side fail for one reason."""
    return _first(error.exceptions[0]) if isinstance(error, ExceptionGroup) else error
