"""The strikes and faults of a life, carried out at their moments, noted, and ended in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from . import faults, victims
from .faults import Lift, Missed
from .plan import Disturbance, Kill, Life, Role
from .stage import Stage
from .store_processes import parent_of

RESTART_SECONDS = 0.15
"""So long after its death a host is started again."""

TAKEOVER_SECONDS = 0.1
"""So long after a host was stopped another one takes its sessions over."""

CLOCK_SECONDS = (5, 100_000)
"""How far a clock is set back."""


class Strikes:
    """What is done in one life of the stage's store."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._ongoing: list[_Ongoing] = []

    def plan(self, life: Life) -> None:
        """Put all that is planned into the timeline."""
        for kill in life.kills:
            self._stage.timeline.at(kill.at_ms / 1000, partial(self._kill, kill))
        for disturbance in life.disturbances:
            self._stage.timeline.at(disturbance.at_ms / 1000, partial(self._disturb, disturbance))

    def end(self) -> None:
        """End all faults, take away the failpoints that nobody has passed, and note who has passed one."""
        for ongoing in self._ongoing:
            ongoing.end()
        for path in sorted(self._stage.points.iterdir()):
            self._note_obeyed(path.name)
            path.unlink()

    def _note_obeyed(self, name: str) -> None:
        point, _, pid = name.partition(".")
        if pid:
            died = (self._stage.points / name).stat().st_ctime
            self._stage.notebook.strike("kill", point.partition("-")[0], [int(pid)], point=point, died=died)

    # -- Kills

    def _kill(self, kill: Kill) -> None:
        if kill.point is not None:
            self._stage.notebook.strike("arm", kill.roles[0], point=kill.point)
            (self._stage.points / kill.point).write_text("")
            return
        self.kill(victims.choose(self._stage.find(), kill.roles, kill.draw))

    def kill(self, chosen: Mapping[int, Role], *, restart: bool = True) -> None:
        """Kill processes at once; the hosts among them are started again a little later, if wanted."""
        stage = self._stage
        for role in dict.fromkeys(chosen.values()):
            stage.notebook.strike("kill", role, [pid for pid, its in chosen.items() if its == role])
        workers = [pid for pid in stage.find()["worker"] if pid not in chosen and parent_of(pid) in chosen]
        if workers:
            stage.notebook.strike("kill", "worker", workers, with_host=True)
        struck = [name for name, host in stage.hosts.items() if host.pid in chosen]
        for name in struck:
            stage.hosts[name].is_killed = True
        victims.kill(chosen)
        stage.notebook.died(list(chosen))
        stage.killed += len(chosen)
        if restart:
            for name in struck:
                stage.timeline.at(stage.timeline.now + RESTART_SECONDS, partial(self._start_again, name))

    def _start_again(self, name: str) -> None:
        host = self._stage.hosts[name]
        self._stage.complain(host.release())
        self._stage.start(host.plan)

    # -- Faults

    def _disturb(self, fault: Disturbance) -> None:
        try:
            lift = self._begin(fault)
        except Missed as missed:
            note = partial(self._stage.notebook.strike, "missed", fault.target, fault=fault.kind)
            note(why=str(missed), tried=missed.is_tried)
            return
        word = "continue" if fault.kind == "stop" else "lift"
        ongoing = _Ongoing(lift, partial(self._stage.notebook.strike, word, fault.target, fault=fault.kind))
        self._stage.undo.callback(ongoing.end)
        self._ongoing.append(ongoing)
        self._stage.timeline.at(self._stage.timeline.now + fault.for_ms / 1000, ongoing.end)

    def _begin(self, fault: Disturbance) -> Lift:
        """Begin a fault, noted before, and give what ends it. Raises Missed."""
        stage, kind, number = self._stage, fault.kind, fault.number
        if kind == "socket":
            stage.notebook.strike(kind, fault.target)
            return faults.remove_socket(stage.store / fault.target)
        if kind == "clock":
            assert stage.clock is not None
            seconds = Random(number).randint(*CLOCK_SECONDS)
            stage.notebook.strike(kind, "all", seconds=seconds)
            return stage.clock.set_back(seconds)
        pids = self._one_of(fault.target, number)
        stage.notebook.strike(kind, fault.target, pids)
        if kind == "stop":
            if fault.target == "host":
                stage.timeline.at(stage.timeline.now + TAKEOVER_SECONDS, partial(self._take_over, pids[0]))
            return faults.stop(pids)
        journal = stage.store / "journal"
        match kind:
            case "eio":
                return faults.failing_sync(pids[0], number)
            case "enospc":
                return faults.full_disk(pids[0], number, journal)
            case "slow":
                return faults.slow_disk(pids[0], number)
            case _:
                return faults.short_writes(pids[0], journal)

    def _one_of(self, role: str, number: int) -> list[int]:
        """Choose one who has a role. Raises Missed."""
        there = sorted(self._stage.find()[role])  # type: ignore[index]
        if not there:
            raise Missed(f"there is no {role} now", is_tried=False)
        return [there[number % len(there)]]

    def _take_over(self, stopped: int) -> None:
        """Let another host take over the sessions of one that is stopped, where there is another one."""
        hosts = self._stage.hosts.values()
        its = [agent for host in hosts if host.pid == stopped for agent in host.plan.agents if not agent.in_worker]
        other = next((host for host in hosts if host.pid != stopped and not host.has_ended), None)
        if other is not None:
            other.take_over(its)


class _Ongoing:
    """A fault that was begun: it is ended once, by its time, the life's end or the round's, whichever comes first."""

    def __init__(self, lift: Lift, note: Callable[[], None]) -> None:
        self._lift: Lift | None = lift
        self._note = note

    def end(self) -> None:
        """End it, if it isn't ended, and note that."""
        lift, self._lift = self._lift, None
        if lift is not None:
            lift()
            self._note()
