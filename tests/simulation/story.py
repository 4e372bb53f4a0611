"""One story: from a seed, what happens to a store's processes, step by step, and what was promised meanwhile.

Each step is one of: a process does what it waits to do; some bytes of a connection arrive; time passes; somebody is
started, killed, stopped or continued; a connection is cut; the disk fails; the power goes. Which of these a story has
is drawn first, so that some stories are calm in one way and wild in another. In the end everything that was stopped
goes on, all programs leave in order, a last one opens every session once more, and what was noted is judged against
the bytes that a power cut would leave.
"""

from __future__ import annotations

import os
import random
import shutil
import traceback
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import trio

from ..simulated_disk import SimulatedDisk
from ..stores import make_store
from .event_loop import EventLoop, run
from .host import Caretaker, Common, Host
from .judging import judge
from .notebook import MemoryNotebook
from .operating_system import standing_in
from .processes import Machine, Process, Turn
from .sockets import SimulatedSocket
from .spoiling import spoil_and_read

STEPS = 200
"""What happens in a story before its end; how it comes to that takes as much again."""

SPOILED_SHARE = 0.3
"""How many of the stories are followed by a spoiled byte."""

FAULTS: Final = {
    "kill_writer": 3,
    "kill_node": 2,
    "kill_host": 3,
    "kill_shim": 2,
    "kill_node_and_writer": 1,
    "lose_power": 1,
    "stop": 2,
    "stop_writer": 2,
    "cut": 2,
    "fail_soon": 4,
    "fail_sync": 3,
    "fail_index": 1,
    "fill_disk": 1,
    "lose_index": 1,
}
"""What may go wrong, and how often beside each other."""

NAMED_CHANCE = 0.03
"""How many of the steps are faults, where these are named."""

HOSTS = ("ada", "bob", "cy")
QUIET_ROUNDS_MAX = 400
QUIET_SECONDS = 0.25
"""At a story's end: rounds, and the time that passes between two, before who hasn't ended counts as stuck."""


