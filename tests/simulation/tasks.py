"""Simulated tasks: the real process supervisor over real task directories, with simulated spawners, shims, commands.

A shim does what the real one does, in the same order: it waits for the task's lock, leaves what has run or ended alone,
writes down who it is, starts the command, writes down how that ended, and rings. Between any two of these it may be
killed, and a ring may be lost. Of a command there is only how it is to end, which its arguments say, and its witness.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import trio

from turnkeeper.actors.protocol import TASKS_DIRECTORY
from turnkeeper.benchmarks.demonstration.task_oracle import TaskEnd
from turnkeeper.runtime.tasks import directory

from .processes import PROCESS, Machine, Process

LOST_RINGS_SHARE = 0.2
LOST_FORKS_SHARE = 0.1
"""How often a shim's ring isn't heard, and a spawner dies before it has forked."""

COMMAND_SECONDS = (0.0, 0.3, 3.0)
"""How long commands run at least."""

LOCK_SECONDS = 0.5
"""How often a shim looks at a lock that another has."""


def command(key: str, code: int) -> list[str]:
    """Give a command that ends with this code, for the task of this key."""
    return ["/bin/sh", "-c", f"exit {code}", key]


def tasks_directory(machine: Machine) -> str:
    """Give the place of all tasks' directories."""
    return f"{machine.disk.index_root}/{TASKS_DIRECTORY}"


class Bell:
    """What shims ring at, as long as the process that has bound it lives."""

    def __init__(self, machine: Machine) -> None:
        self._process = PROCESS.get()
        self._said: deque[bytes] = deque()
        self._rung = trio.Event()
        machine.bell = self

    def bind(self, name: str) -> None:
        """Be where shims look."""

    def close(self) -> None:
        """Hear nothing more."""

    def recv(self, size: int) -> bytes:
        """Hear the next word. Raises BlockingIOError."""
        if not self._said:
            raise BlockingIOError
        return self._said.popleft()

    async def wait_readable(self) -> None:
        """Wait until somebody has rung."""
        while not self._said:
            self._rung = trio.Event()
            await self._rung.wait()

    def ring(self, word: str) -> None:
        """Say a word, if somebody hears it."""
        if self._process.runs:
            self._said.append(word.encode())
            self._rung.set()


class SimulatedSpawner:
    """Forks a shim for each task that it is handed, unless it is killed before it could."""

    pid = None

    def __init__(self, machine: Machine, failed: Callable[[str, str], None], descriptors: int) -> None:
        self._machine = machine

    def hand_over(self, task: str) -> None:
        """Have a shim begin the task."""
        if self._machine.rng.random() < LOST_FORKS_SHARE:
            self._machine.tell(f"a spawner dies before it has forked for {task}")
        else:
            start_shim(self._machine, task)

    def begun(self, task: str) -> None:
        """Take note of nothing."""

    async def run(self) -> None:
        """Do nothing, until cancelled."""
        await trio.sleep_forever()


def start_shim(machine: Machine, task: str) -> None:
    """Start a task's shim, which needs nobody from then on."""
    process = machine.start("shim", f"shim of {task}", partial(_be_shim, machine=machine, task=task))
    machine.tell(f"{process.name} is forked")


async def _be_shim(process: Process, *, machine: Machine, task: str) -> None:
    path = f"{tasks_directory(machine)}/{task}"
    await machine.turn("looks for its lock")
    try:
        lock = directory.open_lock(path)
    except FileNotFoundError:
        return
    with contextlib.ExitStack() as files:
        files.callback(os.close, lock)
        process.dies = files.close
        while not directory.take_lock(lock):
            await trio.sleep(LOCK_SECONDS)
            await machine.turn("asks for its lock again")
        if _has_begun(path):
            return
        await _run(process, machine, task, path)
    _ring(machine, "ended", task)


def _has_begun(path: str) -> bool:
    return any(os.path.lexists(f"{path}/{name}") for name in (directory.EXIT, directory.RUN))


async def _run(process: Process, machine: Machine, task: str, path: str) -> None:
    """Run the command, and write down how it ended."""
    spec = directory.read_map(f"{path}/{directory.SPEC}")
    assert spec is not None
    if spec["owner"] is not None and _is_gone(machine, spec["owner"]):
        why = "the process that asked for it ended before it began"
        return _write_end(machine, path, {"not_started": why}, "owner")
    shim = {"boot": f"boot-{machine.boot}", "pid": process.pid, "start": process.identity.start}
    directory.write_whole(f"{path}/{directory.RUN}", shim)
    os.unlink(f"{path}/{directory.ENVIRONMENT}")
    directory.keep_space(f"{path}/{directory.RUN}")
    await machine.turn("starts its command")
    key, code = spec["argv"][3], int(spec["argv"][2].split()[1])
    machine.witnesses.setdefault(key, []).append("began")
    leader = {"pid": process.pid + 10_000, "start": process.identity.start, "time": machine.time_ns() // 1_000_000}
    directory.write_kept(f"{path}/{directory.RUN}", {**shim, "leader": leader})
    _ring(machine, "started", task)
    how, by = await _end(process, machine, path, spec["owner"], code)
    await machine.turn("writes down how its command ended")
    if by == "itself":
        machine.witnesses[key].append(str(TaskEnd(how, None)))
    return _write_end(machine, path, how, by)


async def _end(
    process: Process, machine: Machine, path: str, owner: Mapping[str, Any] | None, code: int
) -> tuple[dict[str, int], str]:
    """Wait until the command ends by itself, is ordered to stop, or loses its owner."""
    found: list[tuple[dict[str, int], str]] = []
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            await trio.sleep(machine.rng.choice(COMMAND_SECONDS))
            await machine.turn("has run its command to the end")
            found.append(({"code": code}, "itself"))
            nursery.cancel_scope.cancel()

        async def obey(event: trio.Event) -> None:
            await event.wait()
            order = directory.read_map(f"{path}/{directory.CONTROL}") or {}
            by = "owner" if event is not process.ordered else order.get("by", "stop")
            found.append(({"signal": 15}, by))
            nursery.cancel_scope.cancel()

        nursery.start_soon(run)
        nursery.start_soon(obey, process.ordered)
        if owner is not None:
            nursery.start_soon(obey, machine.processes[owner["pid"]].ended)
    return found[0]


def _write_end(machine: Machine, path: str, how: Mapping[str, Any], by: str) -> None:
    end = {"how": how, "by": by, "ended": machine.time_ns() // 1_000_000, "survivors": []}
    directory.write_exit(path, {**end, "output_bytes": 0, "output": None})


def _is_gone(machine: Machine, who: Mapping[str, Any]) -> bool:
    return who["boot"] != f"boot-{machine.boot}" or not machine.processes[who["pid"]].is_alive


def _ring(machine: Machine, word: str, task: str) -> None:
    if machine.bell is not None and machine.rng.random() >= LOST_RINGS_SHARE:
        machine.bell.ring(f"{word} {task}")
