"""An interpreter in a process of its own that waits to be told which actor it is to be: launched, and kept as a spare.

It knows nothing of the actor before it is booted (worker.py), and is told then what it would have inherited had it been
launched at that moment: directory, environment, standard output and error. What can't be told later, such as the
user or the resource limits, makes a spare useless once it has changed. A process leads a session of its own and ends
at once when its host does. What it says until it is ready goes into a file in memory, its last words if it dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import spawn
from typing import NamedTuple

from ..processes import ChildProcess

WORDS_BYTES_MAX = 64 * 1024
"""How much of what a worker last said goes into the error."""

_BEGIN = (
    "import json, sys; start = json.loads(sys.stdin.readline()); sys.path[:] = start['path']; "
    "from turnkeeper.runtime.workers.worker_main import main; main(start)"
)

_INHERITED_FOR_GOOD = ("Umask:", "Uid:", "Gid:", "Groups:", "CapEff:", "NoNewPrivs:", "Seccomp:", "Cpus_allowed:")
"""The lines of a process's status that a child has from its parent and that nobody can tell it later."""


class WorkerProcess(NamedTuple):
    """A launched interpreter, our end of the socket to it, and the file of its last words. Closed by its owner."""

    child: ChildProcess
    connection: socket.socket
    words: int

    def last_words(self) -> str:
        """Give the end of what it said."""
        size = os.fstat(self.words).st_size
        return os.pread(self.words, WORDS_BYTES_MAX, max(0, size - WORDS_BYTES_MAX)).decode(errors="replace")

    async def kill(self) -> None:
        """End it at once, and close it. Shielded."""
        await self.child.end(shutdown_seconds=0, terminate_seconds=0)
        self.close()

    def close(self) -> None:
        """Give up what belongs to a process that has ended."""
        self.connection.close()
        self.child.close()
        os.close(self.words)


def launch(imports: Sequence[str] = ()) -> WorkerProcess:
    """Start an interpreter, which loads what every worker needs, and the modules of `imports`, and then waits.

    Raises:
        OSError: It can't be started.
    """
    if getattr(sys, "frozen", False):
        raise OSError("this program is frozen into one file, and there is no Python to start")
    with _standard_numbers_taken(), contextlib.ExitStack() as undo:
        connection, workers = socket.socketpair()
        undo.callback(connection.close)
        words = os.memfd_create("last words")
        undo.callback(os.close, words)
        with workers:
            popen = subprocess.Popen(
                [*_interpreter(), "-P", "-c", _BEGIN],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=words,
                stderr=words,
                pass_fds=(workers.fileno(),),
                start_new_session=True,
            )
            number = workers.fileno()
        start = {"path": import_path(), "imports": list(imports), "host": os.getpid(), "socket": number}
        assert popen.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, which its silence says
            # Far less than a pipe holds, so this doesn't wait.
            popen.stdin.write(json.dumps(start).encode() + b"\n")
        connection.setblocking(False)
        child = ChildProcess(popen)
        undo.pop_all()
    return WorkerProcess(child, connection, words)


class SpareWorker:
    """At most one launched interpreter that waits for the next actor, so that this needn't wait for Python.

    It has loaded the modules of `imports` beside what every worker needs. There is none before the first `refill`.
    """

    def __init__(self, imports: Sequence[str] = ()) -> None:
        self._imports = tuple(imports)
        self._process: WorkerProcess | None = None
        self._circumstances = ""
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The process that waits; None if there is none."""
        return None if self._process is None else self._process.child.pid

    async def take(self) -> WorkerProcess:
        """Give the spare, or a process launched just now where there is none or it wouldn't be what that would be.

        Raises:
            OSError: None can be started.
        """
        process, self._process = self._process, None
        if process is None:
            return launch(self._imports)
        if process.child.poll() or self._circumstances != _circumstances():
            await process.kill()
            return launch(self._imports)
        return process

    def refill(self) -> None:
        """Have a spare again, unless there is one or this is closed. If none can be started, the next start tells."""
        if self._process is None and not self._is_closed:
            with contextlib.suppress(OSError):
                self._circumstances = _circumstances()
                self._process = launch(self._imports)

    async def aclose(self) -> None:
        """End the spare, and have none again. Shielded, and at once."""
        self._is_closed = True
        process, self._process = self._process, None
        if process is not None:
            await process.kill()


def import_path() -> list[str]:
    """Give the places where this process looks for modules, for another one."""
    return [os.path.abspath(each) for each in sys.path]


@contextlib.contextmanager
def surroundings() -> Iterator[list[int]]:
    """Give descriptors of this process's standard output, standard error and working directory, for another one.

    A stream that is closed is given as one that swallows all.
    """
    descriptors: list[int] = []
    try:
        with _standard_numbers_taken():
            descriptors.append(os.dup(1))
            descriptors.append(os.dup(2))
            descriptors.append(os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        yield descriptors
    finally:
        for each in descriptors:
            os.close(each)


@contextlib.contextmanager
def _standard_numbers_taken() -> Iterator[None]:
    """Keep what is opened meanwhile from being a standard stream of a program that has closed its own."""
    taken: list[int] = []
    try:
        while not taken or taken[-1] < 3:
            taken.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        yield
    finally:
        for each in taken:
            os.close(each)


def _interpreter() -> list[str]:
    command = [os.fsdecode(each) for each in spawn.get_command_line()]
    return command[: command.index("-c")]


def _circumstances() -> str:
    """Give what a child has from its parent for good, as one text to compare."""
    with open("/proc/thread-self/status") as status:
        lines = [line for line in status if line.startswith(_INHERITED_FOR_GOOD)]
    for name in ("limits", "cgroup"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/thread-self/{name}") as content:
            lines += content  # a kernel may be built without control groups
    return "".join([*lines, str(os.getpriority(os.PRIO_PROCESS, 0)), *_interpreter(), *sys.warnoptions])
