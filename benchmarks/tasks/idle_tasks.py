"""What 500 tasks that do nothing cost, and what starting and ending another one takes beside them.

*Start* is from the call until the task runs: recorded durably, forked, its command executed, and that recorded. It is
compared with a plain program's start and end of a Python that does nothing, in the same process, in turns. *Memory* is
of spawner and shims together, without the commands: each process's part of what it shares, so that pages which all
forks have in common count once. *Waking* is from the end of the command to the moment at which whoever waits for it
goes on: the command writes the time as its last act, so the end of its process, the shim's reaping and syncing, the
record in the journal and the way to the waiter are all counted in. Ends come by a timetable, beside starts. Compared is
a waiter for a child process of its own, in turns.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

import anyio

from ..measuring.process_memory import proportional_bytes
from ..measuring.process_use import processor_seconds
from ..measuring.runs import Figures, Run, in_blocks, percentile, run_of, turns
from .hosts import IDLE_COMMAND, Place, Servers

PLAIN_COMMAND = (sys.executable, "-S", "-c", "pass")

TIMED_END = """
import os, sys, time
time.sleep(float(sys.argv[1]))
os.write(1, b"%d" % time.monotonic_ns())
os._exit(0)
"""
TIMED_COMMAND = (sys.executable, "-I", "-S", "-c", TIMED_END)


ROUNDS = 5
"""What is measured one by one, starts and ends, counts as so many rounds of neighbours."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: tasks beside, starts, seconds of quiet, and ends that are waited for.

    A task that is waited for runs `runs_seconds` beside its start, and begins `apart_seconds` after the one before.
    """

    live: int
    starts: int
    quiet_seconds: float
    ends: int
    apart_seconds: float = 0.1
    runs_seconds: float = 0.25


async def measure_idle(place: Place, sizes: Sizes) -> list[Run]:
    """Start the tasks, and measure beside them."""
    await place.start_idle(sizes.live)
    return [
        await _measure_use(place, sizes),
        await _measure_starts(place, sizes),
        await _measure_ends(place, sizes),
    ]


# -- memory and processor time


async def _measure_use(place: Place, sizes: Sizes) -> Run:
    """Look at the processes before and after an interval in which nobody asks for anything."""
    servers = await place.servers()
    ours = [servers.spawner, *servers.shims]
    commands = [state.pid for state in await place.runtime.tasks(limit=sizes.live) if state.pid is not None]
    place.tell(f"watching {sizes.live} idle tasks")
    await anyio.sleep(min(1.0, sizes.quiet_seconds))  # what the starts have left to do
    before = _used(servers)
    await anyio.sleep(sizes.quiet_seconds)
    used = {name: after - before[name] for name, after in _used(servers).items()}
    figures = {
        "pss_kb": sum(map(proportional_bytes, ours)) / sizes.live / 1000,
        "spawner_kb": proportional_bytes(servers.spawner) / 1000,
        **{f"{name}_cpu_percent": seconds / sizes.quiet_seconds * 100 for name, seconds in used.items()},
    }
    base = {"command_pss_kb": statistics.fmean(map(proportional_bytes, commands)) / 1000}
    params = {"live": sizes.live, "quiet_seconds": sizes.quiet_seconds}
    return run_of("idle task", params, [figures], [base])


def _used(servers: Servers) -> dict[str, float]:
    return {
        "tasks": sum(map(processor_seconds, [servers.spawner, *servers.shims])),
        "node": processor_seconds(servers.node),
        "writer": processor_seconds(servers.writer),
    }


# -- from the call to the running task


async def _measure_starts(place: Place, sizes: Sizes) -> Run:
    ours: list[float] = []
    plain: list[float] = []
    for number, name in turns(sizes.starts, ["ours", "plain"]):
        if number % 10 == 0:
            place.tell(f"start {number + 1} of {sizes.starts}, beside {sizes.live} tasks")
        if name == "ours":
            ours.append(await start_idle(place))
        else:
            plain.append(_run_plainly())
    params = {"live": sizes.live, "starts": sizes.starts, "against": "Popen + wait of python3 -S -c pass"}
    return run_of("task start p50_ms", params, latency_rounds(ours), latency_rounds(plain), compared="p50_ms")


async def start_idle(place: Place) -> float:
    """Start a task that does nothing, and stop it; give the seconds until it ran."""
    began = time.perf_counter()
    task = await place.runtime.start_task(IDLE_COMMAND)
    seconds = time.perf_counter() - began
    await task.stop()
    return seconds


def _run_plainly() -> float:
    began = time.perf_counter()
    with subprocess.Popen(PLAIN_COMMAND) as process:
        process.wait()
    return time.perf_counter() - began


# -- from the end to the waiter awake


async def _measure_ends(place: Place, sizes: Sizes) -> Run:
    taken: dict[bool, list[float]] = {True: [], False: []}
    began = time.monotonic()
    place.tell(f"waiting for {sizes.ends} ends, beside {sizes.live} tasks")

    async def end_one(number: int) -> None:
        is_ours = number % 2 == 0
        await anyio.sleep(max(0.0, began + number * sizes.apart_seconds - time.monotonic()))
        taken[is_ours].append(await (wake(place, sizes.runs_seconds) if is_ours else _wake_plainly(sizes)))

    async with anyio.create_task_group() as group:
        for number in range(2 * sizes.ends):
            group.start_soon(end_one, number)
    params = {
        "live": sizes.live,
        "ends": sizes.ends,
        "apart_seconds": sizes.apart_seconds,
        "against": "anyio's Process.wait",
    }
    return run_of(
        "waiter awake p99_ms", params, latency_rounds(taken[True]), latency_rounds(taken[False]), compared="p99_ms"
    )


async def wake(place: Place, runs_seconds: float) -> float:
    """Wait for the end of a task that runs so long; give the seconds from its last act to whoever waits."""
    task = await place.runtime.start_task([*TIMED_COMMAND, str(runs_seconds)])
    await task.wait()
    awake = time.monotonic_ns()
    return (awake - int((await task.output()).data)) / 1e9


async def _wake_plainly(sizes: Sizes) -> float:
    process = await anyio.open_process([*TIMED_COMMAND, str(sizes.runs_seconds)], stderr=None)
    async with process:
        await process.wait()
        awake = time.monotonic_ns()
        assert process.stdout is not None
        return (awake - int(await process.stdout.receive())) / 1e9


def latency_rounds(seconds: list[float]) -> list[Figures]:
    """Give figures of each round, which is made of neighbours."""
    return [
        {
            "p50_ms": percentile(each, 50) * 1000,
            "p99_ms": percentile(each, 99) * 1000,
            "most_ms": max(each) * 1000,
        }
        for each in in_blocks(seconds, min(ROUNDS, len(seconds)))
    ]
