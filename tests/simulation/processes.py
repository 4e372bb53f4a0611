"""Simulated processes and the machine that they run on: who lives, who holds the store's lock, whose turn it is.

A simulated process is a task of trio in this one, with a pid, a place among the living and nothing shared with others
but sockets and the disk. It does nothing of weight by itself: where that would take time (a commit, a look at the disk,
an agent's next wish) it waits for its *turn*, and who tells the story says whose turn comes next. So all that happens
follows from that one's choices. The clock stands still until it is told that time passes.

Death is SIGKILL's: no byte is sent any more, connections end, the lock is free once its last holder is dead. What the
code would do in its `finally` blocks runs without any effect on the others.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import trio

from turnkeeper.runtime.identity import Identity

from ..simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from turnkeeper.storage.opening import OpeningReport

    from .event_loop import EventLoop
    from .sockets import SimulatedListener, SimulatedSocket
    from .tasks import Bell

Role = Literal["host", "node", "writer", "shim"]

KILLED = -9
"""How a killed process ends, as its parent sees it."""

BEGINNING_SECONDS = 1_700_000_000
"""The wall clock, in seconds since 1970, when a story begins."""

PROCESS: ContextVar[Process] = ContextVar("PROCESS")
"""The simulated process that the running code belongs to."""


@dataclass(slots=True, eq=False)
class Turn:
    """A process that waits until it may do something, and what that is."""

    process: Process
    what: str
    granted: trio.Event


class Process:
    """One simulated process; `parent` is who started it."""

    def __init__(self, machine: Machine, pid: int, role: Role, name: str, parent: Process | None) -> None:
        self.pid = pid
        self.role: Role = role
        self._machine = machine
        self.name = f"{name} ({pid})"
        self.parent = parent
        self.is_alive = True
        self.is_stopped = False
        self.exit_code: int | None = None
        self.ended = trio.Event()
        self.stdin_ended = trio.Event()
        self._line: bytes | None = None
        self.scope = trio.CancelScope()
        self.dies: Callable[[], object] | None = None
        self.said = trio.Event()
        self.ordered = trio.Event()
        self.identity = Identity(f"boot-{machine.boot}", pid, 1000 + pid, "here")

    @property
    def runs(self) -> bool:
        """Say whether it lives and isn't stopped."""
        return self.is_alive and not self.is_stopped

    # -- What whoever started it sees of it, as of a subprocess.Popen

    @property
    def returncode(self) -> int | None:
        """How it ended."""
        return self.exit_code

    @property
    def stdin(self) -> Pipe:
        """A pipe that it reads, until that is closed."""
        return Pipe(self.pid, self.stdin_ended.set)

    @property
    def stdout(self) -> Pipe:
        """A pipe from which is read what it says."""
        return Pipe(self.pid, lambda: None)

    def wait(self) -> int | None:
        """Give its exit code: it has ended by then."""
        return self.exit_code

    def kill(self) -> None:
        """Kill it."""
        self._machine.kill(self)

    def say(self, line: bytes) -> None:
        """Say the one line that whoever started it waits for."""
        self._line = line
        self.said.set()

    async def hear(self) -> bytes:
        """Wait for the next line that it says; empty once it has ended."""
        if self._line is None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_wait_one, self.said, nursery.cancel_scope)
                nursery.start_soon(_wait_one, self.ended, nursery.cancel_scope)
        if self._line:
            line, self._line = self._line, b""
            return line
        await self.ended.wait()
        return b""


class Pipe:
    """One end of a pipe of a simulated process, whose pid stands for its descriptor."""

    def __init__(self, pid: int, close: Callable[[], object]) -> None:
        self._pid = pid
        self.close = close

    def fileno(self) -> int:
        """Give what stands for a descriptor."""
        return self._pid


