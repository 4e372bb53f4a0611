"""A spawner whose shims kill themselves before a chosen system call: the number in `kill_at` in their task's directory.

Run as a script in the spawner's place. A shim that comes to its end writes its task's id to stderr.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / ".import"))

from turnkeeper.runtime.tasks import shim, spawner

FILES = "open close dup2 stat fstat rename write ftruncate fdatasync unlink"
PROCESSES = "setsid chdir fchdir umask posix_spawn waitpid"
CALLS = {os: f"{FILES} {PROCESSES}", fcntl: "fcntl", signal: "sigtimedwait signal"}


def main() -> None:
    """Be a spawner of shims that die."""
    run = shim.run
    shim.run = lambda task: _run_and_die(task, run)
    spawner.main()


def _run_and_die(task: str, run: Callable[[str], None]) -> None:
    with contextlib.suppress(FileNotFoundError):
        _kill_before(int(Path("tasks", task, "kill_at").read_text()))
    run(task)
    sys.stderr.write(f"{task}\n")


def _kill_before(last: int) -> None:
    calls = itertools.count(1)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(calls) == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    for module, names in CALLS.items():
        for name in names.split():
            setattr(module, name, counted(getattr(module, name)))


if __name__ == "__main__":
    main()
