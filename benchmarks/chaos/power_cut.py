"""The end of a life in which the power of the store's disk is cut.

The writer is stopped first: a sync that overlaps the cut may succeed and be lost, which no disk would do, and nothing
that is acknowledged then would count. Where it is stopped is the point: in the middle of whatever it does, between a
write and its sync, or when it has answered, without writing anything, what its predecessor had written and not synced.
Hosts and workers are stopped, too: who lives a moment longer than the machine would note what nobody can have seen.
"""

from __future__ import annotations

import signal
from contextlib import ExitStack

from ..replay.killing import kill_left_behind
from .failpoint import Failpoint
from .faults import stop
from .plan import Cut, Role
from .stage import Stage
from .store_processes import is_alive, state_of
from .strikes import Strikes

STOP_SECONDS = 5.0
"""How long it may take until all are stopped who have to be."""

PASS_SECONDS = 2.0
"""How long it is waited for somebody to pass a failpoint; where nobody does, the cut comes at any moment."""

_NOTING: tuple[Role, ...] = ("writer", "host", "worker")
_USERS: tuple[Role, ...] = ("host", "worker", "node", "writer", "spawner", "shim")


def cut_power(stage: Stage, strikes: Strikes, when: Cut) -> None:
    """Cut the power, and let all die who used the store. The disk is as the cut leaves it."""
    assert stage.disk is not None
    with ExitStack() as lifted:
        if when == "behind a successor's answers":
            _pass(stage, lifted, "writer-syncs", signal.SIGKILL)
            _pass(stage, lifted, "writer-took-requests", signal.SIGSTOP, passes=2)
        elif when == "behind a write":
            _pass(stage, lifted, "writer-syncs", signal.SIGSTOP)
        found = stage.find()
        noting = [pid for role in _NOTING for pid in found[role]]
        lifted.callback(stop(noting))
        stage.wait(STOP_SECONDS, lambda: all(state_of(pid) == "T" or not is_alive(pid) for pid in noting))
        stage.notebook.strike("power", "disk", when=when)
        stage.disk.cut()
        strikes.kill_all(_USERS)
        kill_left_behind(stage.mark, STOP_SECONDS)  # also whom somebody has started while he was killed


def _pass(stage: Stage, lifted: ExitStack, point: str, number: signal.Signals, passes: int = 1) -> None:
    """Have the writer get a signal at a failpoint."""
    stage.notebook.strike("arm", "writer", point=point, signal=number.name)
    failpoint = Failpoint(stage.points, point, number, passes)
    lifted.callback(failpoint.lift)
    stage.wait(PASS_SECONDS, lambda: failpoint.obeyed_by() is not None)
    pid = failpoint.obeyed_by()
    if pid is not None and number == signal.SIGKILL:
        stage.notebook.strike("kill", "writer", [pid], point=point)