@dataclass(slots=True)
class Outcome:
    """How a story went: what happened at which second, and what is wrong."""

    seed: int
    steps: int = 0
    told: list[tuple[float, str]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = (f"{number:5} {moment:9.3f}  {what}" for number, (moment, what) in enumerate(self.told, 1))
        return "\n".join((f"seed {self.seed}: {len(self.violations)} broken promises", *lines, *self.violations))


def memory() -> str | None:
    """Give a directory of a file system in memory, if there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def tell(seed: int, root: Path, steps: int = STEPS, faults: Collection[str] = ()) -> Outcome:
    """Tell the story of a seed; `root` is a directory for the index's files, best in memory.

    With `faults` these go wrong, and no others.
    """
    outcome = Outcome(seed)
    try:
        run(seed, partial(_tell, outcome, root, steps, faults))
    except Exception as error:
        outcome.violations.append("".join(traceback.format_exception(error)))
    return outcome


async def _tell(outcome: Outcome, root: Path, steps: int, faults: Collection[str], loop: EventLoop) -> None:
    path = root / "store"
    make_store(path, "journal")
    try:
        async with trio.open_nursery() as nursery:
            machine = Machine(SimulatedDisk(path), loop, nursery, random.Random(outcome.seed))
            with standing_in(machine):
                story = Story(machine, faults)
                try:
                    await story.happen(steps)
                    is_settled = await story.settle()
                    outcome.violations = [*machine.errors, *judge(machine, story.common, is_settled=is_settled)]
                    if not outcome.violations and machine.rng.random() < SPOILED_SHARE:
                        outcome.violations = spoil_and_read(machine)
                finally:
                    outcome.told, outcome.steps = machine.told, story.steps
                    await story.abandon()
                    nursery.cancel_scope.cancel()
            machine.close_environments()
    finally:
        shutil.rmtree(path)


class Story:
    """What happens on one machine. Of `faults` all come, and often; without any, some are drawn."""

    def __init__(self, machine: Machine, faults: Collection[str]) -> None:
        self.machine = machine
        self.rng = machine.rng
        self.common = Common()
        self._notes = MemoryNotebook(machine, None, self.common.notes, "the story")
        machine.note_kill = self._note_kill
        self.steps = 0
        self._hosts: dict[str, Host] = {}
        self._power_goes_at = 0
        self._names = HOSTS[: self.rng.randint(1, len(HOSTS))]
        kinds = [kind for kind in FAULTS if (kind in faults if faults else self.rng.random() < 0.6)]
        self._faults = [getattr(self, f"_{kind}") for kind in kinds]
        self._weights = [FAULTS[kind] for kind in kinds]
        chances = (NAMED_CHANCE,) if faults else (0.01, 0.05, 0.1)
        self._fault_chance = self.rng.choice(chances) if kinds else 0.0

    # -- The story

    async def happen(self, steps: int) -> None:
        """Let so many things happen."""
        while self.steps < steps:
            self.steps += 1
            chance = self.rng.random()
            if self.steps == self._power_goes_at:
                self._lose_power()
            elif chance < self._fault_chance:
                (fault,) = self.rng.choices(self._faults, self._weights)
                fault()
            elif chance < self._fault_chance + 0.03:
                self._recover()
            elif chance < self._fault_chance + 0.08 or not self._go_on():
                self._pass_time()
            await self.machine.loop.all_wait()

    def _go_on(self) -> bool:
        """Let something happen that waits to happen; False if nothing does."""
        waiting: list[Turn | SimulatedSocket | str] = [turn for turn in self.machine.turns if turn.process.runs]
        waiting += [socket for socket in self.machine.sockets if socket.has_something_under_way]
        waiting += [name for name in self._names if name not in self._hosts or not self._hosts[name].process.is_alive]
        if not waiting:
            return False
        chosen = self.rng.choice(waiting)
        if isinstance(chosen, Turn):
            self.machine.grant(chosen)
        elif isinstance(chosen, SimulatedSocket):
            self._let_arrive(chosen)
        else:
            self._hosts[chosen] = Host(self.machine, self.common, chosen)
            self.machine.tell(f"{self._hosts[chosen].process.name} is started")
        return True

    def _let_arrive(self, socket: SimulatedSocket) -> None:
        size = len(socket.under_way)
        if size and self.rng.random() < 0.2:
            size = self.rng.randint(1, size)
        socket.arrive(size)
        self.machine.tell(f"{size} bytes arrive: {socket.name}")

    def _pass_time(self) -> None:
        seconds = self.rng.choice((0.001, 0.02, 0.05, 0.25, 0.25, 1.0, 3.0))
        self.machine.loop.jump(seconds)
        self.machine.tell(f"{seconds} s pass")

    # -- The end

    async def settle(self) -> bool:
        """Let everything end in order, and look once more at every session; False if that doesn't come to its end."""
        machine = self.machine
        machine.disk.fail_at, machine.disk.sync_fails, machine.disk.free = 0, False, 1 << 40
        machine.index_fails = False
        machine.tell("from here on nothing goes wrong")
        for process in machine.processes.values():
            process.is_stopped = False
        for host in self._hosts.values():
            host.is_leaving.set()
        if not await self._wait_for([host.process for host in self._hosts.values()]):
            return False
        caretaker = Caretaker(machine, self.common)
        if not await self._wait_for([caretaker.process]):
            return False
        return await self._wait_for(machine.living("node", "writer", "shim"))

    async def _wait_for(self, processes: Sequence[Process]) -> bool:
        """Let happen what may until these processes have ended."""
        for _ in range(QUIET_ROUNDS_MAX):
            for _ in range(1000):
                await self.machine.loop.all_wait()
                if not any(each.is_alive for each in processes):
                    return True
                if not self._go_on_quietly():
                    break
                self.steps += 1
            self.machine.loop.jump(QUIET_SECONDS)
        left = [each.name for each in processes if each.is_alive]
        self.machine.errors.append(f"{', '.join(left)} never ended")
        return False

    def _go_on_quietly(self) -> bool:
        waiting: list[Turn | SimulatedSocket] = [turn for turn in self.machine.turns if turn.process.runs]
        waiting += [socket for socket in self.machine.sockets if socket.has_something_under_way]
        if not waiting:
            return False
        chosen = self.rng.choice(waiting)
        if isinstance(chosen, Turn):
            self.machine.grant(chosen)
        else:
            self._let_arrive(chosen)
        return True

    async def abandon(self) -> None:
        """End every process, and wait until nothing of them is left."""
        for process in list(self.machine.processes.values()):
            self.machine.kill(process)
        for _ in range(20):
            await self.machine.loop.all_wait()
            if not self.machine.nursery.child_tasks:
                break
            self.machine.loop.jump(10.0)

    # -- Faults

    def _kill_writer(self) -> None:
        self._kill(self.machine.living("writer"))

    def _kill_node(self) -> None:
        self._kill(self.machine.living("node"))

    def _kill_host(self) -> None:
        self._kill(self.machine.living("host"))

    def _kill_shim(self) -> None:
        self._kill(self.machine.living("shim"))

    def _kill_node_and_writer(self) -> None:
        self._kill(self.machine.living("node"))
        self._kill(self.machine.living("writer"))

    def _kill(self, processes: list[Process]) -> None:
        if processes:
            process = self.rng.choice(processes)
            self.machine.tell(f"{process.name} is killed")
            self._note_kill(process)
            self.machine.kill(process)

    def _note_kill(self, process: Process) -> None:
        self._notes.strike("kill", process.role, [process.pid])

    def _lose_power(self) -> None:
        self.machine.tell("the power goes")
        self._notes.strike("power", "machine", [each.pid for each in self.machine.processes.values() if each.is_alive])
        self.machine.lose_power()

    def _stop(self) -> None:
        running = [each for each in self.machine.living("host", "node", "writer") if each.runs]
        if running:
            process = self.rng.choice(running)
            process.is_stopped = True
            self.machine.tell(f"{process.name} is stopped")

    def _stop_writer(self) -> None:
        """Stop the writer, and mostly kill its node, so that somebody else wants to serve the store."""
        for process in [each for each in self.machine.living("writer") if each.runs]:
            process.is_stopped = True
            self.machine.tell(f"{process.name} is stopped")
            if self.rng.random() < 0.7:
                self._kill_node()

    def _recover(self) -> None:
        """Let what was stopped go on, and give the disk its space back."""
        self.machine.disk.free = 1 << 40
        stopped = [each for each in self.machine.processes.values() if each.is_stopped]
        if stopped:
            process = self.rng.choice(stopped)
            process.is_stopped = False
            self.machine.tell(f"{process.name} goes on")

    def _cut(self) -> None:
        sockets = list(self.machine.sockets)
        if sockets:
            socket = self.rng.choice(sockets)
            self.machine.tell(f"a connection is cut: {socket.name}")
            socket.cut(self.rng)

    def _fail_soon(self) -> None:
        disk = self.machine.disk
        disk.fail_at = disk.operations + self.rng.randint(1, 8)
        disk.sync_fails = False
        self.machine.tell(f"whoever does the disk's operation {disk.fail_at} will die")

    def _fail_sync(self) -> None:
        """Let a sync fail, if it is the operation that is meant; sometimes the power goes a while later."""
        disk = self.machine.disk
        disk.fail_at = disk.operations + self.rng.randint(1, 4)
        disk.sync_fails = True
        self.machine.faults_injected += 1
        self.machine.tell(f"the disk's operation {disk.fail_at} will fail if it is a sync, and kill otherwise")
        if self.rng.random() < 0.5:
            self._power_goes_at = self.steps + self.rng.randint(15, 60)

    def _fail_index(self) -> None:
        self.machine.index_fails = True
        self.machine.faults_injected += 1
        self.machine.tell("the index's next transaction will fail")

    def _fill_disk(self) -> None:
        self.machine.disk.free = 0
        self.machine.tell("the disk is full")

    def _lose_index(self) -> None:
        if not self.machine.living("writer"):
            disk = self.machine.disk
            disk.fail_at, disk.sync_fails = 0, False
            disk.remove("index.json")
            self.machine.tell("the index is lost")
