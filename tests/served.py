"""A served store, as tests look at it from outside: who serves it, how to kill that, and what is left of it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from turnkeeper.actors.client.asking import ask_hello

SECONDS_MAX = 30.0
"""How long anything here may take, on a machine that is busy with other things."""

LOOPS_AND_STORES = pytest.mark.parametrize(("anyio_backend", "kept_by"), [("asyncio", "journal"), ("trio", "sqlite")])
"""For tests of sessions: both loops and both backends. Loops are the client's matter and backends the writer's, so that
two of the four pairs say what there is to say; the other two run in the tests of hosts of every kind at once."""


def node_of(store: Path) -> int:
    """Return the pid of the store's node."""
    hello = ask_hello(str(store))
    assert hello is not None, "nobody serves the store"
    pid: int = hello["pid"]
    return pid


def writer_of(store: Path) -> int:
    """Return the pid of the store's writer, waiting for one that is being started."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        hello = ask_hello(str(store))
        if hello is not None and hello["writer"] is not None:
            pid: int = hello["writer"]
            return pid
    raise AssertionError("the store has no writer")


def kill(pid: int, *, number: signal.Signals = signal.SIGKILL) -> None:
    """Kill a process by a signal and wait until it is dead; one that is dead already is no error."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(watched, number)
        assert select.select([watched], [], [], SECONDS_MAX)[0], f"process {pid} doesn't die"
    except ProcessLookupError:
        pass
    finally:
        os.close(watched)


def processes_of(store: Path) -> list[int]:
    """Find the living processes that work in the store's directory: its node and its writer. Zombies don't count."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                cwd = os.readlink(f"/proc/{entry}/cwd")
            except OSError:
                continue
            if cwd.removesuffix(" (deleted)") == str(store):
                found.append(int(entry))
    return found


def wait_unserved(store: Path, seconds: float) -> None:
    """See that within so many seconds no process of the store is left."""
    deadline = time.monotonic() + seconds
    while left := processes_of(store):
        assert time.monotonic() < deadline, f"processes {left} are left after {seconds} s"


def start_python(program: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a program in a Python of its own, which finds turnkeeper as this one does; talk to it by its pipes."""
    root = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root / ".import"), "PYTHONWARNINGS": "error"}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def finish(process: subprocess.Popen[str], said: str = "", seconds: float = SECONDS_MAX) -> str:
    """Wait for a program's end and return what it printed; it must have ended well."""
    try:
        output, errors = process.communicate(said, timeout=seconds)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    return output


def read_line(process: subprocess.Popen[str]) -> str:
    """Read the next line that a program prints; if it ended instead, say why."""
    assert process.stdout is not None
    assert process.stderr is not None
    if not select.select([process.stdout], [], [], SECONDS_MAX)[0]:
        process.kill()
        raise AssertionError("the program says nothing")
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return line.strip()


def end_all(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Kill what still runs, and close the pipes."""
    for process in processes:
        process.kill()
        process.communicate()