async def _wait_one(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


class Machine:
    """The one machine of a story. `nursery` is where its processes run."""

    def __init__(self, disk: SimulatedDisk, loop: EventLoop, nursery: trio.Nursery, rng: random.Random) -> None:
        self.disk = disk
        self.loop = loop
        self.rng = rng
        self.boot = 1
        self.processes: dict[int, Process] = {}
        self.lock: dict[Process, None] = {}
        self.listeners: dict[str, SimulatedListener] = {}
        self.sockets: dict[SimulatedSocket, None] = {}
        self.turns: dict[Turn, None] = {}
        self.told: list[tuple[float, str]] = []
        self.errors: list[str] = []
        self.environments: dict[str, Any] = {}
        self.index_fails = False
        self.bell: Bell | None = None
        self.witnesses: dict[str, list[str]] = {}
        self.faults_injected = 0
        self.note_kill: Callable[[Process], object] = lambda process: None
        self.nursery = nursery
        self._last_pid = 100
        self._last_moment = 0
        disk.clock = self.time

    # -- Time

    def monotonic(self) -> float:
        """Give the seconds of the clock that never steps back."""
        return self.loop.now

    def time_ns(self) -> int:
        """Give the wall clock; no two readings are the same."""
        moment = int((BEGINNING_SECONDS + self.loop.now) * 1_000_000) * 1000
        self._last_moment = max(moment, self._last_moment + 1000)
        return self._last_moment

    def time(self) -> float:
        """Give the wall clock in seconds."""
        return self.time_ns() / 1e9

    def tell(self, what: str) -> None:
        """Say what happens now in the story."""
        self.told.append((self.loop.now, what))

    # -- Processes

    @property
    def is_held(self) -> bool:
        """Say whether somebody has the store's lock, living or stopped."""
        return bool(self.lock)

    def living(self, *roles: Role) -> list[Process]:
        """List the processes that live, of these roles."""
        return [each for each in self.processes.values() if each.is_alive and each.role in roles]

    def start(
        self, role: Role, name: str, main: Callable[[Process], Awaitable[None]], parent: Process | None = None
    ) -> Process:
        """Start a process. What `main` raises is a mistake, and told as such."""
        self._last_pid += 1
        process = Process(self, self._last_pid, role, name, parent)
        self.processes[process.pid] = process
        before = PROCESS.set(process)
        try:
            self.nursery.start_soon(self._run, process, main)
        finally:
            PROCESS.reset(before)
        return process

    async def _run(self, process: Process, main: Callable[[Process], Awaitable[None]]) -> None:
        try:
            with process.scope:
                await main(process)
        except Exception as error:
            if process.is_alive:  # what the dead raise nobody hears
                self.errors.append("".join(traceback.format_exception(error)))
                self.tell(f"{process.name} raises {error!r:.300}")
                self.end(process, 1)
        if process.is_alive:
            self.end(process, 0)

    def end(self, process: Process, code: int) -> None:
        """Let a process end: its connections end behind what it has sent."""
        self._end(process, code, cuts=False)

    def kill(self, process: Process) -> None:
        """Kill a process in the middle of whatever it does; of what it was sending some may be lost."""
        self._end(process, KILLED, cuts=True)

    def die(self) -> None:
        """Kill the running process, which was in the middle of an operation of the disk that ends with it."""
        process = PROCESS.get()
        self.tell(f"{process.name} dies in the middle of it")
        self.note_kill(process)
        self.disk.fail_at = 0
        self.kill(process)

    def _end(self, process: Process, code: int, *, cuts: bool) -> None:
        if not process.is_alive:
            return
        process.is_alive = process.is_stopped = False
        process.exit_code = code
        process.scope.cancel()
        if process.dies is not None:
            process.dies()
        for socket in [each for each in self.sockets if each.process is process]:
            if cuts and self.rng.random() < 0.5:
                socket.peer.lose_some(self.rng)
            socket.close()
        self.lock.pop(process, None)
        for child in self.processes.values():
            if child.parent is process:
                child.stdin_ended.set()
        process.ended.set()
        for turn in [each for each in self.turns if each.process is process]:
            del self.turns[turn]
            turn.granted.set()  # for those that wait in a shield; the others are cancelled

    async def turn(self, what: str) -> None:
        """Wait until this process may do something that takes time."""
        turn = Turn(PROCESS.get(), what, trio.Event())
        if not turn.process.is_alive:
            await trio.lowlevel.checkpoint()
            return
        self.turns[turn] = None
        try:
            await turn.granted.wait()
        finally:
            self.turns.pop(turn, None)

    def grant(self, turn: Turn) -> None:
        """Let a process do what it waits for."""
        self.tell(f"{turn.process.name} {turn.what}")
        self.turns.pop(turn, None)
        turn.granted.set()

    # -- What the operating system would say

    def note_failure(self, error: Exception) -> None:
        """Take note that a writer ended by an error, which has to be one that the story made."""
        if self.faults_injected == 0:
            self.errors.append(f"a writer failed by itself: {error!r}")

    def note_opening(self, report: OpeningReport) -> None:
        """Take note of what an opening found: nothing that was acknowledged may be damaged."""
        kinds = {finding.kind for finding in report.findings}
        if kinds - {"torn tail"}:
            self.errors.append(f"an opening found damage: {report.findings}")

    def lose_power(self) -> None:
        """End everything at once, and lose a part of what wasn't synced."""
        for process in list(self.processes.values()):
            self.kill(process)
        self.lock.clear()
        self.listeners.clear()
        self.disk.crash(self.rng)
        self.close_environments()
        self.boot += 1

    def close_environments(self) -> None:
        """Close the files of the index."""
        for environment in self.environments.values():
            environment.close()
        self.environments.clear()
