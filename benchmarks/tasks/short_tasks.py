"""What thousands of tasks that end at once leave behind: memory of the node, zombies, descriptors.

*Memory*: as many tasks as the machine can run, some at a time, each waited for; the slope of the node's anonymous
memory over the tasks that have finished, which lies in its bounds with 95 % confidence. The first part isn't counted,
caches fill up then; a short run sees mostly these. *Timetable*: tasks begin at planned moments, whatever became of
those before; what is late shows in their latency. Behind it nothing may be left: no process that nobody reaped, and no
more descriptors than before in whatever serves the store, the host included.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from turnkeeper import TaskState

from ..measuring.process_memory import anonymous_bytes, family
from ..measuring.process_use import descriptors, zombies
from ..measuring.runs import Figures, Run, percentile
from ..measuring.trend import BLOCKS, trend
from .hosts import Place

SHORT_COMMAND = ("true",)

WARM_UP = 0.25
"""Which part of the tasks isn't counted, as caches and buffers fill up meanwhile."""

SETTLE_SECONDS = 5.0
"""How long is waited for what the last end leaves to do before what is left is counted."""

_FIRST_TASKS = 30
"""So many together are behind before descriptors are counted: threads that read have their files open by then."""

_FORGET_SECONDS = 0.5
"""By then the node has closed the connection over which it was asked for the processes."""

_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: tasks as fast as they come, `lanes` at a time; and by a timetable, so many in a minute."""

    tasks: int
    timetable_seconds: float
    per_minute: int = 1_000
    lanes: int = 8

    @property
    def planned(self) -> int:
        """How many tasks the timetable has."""
        return int(self.timetable_seconds * self.per_minute / 60)


# -- memory


async def measure_finished(place: Place, sizes: Sizes) -> list[Run]:
    """Run tasks, and see what the node keeps of each that has finished."""
    samples: list[tuple[float, float]] = []
    waiting = list(range(sizes.tasks))
    await _run_one(place)
    node = (await place.servers()).node
    began = time.perf_counter()

    async def run_some() -> None:
        while waiting:
            waiting.pop()
            await _run_one(place)
            samples.append((len(samples) + 1, anonymous_bytes(node) / 1000))
            if len(samples) % 100 == 0:
                place.tell(f"{len(samples)} of {sizes.tasks} tasks have finished")

    async with anyio.create_task_group() as group:
        for _ in range(sizes.lanes):
            group.start_soon(run_some)
    seconds = time.perf_counter() - began
    counted = samples[int(sizes.tasks * WARM_UP) :]
    found = trend(counted)
    part = len(counted) // BLOCKS
    figures = {
        "kb_a_task": found.slope,
        "end_kb": statistics.fmean(kb for _, kb in counted[-part:]),
        "tasks_per_second": sizes.tasks / seconds,
    }
    base = {"begin_kb": round(statistics.fmean(kb for _, kb in counted[:part]), 1)}
    params = {"tasks": sizes.tasks, "counted": len(counted), "lanes": sizes.lanes, "slope": found.direction}
    rounded = {name: round(value, 3) for name, value in figures.items()}
    return [
        Run(
            "node's memory end over begin",
            params,
            rounded,
            base,
            round(figures["end_kb"] / base["begin_kb"], 4),
            bounds={"kb_a_task": (round(found.low, 3), round(found.high, 3))},
            series={"node_kb over tasks": samples},
        )
    ]


async def _run_one(place: Place) -> TaskState:
    task = await place.runtime.start_task(SHORT_COMMAND)
    return await task.wait()


# -- by a timetable


async def measure_timetable(place: Place, sizes: Sizes) -> list[Run]:
    """Start tasks at planned moments, and see what is left when all have ended."""
    async with anyio.create_task_group() as group:
        for _ in range(_FIRST_TASKS):
            group.start_soon(_run_one, place)
    servers = await place.servers()
    await anyio.sleep(_FORGET_SECONDS)
    before = {pid: descriptors(pid) for pid in (*servers.lasting, os.getpid())}
    latencies: list[float] = []
    ended_well = 0
    began = time.perf_counter()

    async def run_planned(number: int) -> None:
        nonlocal ended_well
        moment = began + number * 60 / sizes.per_minute
        await anyio.sleep(max(0.0, moment - time.perf_counter()))
        state = await _run_one(place)
        latencies.append(time.perf_counter() - moment)
        ended_well += state.code == 0

    place.tell(f"{sizes.planned} tasks by a timetable of {sizes.timetable_seconds:.0f} s")
    async with anyio.create_task_group() as group:
        for number in range(sizes.planned):
            group.start_soon(run_planned, number)
    seconds = time.perf_counter() - began
    left = await _count_left(servers.spawner, before)
    figures = {
        "ended_well": ended_well,
        "per_minute": round(sizes.planned / seconds * 60, 1),
        "p50_ms": round(percentile(latencies, 50) * 1000, 3),
        "p99_ms": round(percentile(latencies, 99) * 1000, 3),
        **left,
    }
    params = {"planned": sizes.planned, "planned_per_minute": sizes.per_minute}
    base: Figures = {"planned": sizes.planned}
    return [Run("short tasks ended well over planned", params, figures, base, round(ended_well / sizes.planned, 4))]


async def _count_left(spawner: int, before: Mapping[int, int]) -> Figures:
    """Count what is left behind the last end; wait a little for what is only late."""
    end = time.monotonic() + SETTLE_SECONDS
    while True:
        left: Figures = {
            "zombies": len(zombies(before)),
            "descriptors_more": sum(descriptors(pid) - count for pid, count in before.items()),
            "shims": len(list(family(spawner))) - 1,
        }
        if time.monotonic() > end or all(count <= 0 for count in left.values()):
            return left
        await anyio.sleep(_POLL_SECONDS)
