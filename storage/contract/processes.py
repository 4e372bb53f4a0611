"""Other processes for the clauses that speak of them: forks of this one, which never come back from their work."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

DEADLINE_SECONDS = 60.0

REFUSED = 7
"""How a process ends whose work was refused with a RuntimeError."""

_FAILED = 1


class OtherProcess:
    """A process that has done its work and waits for its end."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._has_ended = False

    def kill(self) -> None:
        """Kill it, and wait until it is gone and all that it held is free."""
        if not self._has_ended:
            self._has_ended = True
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


@contextmanager
def running_elsewhere(work: Callable[[], object]) -> Iterator[OtherProcess]:
    """Let another process do the work, and hold what it holds for the body or until it is killed."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        _work_and_wait(work, told)
    os.close(told)
    other = OtherProcess(pid)
    try:
        assert select.select([ready], [], [], DEADLINE_SECONDS)[0], "the other process says nothing"
        assert os.read(ready, 1), "the other process has failed; it said why on stderr"
        yield other
    finally:
        os.close(ready)
        other.kill()


def exit_code_elsewhere(work: Callable[[], object]) -> int:
    """Let another process do the work, and give its exit code: REFUSED for a RuntimeError."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except RuntimeError:
            os._exit(REFUSED)
        finally:
            os._exit(_FAILED)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _work_and_wait(work: Callable[[], object], told: int) -> NoReturn:
    held = []
    try:
        held.append(work())
        os.write(told, b".")
        while True:
            signal.pause()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(_FAILED)
