"""Who can be struck in a round: the processes of its store by their role, its hosts and their workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from .plan import Role
from .store_processes import Process, all_pids, is_alive, parent_of, processes_by_role

SHARE = 0.6
"""So many of the hosts, shims and workers are hit by one strike, about; of all others there is one."""

_WORKER = b"turnkeeper.runtime.workers.worker_main"


def find(store: Path, hosts: Iterable[int]) -> Mapping[Role, list[int]]:
    """Find all that live, by role."""
    hosts = [pid for pid in hosts if is_alive(pid)]
    found = processes_by_role(store)
    return {
        "host": hosts,
        "node": found["node"],
        "writer": found["writer"],
        "spawner": found["spawner"],
        "shim": found["shim"],
        "worker": _workers_of(hosts),
    }


def _workers_of(hosts: Sequence[int]) -> list[int]:
    found = []
    for pid in all_pids():
        with suppress(OSError):
            if parent_of(pid) in hosts and _WORKER in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def choose(found: Mapping[Role, Sequence[int]], roles: Sequence[Role], draw: int) -> dict[int, Role]:
    """Choose whom a strike at these roles hits: of hosts, shims and workers some, at least one; of all others each."""
    random = Random(draw)
    chosen: dict[int, Role] = {}
    for role in roles:
        there = sorted(found[role])
        if role in ("host", "shim", "worker") and there:
            there = [pid for pid in there if random.random() < SHARE] or [random.choice(there)]
        chosen.update(dict.fromkeys(there, role))
    return chosen


def kill(chosen: Iterable[int]) -> list[int]:
    """Kill processes, one right behind the other, and wait until all are dead; give those that weren't before."""
    held = []
    for pid in chosen:
        with suppress(ProcessLookupError):
            held.append(Process(pid))
    try:
        killed = [process.pid for process in held if is_alive(process.pid)]
        for process in held:
            process.kill()
        for process in held:
            process.wait_dead()
    finally:
        for process in held:
            process.close()
    return killed
