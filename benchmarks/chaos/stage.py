"""What a round is played on: its directory, its store, its hosts, its notes, and the list of what has to be put right.

The runner's own process opens no store. Whatever is changed that outlives a process (a stopped process, a limit, a
mount, a clock) is written down in `undo` in the same breath, and put right at every end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from turnkeeper.actors.failpoints import limits_of
from turnkeeper.runtime.failpoints import LIMITS_VARIABLE as LIMITS
from turnkeeper.runtime.failpoints import VARIABLE as FAILPOINTS

from ..measuring.interrupts import Interrupts
from ..measuring.marked_processes import kill_left_behind
from . import abilities, planned_tasks, victims
from .cut_disk import CutDisk, private_mounts
from .faults import Clock
from .host import HostStart
from .host_processes import HostProcess
from .notes import OFFSET, Notebook
from .plan import HostPlan, Role, RoundPlan
from .store_processes import processes_by_role
from .timeline import Timeline

MARK = "TURNKEEPER_CHAOS"
"""The variable by which all processes of a round are known: it holds the round's directory."""

LEAVE_SECONDS = 40.0
"""How long a host may take to leave the store in order, ..."""

GONE_SECONDS = 25.0
"""... and the store's processes to be gone then: a node that nobody came to waits for somebody first."""

LOOK_SECONDS = 0.02
SAID_CHARACTERS = 1500
DRAWS_A_RUN = 1000


class Stage:
    """The stage of a round, in a directory that is there and empty. Enter it, and leave it before anything else."""

    def __init__(self, plan: RoundPlan, place: Path, interrupts: Interrupts) -> None:
        self.plan = plan
        self.place = place
        self.notes = place / "notes"
        self.bench = place / "bench"
        self.points = place / "failpoints"
        self.logs = place / "logs"
        self.interrupts = interrupts
        self.complaints: list[str] = []
        self.killed = 0
        self.hosts: dict[str, HostProcess] = {}
        self.timeline = Timeline(interrupts)
        self.disk: CutDisk | None = None
        self.clock: Clock | None = None
        self.store = place / "store"
        self.mark = f"{MARK}={place}"
        self.undo = ExitStack()
        offset = str(time.time() - time.monotonic())
        self._environment = {MARK: str(place), FAILPOINTS: str(self.points), OFFSET: offset}
        if plan.store.part_bytes is not None:
            self._environment[LIMITS] = json.dumps(limits_of(plan.store.part_bytes))
        self._runs = 0

    def __enter__(self) -> Stage:
        try:
            self._set()
        except BaseException:
            self.undo.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.undo.close()

    def _set(self) -> None:
        for directory in (self.notes, self.logs, self.points, self.bench):
            directory.mkdir()
        planned_tasks.prepare(self.bench)
        self.notebook = self.undo.enter_context(Notebook(self.notes / "runner.jsonl"))
        if self.plan.has_power_cut:
            private_mounts()
            self.disk = CutDisk(self.place)
            self.undo.callback(self.disk.release)
            self.disk.power_up()
            self.store = self.disk.mounted / "store"
        library = abilities.faketime_library() if self.plan.has_clock else None
        if library is not None:
            self.clock = Clock(library, self.place / "clock")
            self._environment |= self.clock.environment
            self.undo.callback(self.clock.release)
        self.undo.callback(os.close, self._hold_tasks())
        self.undo.callback(kill_left_behind, self.mark, GONE_SECONDS)
        self.undo.callback(self.release_hosts)

    def _hold_tasks(self) -> int:
        """Hold open what tasks that last read from; give the descriptor."""
        hold = self.bench / "hold"
        os.mkfifo(hold, 0o600)
        return os.open(hold, os.O_RDWR | os.O_CLOEXEC)

    @property
    def url(self) -> str:
        """Give the store as its hosts open it: what keeps it, and its path."""
        return f"{self.plan.store.url}{self.store}"

    def begin_timeline(self) -> Timeline:
        """Begin a timeline that counts from now."""
        self.timeline = Timeline(self.interrupts)
        return self.timeline

    # -- Hosts

    def start(self, plan: HostPlan) -> None:
        """Start a host, in its next run."""
        self._runs += 1
        start = HostStart(
            name=f"{plan.name}.{self._runs}",
            store=self.url,
            notes=str(self.notes),
            bench=str(self.bench),
            plan=plan.as_map(),
            peers=[agent.name for host in self.plan.hosts for agent in host.agents],
            after=self._followed(plan),
            draw=self._runs * DRAWS_A_RUN,
        )
        self.hosts[plan.name] = HostProcess(start, plan, self.logs / f"{start.name}.log", self._environment)

    def _followed(self, plan: HostPlan) -> dict[str, int]:
        """Say how far each follower of a host has come, by what its former runs noted."""
        after: dict[str, int] = {}
        for path in self.notes.glob(f"{plan.name}.*.jsonl"):
            for line in path.read_bytes().split(b"\n")[:-1]:
                if line.startswith(b'{"what":"followed"'):
                    note = json.loads(line)
                    name, position = note["follower"], note["events"][-1][0]
                    after[name] = max(after.get(name, 0), position)
        return after

    def is_at_work(self) -> bool:
        """Say whether every host has something to note."""
        paths = [self.notes / f"{host.name}.jsonl" for host in self.hosts.values()]
        return all(path.exists() and path.stat().st_size for path in paths)

    def release_hosts(self) -> None:
        """Kill the hosts that live still, and say what was wrong with those that nobody had to kill."""
        for host in self.hosts.values():
            if not host.has_ended:
                host.kill()
            self.complain(host.release())
        self.hosts.clear()

    def find(self) -> Mapping[Role, list[int]]:
        """Find everybody who lives, by role."""
        return victims.find(self.store, [host.pid for host in self.hosts.values()])

    # -- Other programs

    def run(self, name: str, arguments: Sequence[str], seconds: float, allowed: Sequence[int] = (0,)) -> bytes | None:
        """Run a module of this Python to its end, and give what it says; None, and a complaint, if it fails."""
        output, log = self.logs / f"{name}.out", self.logs / f"{name}.log"
        with output.open("wb") as said, log.open("wb") as errors:
            program = subprocess.Popen(
                [sys.executable, "-P", "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=errors,
                env={**os.environ, MARK: self._environment[MARK]},
                start_new_session=True,
            )
        try:
            if not self.wait(seconds, lambda: program.poll() is not None):
                self.complain(f"{name} isn't done after {seconds:.0f} s")
            elif program.returncode in allowed:
                return output.read_bytes()
            else:
                words = log.read_text(errors="replace")[-SAID_CHARACTERS:]
                self.complain(f"{name} ended with {program.returncode}: {words}")
        finally:
            program.kill()
            program.wait()
        return None

    # -- Waiting

    def wait(self, seconds: float, is_so: Callable[[], bool]) -> bool:
        """Wait until something is so; say whether it is, after `seconds` at most."""
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                return False
            self.interrupts.pause(LOOK_SECONDS)
        return True

    def await_gone(self) -> None:
        """See that nobody serves the store any more, once all have left it."""
        if not self.wait(GONE_SECONDS, lambda: not self._serving()):
            self.complain(f"all have left, and {GONE_SECONDS:.0f} s later these serve the store: {self._serving()}")
            victims.kill(self._serving())

    def _serving(self) -> list[int]:
        return [pid for role in processes_by_role(self.store).values() for pid in role]

    def complain(self, complaint: str | None) -> None:
        """Write down what is wrong, if anything is."""
        if complaint is not None:
            self.complaints.append(complaint)
