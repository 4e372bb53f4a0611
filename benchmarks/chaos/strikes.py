"""The strikes and faults of a life, carried out at their moments, noted, and ended in time."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

from . import faults, victims
from .failpoint import Failpoint
from .faults import Lift, Missed
from .plan import Disturbance, Kill, Life, Role
from .stage import Stage
from .store_processes import parent_of, state_of

RESTART_SECONDS = 0.15
"""So long after its death a host is started again."""

TAKEOVER_SECONDS = 0.1
"""So long after somebody was stopped somebody else takes over."""

SUCCESSOR_SECONDS = 1.2
"""So much longer a writer is stopped, at most, until there is a successor that he could disturb: there must be none."""

LOOK_SECONDS = 0.01
"""So often it is looked whether somebody has stopped at a failpoint."""

CLOCK_SECONDS = (5, 100_000)
"""How far a clock is set back."""


class Strikes:
    """What is done in one life of the stage's store."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._ongoing: list[_Ongoing] = []
        self._stretch = 1.0
        self._may_kill_node = "node" not in dict(stage.plan.left_out)

    def plan(self, life: Life, stretch: float) -> None:
        """Put all that is planned into the timeline, `stretch` times as late as it is planned."""
        self._stretch = stretch
        for kill in life.kills:
            self._stage.timeline.at(kill.at_ms / 1000 * stretch, partial(self._kill, kill))
        for disturbance in life.disturbances:
            self._stage.timeline.at(disturbance.at_ms / 1000 * stretch, partial(self._disturb, disturbance))

    def end(self) -> None:
        """End all faults, take away the failpoints that nobody has passed, and note who has passed one and died."""
        for ongoing in self._ongoing:
            ongoing.end()
        for path in sorted(self._stage.points.iterdir()):
            point, _, pid = path.name.partition(".")
            if pid and not path.read_text():
                members = {"point": point, "died": path.stat().st_ctime}
                self._stage.notebook.strike("kill", point.partition("-")[0], [int(pid)], **members)
            path.unlink()

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

    def kill_all(self, roles: Sequence[Role]) -> None:
        """Kill everybody of these roles, for good; the hosts are among them."""
        found = self._stage.find()
        self.kill({pid: role for role in roles for pid in found[role]}, restart=False)
        self._stage.release_hosts()

    def _start_again(self, name: str) -> None:
        host = self._stage.hosts[name]
        self._stage.complain(host.release())
        self._stage.start(host.plan)

    # -- Faults

    def _disturb(self, fault: Disturbance) -> None:
        if fault.point is not None:
            self._stop_at(fault, fault.point)
            return
        try:
            lift = self._begin(fault)
        except Missed as missed:
            note = partial(self._stage.notebook.strike, "missed", fault.target, fault=fault.kind)
            note(why=str(missed), tried=missed.is_tried)
            return
        self._end_in_time(fault, self._begun(fault, lift))

    def _begun(self, fault: Disturbance, lift: Lift) -> _Ongoing:
        """See that a fault ends with its life at the latest."""
        word = "continue" if fault.kind == "stop" else "lift"
        ongoing = _Ongoing(lift, partial(self._stage.notebook.strike, word, fault.target, fault=fault.kind))
        self._stage.undo.callback(ongoing.end)
        self._ongoing.append(ongoing)
        return ongoing

    def _end_in_time(self, fault: Disturbance, ongoing: _Ongoing) -> None:
        """Plan its end; that of a stopped writer depends on his successor, if there is to be one."""
        due = self._stage.timeline.now + fault.for_ms / 1000
        if fault.takeover and fault.target == "writer":
            latest = due + SUCCESSOR_SECONDS * self._stretch
            self._stage.timeline.at(due, partial(self._end_with_successor, fault, ongoing, latest))
        else:
            self._stage.timeline.at(due, ongoing.end)

    def _end_with_successor(self, fault: Disturbance, ongoing: _Ongoing, latest: float) -> None:
        """Let a stopped writer go on when another one has worked for a while, or at the latest moment."""
        timeline = self._stage.timeline
        if any(state_of(pid) != "T" for pid in self._stage.find()["writer"]):
            timeline.at(timeline.now + fault.for_ms / 1000, ongoing.end)
        elif timeline.now < latest:
            timeline.at(timeline.now + LOOK_SECONDS, partial(self._end_with_successor, fault, ongoing, latest))
        else:
            ongoing.end()

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
            self._plan_takeover(fault, pids[0])
            return faults.stop(pids)
        files = faults.event_files(stage.store)
        match kind:
            case "eio":
                return faults.failing_sync(pids[0], number)
            case "enospc":
                return faults.full_disk(pids[0], number, files)
            case "slow":
                return faults.slow_disk(pids[0], number)
            case _:
                return faults.short_writes(pids[0], number, files)

    def _one_of(self, role: str, number: int) -> list[int]:
        """Choose one who has a role. Raises Missed."""
        there = sorted(self._stage.find()[role])  # type: ignore[index]
        if not there:
            raise Missed(f"there is no {role} now", is_tried=False)
        return [there[number % len(there)]]

    def _stop_at(self, fault: Disturbance, point: str) -> None:
        """Have somebody stop at a failpoint, for the fault's time, whenever in this life somebody passes it."""
        stage = self._stage
        stage.notebook.strike("arm", fault.target, point=point, signal="SIGSTOP")
        stop = Failpoint(stage.points, point, signal.SIGSTOP, fault.passes)
        ongoing = self._begun(fault, stop.lift)

        def look() -> None:
            pid = stop.obeyed_by()
            if pid is not None:
                stage.notebook.strike("stop", fault.target, [pid], point=point)
                self._plan_takeover(fault, pid)
                self._end_in_time(fault, ongoing)
            elif stop.is_armed:
                stage.timeline.at(stage.timeline.now + LOOK_SECONDS, look)

        look()

    def _plan_takeover(self, fault: Disturbance, stopped: int) -> None:
        moment = self._stage.timeline.now + TAKEOVER_SECONDS
        if fault.takeover and fault.target == "host":
            self._stage.timeline.at(moment, partial(self._take_over_sessions, stopped))
        elif fault.takeover and fault.target == "writer":
            self._stage.timeline.at(moment, self._kill_node)

    def _take_over_sessions(self, stopped: int) -> None:
        """Let another host take over the sessions of one that is stopped, where there is another one."""
        hosts = self._stage.hosts.values()
        its = [agent for host in hosts if host.pid == stopped for agent in host.plan.agents if not agent.in_worker]
        other = next((host for host in hosts if host.pid != stopped and not host.has_ended), None)
        if other is not None:
            other.take_over(its)

    def _kill_node(self) -> None:
        """Let another node, and so another writer, be started beside a writer that is stopped."""
        if self._may_kill_node:
            self.kill(dict.fromkeys(self._stage.find()["node"], "node"))


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
