"""A store with nothing but tasks, their spawner and their shims: the test plays the node. Blocking, with deadlines."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from turnkeeper.runtime.tasks import control, directory, looking, spawner, tree
from turnkeeper.runtime.tasks.looking import Look

DEADLINE_SECONDS = 20.0
"""For everything that a test waits for; a quiet machine needs a fraction of a second."""

SLEEPER = "sleep {} & until grep -q sleep /proc/$!/comm; do :; done"
"""A shell's way to leave a process behind that is known by its name, for so many seconds."""

T = TypeVar("T")


def until(found: Callable[[], T | Literal[False] | None], seconds: float = DEADLINE_SECONDS) -> T:
    """Ask until the answer is true, and return it."""
    deadline = time.monotonic() + seconds
    while True:
        answer = found()
        if answer:
            return answer
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.002)


def own_identity(pid: int | None = None) -> dict[str, Any]:
    """Give the identity of a process, this one's by default."""
    found = tree.process_of(pid or os.getpid())
    assert found is not None
    return {"boot": directory.boot_id(), "pid": found.pid, "start": found.start}


class Shims:
    """Tasks below one directory. Leaving it ends the spawner, and kills all that is marked as one of these tasks."""

    def __init__(self, root: Path, script: str = spawner.__file__, arguments: Sequence[str] = ()) -> None:
        self.root = root
        self._command = [sys.executable, "-I", "-S", "-P", script, *arguments]
        # A mark in an environment is seen by every test on this machine: other runs have other tasks.
        self._name = f"task-{secrets.token_hex(4)}"
        self._made: list[str] = []
        self._bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._in_root(lambda: self._bell.bind("task.sock"))
        self._heard: list[str] = []
        self.process, self.socket = self._start_spawner()

    def _in_root(self, function: Callable[[], object]) -> None:
        before = os.getcwd()
        os.chdir(self.root)
        try:
            function()
        finally:
            os.chdir(before)

    def _start_spawner(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        own, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its, open(self.root / "spawner.log", "ab") as log:
            process = subprocess.Popen(
                self._command,
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd=self.root,
                env={"PATH": "/usr/bin:/bin"},
                start_new_session=True,
                umask=0o077,
            )
        own.settimeout(DEADLINE_SECONDS)
        return process, own

    def restart_spawner(self) -> None:
        """Kill the spawner and start another."""
        self.process.kill()
        self.process.wait(DEADLINE_SECONDS)
        self.socket.close()
        self.process, self.socket = self._start_spawner()

    def make(
        self,
        argv: Sequence[str | bytes],
        *,
        env: Mapping[str, str] | None = None,
        id: str | None = None,
        **spec: Any,
    ) -> Started:
        """Make a task's directory, as a node does."""
        task = id or f"{self._name}-{len(self._made)}"
        fields = {
            "argv": argv,
            "program": argv[0],
            "cwd": str(self.root),
            "timeout": None,
            "grace": 5.0,
            "limit": 1 << 32,
            "owner": None,
        }
        variables = {"PATH": "/usr/bin:/bin", **(env or {})}
        directory.make(str(self.root / "tasks"), task, {**fields, **spec}, variables)
        self._made.append(task)
        return Started(self, task)

    def hand_over(self, task: Started) -> None:
        """Give a task to the spawner."""
        self.socket.send(task.id.encode())

    def catch_up(self) -> None:
        """Wait until the spawner has forked all that it was handed before, and no shim is left."""
        self.shell("exit 0").wait()
        until(lambda: not tree.children(self.process.pid))

    def start(self, *argv: str | bytes, **spec: Any) -> Started:
        """Make a task, hand it over and wait until its command runs, or can't."""
        task = self.make(argv, **spec)
        self.hand_over(task)
        until(lambda: task.look().stage == "ended" or "leader" in (directory.read_map(f"{task.path}/run.json") or {}))
        return task

    def shell(self, script: str, **spec: Any) -> Started:
        """Start a shell script, see `start`."""
        return self.start("/bin/sh", "-c", script, **spec)

    def heard(self) -> list[str]:
        """Give the wake-ups that came up to now."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._heard.append(self._bell.recv(1024, socket.MSG_DONTWAIT).decode())
        return self._heard

    def close(self) -> None:
        """End the spawner, and whatever is left."""
        self.socket.close()
        self.process.wait(DEADLINE_SECONDS)
        self._bell.close()
        for pid in marked(*self._made):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not marked(*self._made))

    def log(self) -> str:
        """Give what the spawner and its shims complained about."""
        return (self.root / "spawner.log").read_text()


class Started:
    """One task of a test."""

    def __init__(self, shims: Shims, task: str) -> None:
        self.shims = shims
        self.id = task
        self.path = str(shims.root / "tasks" / task)

    def look(self, **options: Any) -> Look:
        """Look what became of it."""
        return looking.look(self.path, **options)

    @property
    def shim(self) -> dict[str, Any]:
        """The shim's identity, as run.json has it."""
        run = until(lambda: directory.read_map(f"{self.path}/run.json"))
        return {name: run[name] for name in ("boot", "pid", "start")}

    @property
    def leader(self) -> int:
        """The command's pid."""
        pid: int = until(lambda: (directory.read_map(f"{self.path}/run.json") or {}).get("leader"))["pid"]
        return pid

    def stop(self, grace: float = 5.0) -> None:
        """Order it to be stopped."""
        assert control.order_stop(self.path, self.shim, grace=grace)

    def wait(self, seconds: float = DEADLINE_SECONDS) -> dict[str, Any]:
        """Wait until nothing of it is left and its lock is free; return how it ended."""
        look = until(lambda: self._ended(), seconds)
        assert look.end is not None
        return dict(look.end)

    def _ended(self) -> Look | None:
        look = self.look()
        return look if look.stage == "ended" and not directory.is_lock_held(self.path) else None

    def output(self) -> bytes:
        """Read its output."""
        return Path(self.path, "output.log").read_bytes()

    def said(self) -> str:
        """Wait until its output has a whole line; return the output."""
        until(lambda: os.path.exists(f"{self.path}/output.log") and b"\n" in self.output())
        return self.output().decode()

    def kill_shim(self) -> dict[str, Any]:
        """Kill its shim, and wait until that is gone."""
        shim = self.shim
        os.kill(shim["pid"], signal.SIGKILL)
        until(lambda: not tree.is_alive(shim["pid"], shim["start"]))
        return shim


def marked(*tasks: str) -> list[int]:
    """Find the living processes that have the mark of one of the tasks."""
    marks = {f"TURNKEEPER_TASK={task}".encode() for task in tasks}
    found = []
    for pid in [int(name) for name in os.listdir("/proc") if name.isdecimal()]:
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            process = tree.process_of(pid)
            if not marks.isdisjoint(variables) and process is not None and process.is_alive:
                found.append(pid)
    return found
