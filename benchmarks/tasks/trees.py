"""How long it takes to stop many tasks, each with a tree of processes, until it is proven that nothing of them is left.

A tree is a shell, a shell and a command below it, and below that one two commands, of which one leads a process session
of its own. *Base*: as many trees that are no tasks, all found by one scan of /proc and killed at once. It shows what
the system takes to end so many processes; whatever forks meanwhile would escape it, and nothing gets time to clean up.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from turnkeeper.runtime.tasks import tree

from ..measuring.runs import Run, run_of
from .hosts import LIVES_SECONDS, Place

PROCESSES_A_TREE = 5

_SLEEP = f"sleep {LIVES_SECONDS}"
TREE_SCRIPT = f"sh -c '{_SLEEP} & setsid {_SLEEP} & wait' & {_SLEEP} & wait"
TREE_COMMAND = ("sh", "-c", TREE_SCRIPT)

GROWN_SECONDS = 60.0
"""So long trees have for getting all their processes."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: how many trees are stopped at once, and how often."""

    trees: int
    rounds: int


async def measure_stops(place: Place, sizes: Sizes) -> list[Run]:
    """Stop tasks and kill other trees, in turns."""
    stops, kills, left = [], [], 0
    for number in range(sizes.rounds):
        place.tell(f"round {number + 1} of {sizes.rounds}: growing trees")
        tasks = await place.start_many([TREE_COMMAND] * sizes.trees)
        processes = grown((await place.servers()).shims, sizes.trees * PROCESSES_A_TREE)
        place.tell(
            f"round {number + 1} of {sizes.rounds}: stopping {sizes.trees} tasks of {PROCESSES_A_TREE} processes"
        )
        began = time.perf_counter()
        stopped = await place.runtime.stop_tasks(*tasks)
        seconds = time.perf_counter() - began
        left += sum(tree.is_alive(each.pid, each.start) for each in processes) + len(stopped.left)
        stops.append({"stop_s": seconds})
        place.tell(f"round {number + 1} of {sizes.rounds}: killing as many by a scan")
        kills.append({"stop_s": _kill_plainly(sizes)})
    params = {
        "trees": sizes.trees,
        "processes_a_tree": PROCESSES_A_TREE,
        "against": "SIGKILL by one scan of /proc",
    }
    run = run_of("stop of trees", params, stops, kills, compared="stop_s")
    run.figures["left"] = left
    return [run]


def grown(roots: Sequence[int], count: int) -> list[tree.Process]:
    """Wait until so many processes are below these, and give them. Raises TimeoutError."""
    deadline = time.monotonic() + GROWN_SECONDS
    while len(found := [each for root in roots for each in tree.below(root)]) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {count} processes began within {GROWN_SECONDS:.0f} s")
        time.sleep(0.1)
    return found


def _kill_plainly(sizes: Sizes) -> float:
    """Grow trees that are no tasks, kill all of them at once, and give the seconds from the scan to the last end."""
    shells = [subprocess.Popen(TREE_COMMAND, stdin=subprocess.DEVNULL) for _ in range(sizes.trees)]
    try:
        grown([each.pid for each in shells], sizes.trees * (PROCESSES_A_TREE - 1))
    finally:
        began = time.perf_counter()
        found = _scan({each.pid for each in shells})
        for each in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        for shell in shells:
            shell.wait()
        while any(tree.is_alive(each.pid, each.start) for each in found):
            time.sleep(0.001)
    return time.perf_counter() - began


def _scan(roots: set[int]) -> list[tree.Process]:
    """Find these processes and all below them by one look at each process that there is."""
    everybody = [each for pid in os.listdir("/proc") if pid.isdecimal() and (each := tree.process_of(int(pid)))]
    children: dict[int, list[tree.Process]] = {}
    for each in everybody:
        children.setdefault(each.parent, []).append(each)
    found = [each for each in everybody if each.pid in roots]
    for each in found:
        found += children.get(each.pid, [])
    return found
