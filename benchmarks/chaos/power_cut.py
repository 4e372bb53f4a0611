"""The end of a life in which the power of the store's disk is cut.

The writer is stopped first: a sync that overlaps the cut may succeed and be lost, which no disk would do, and nothing
that is acknowledged then would count. Where it is stopped is the point: in the middle of whatever it does, between a
write and its sync, or when it has answered, without writing anything, what its predecessor had written and not synced.
Hosts and workers are stopped, too: who lives a moment longer than the machine would note what nobody can have seen.
For the last of these moments all but one are stopped before: what others have to store would be synced together with
what was only written.
"""

from __future__ import annotations

import signal
from contextlib import ExitStack, suppress

from ..measuring.marked_processes import kill_left_behind
from . import abilities
from .failpoint import Failpoint
from .faults import Missed, held_syncs, stop
from .plan import Cut, Role
from .stage import Stage
from .store_processes import Process, is_alive, state_of
from .strikes import Strikes

STOP_SECONDS = 5.0
"""How long it may take until all are stopped who have to be."""

SETTLE_SECONDS = 0.6
"""How long it may take until all is stored that those had sent who were stopped, and how their short tasks ended."""

PASS_SECONDS = 2.0
"""How long it is waited for somebody to pass a failpoint; where nobody does, the cut comes at any moment."""

SUCCESSOR_SECONDS = 6.0
"""How long it is waited for a writer that has to be started before."""

HELD_LOOKS, LOOK_SECONDS = 8, 0.01
"""Who is seen so often, at this distance, to be stopped by its tracer is held before a sync."""

_BEFORE_A_SYNC = "before a sync"

_NOTING: tuple[Role, ...] = ("writer", "host", "worker")
_USERS: tuple[Role, ...] = ("host", "worker", "node", "writer", "spawner", "shim")


def cut_power(stage: Stage, strikes: Strikes, when: Cut) -> None:
    """Cut the power, and let all die who used the store. The disk is as the cut leaves it."""
    assert stage.disk is not None
    with ExitStack() as lifted, ExitStack() as traced:
        if when == "behind a successor's answers":
            lifted.callback(stop(_all_but_one(stage)))
            stage.interrupts.pause(SETTLE_SECONDS)
            _catch_before_sync(stage, lifted, traced, signal.SIGKILL)
            _pass(stage, lifted, "writer-took-requests", signal.SIGSTOP, passes=2, seconds=SUCCESSOR_SECONDS)
        elif when == "behind a write":
            _catch_before_sync(stage, lifted, traced, signal.SIGSTOP)
        elif when == "behind a roll":
            _pass(stage, lifted, "writer-named-segment", signal.SIGSTOP)
        found = stage.find()
        noting = [pid for role in _NOTING for pid in found[role]]
        lifted.callback(stop(noting))
        stage.wait(STOP_SECONDS, lambda: all(_is_still(pid) for pid in noting))
        stage.notebook.strike("power", "disk", when=when)
        stage.disk.cut()
        traced.close()
        strikes.kill_all(_USERS)
        kill_left_behind(stage.mark, STOP_SECONDS)  # also whom somebody has started while he was killed


def _all_but_one(stage: Stage) -> list[int]:
    """Give the hosts and workers but for the one in which the fewest agents work, of those in which any does."""
    agents = dict.fromkeys(stage.find()["worker"], 1)
    for host in stage.hosts.values():
        if not host.has_ended:
            agents[host.pid] = sum(not agent.in_worker for agent in host.plan.agents)
    chosen = min((pid for pid, number in agents.items() if number), key=lambda pid: agents[pid], default=None)
    return [pid for pid in agents if pid != chosen]


def _is_still(pid: int) -> bool:
    """Say whether a process does nothing any more: it is stopped, by whomever, or dead."""
    return state_of(pid) in ("T", "t") or not is_alive(pid)


def _catch_before_sync(stage: Stage, lifted: ExitStack, traced: ExitStack, number: signal.Signals) -> None:
    """Have the writer get a signal when it has written something, and before that is synced."""
    if stage.plan.store.backend == "journal":
        _pass(stage, lifted, "writer-syncs", number)
    elif "slow" not in abilities.impossible():
        _hold_before_sync(stage, traced, number)


def _hold_before_sync(stage: Stage, traced: ExitStack, number: signal.Signals) -> None:
    """Do that to a writer that writes and syncs in one call, as SQLite does: who traces it holds it in between.

    It can't die, nor stop, before its tracer lets go of it, which happens when `traced` is closed.
    """
    stage.notebook.strike("arm", "writer", point=_BEFORE_A_SYNC, signal=number.name)
    holding = _Holding(stage, traced)
    stage.wait(PASS_SECONDS, holding.has_come_true)
    if number != signal.SIGKILL:
        return
    if holding.held is not None:
        stage.notebook.strike("kill", "writer", [holding.held], point=_BEFORE_A_SYNC)
        with suppress(ProcessLookupError):
            writer = Process(holding.held)
            writer.kill()
            writer.close()
    traced.close()


class _Holding:
    """Holds a writer before its next sync, also one that is only started meanwhile; `held` is which, once one is."""

    def __init__(self, stage: Stage, traced: ExitStack) -> None:
        self._stage = stage
        self._traced = traced
        self._known: set[int] = set()
        self.held: int | None = None

    def has_come_true(self) -> bool:
        """Begin to trace each writer that isn't traced yet; say whether one of the others stays before a sync."""
        for pid in self._stage.find()["writer"]:
            if pid in self._known:
                if self._stays(pid):
                    self.held = pid
            else:
                with suppress(Missed):
                    self._traced.callback(held_syncs(pid))
                    self._known.add(pid)
        return self.held is not None

    def _stays(self, pid: int) -> bool:
        """Say whether a process stays where its tracer has stopped it; elsewhere it is let go at once."""
        for _ in range(HELD_LOOKS):
            if state_of(pid) != "t":
                return False
            self._stage.interrupts.pause(LOOK_SECONDS)
        return True


def _pass(
    stage: Stage,
    lifted: ExitStack,
    point: str,
    number: signal.Signals,
    *,
    passes: int = 1,
    seconds: float = PASS_SECONDS,
) -> None:
    """Have the writer get a signal at a failpoint."""
    stage.notebook.strike("arm", "writer", point=point, signal=number.name)
    failpoint = Failpoint(stage.points, point, number, passes)
    lifted.callback(failpoint.lift)
    stage.wait(seconds, lambda: failpoint.obeyed_by() is not None)
    pid = failpoint.obeyed_by()
    if pid is not None and number == signal.SIGKILL:
        stage.notebook.strike("kill", "writer", [pid], point=point)
