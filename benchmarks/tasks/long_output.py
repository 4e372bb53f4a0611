"""Whether memory grows while one task prints 10 GB: of the node, of the task's shim, and of a host that follows it.

The command writes zeros as fast as they are taken; the host reads every byte, as a follower of the public API. Looked
at is anonymous memory; pages of the file in the system's cache are nobody's. The first quarter of the time isn't
counted: what is loaded and buffered once is there then. Of the rest the last tenth is compared with the first.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus

from ..measuring.process_memory import anonymous_bytes
from ..measuring.runs import Figures, Run
from .hosts import Place

WARM_UP = 0.25
PART = 0.1
"""Which part of the looks isn't counted, and which of the others make the beginning, and the end."""

SAMPLE_SECONDS = 0.02

_COMMAND = ("sh", "-c", 'read go < "$1" && exec head -c "$2" /dev/zero', "sh")
"""Begins when it is told to, over a pipe: all processes are known by then."""

_SPARE_BYTES = 1024**2
_TELL_PIECES = 256


async def measure_output(place: Place, size: int) -> list[Run]:
    """Follow a task through so many bytes of output."""
    gate = place.store.with_suffix(".gate")
    os.mkfifo(gate)
    task = await place.runtime.start_task([*_COMMAND, str(gate), str(size)], limit=size + _SPARE_BYTES)
    servers = await place.servers()
    (shim,) = servers.shims
    memory: dict[str, list[int]] = {"node": [], "shim": [], "follower": []}
    followed = pieces = 0
    async with anyio.create_task_group() as group:
        await group.start(_keep_looking, {"node": servers.node, "shim": shim, "follower": os.getpid()}, memory)
        began = time.perf_counter()
        await anyio.to_thread.run_sync(gate.write_text, "go\n")
        async for piece in task.follow():
            followed += len(piece.data)
            pieces += 1
            if pieces % _TELL_PIECES == 0:
                place.tell(f"{followed / 1e9:.1f} of {size / 1e9:.1f} GB have come")
        group.cancel_scope.cancel()
    seconds = time.perf_counter() - began
    state = await task.wait()
    found = {name: _summary(samples) for name, samples in memory.items()}
    figures = {
        **{f"{name}_{part}_kb": kb for name, parts in found.items() for part, kb in parts.items() if part != "begin"},
        "missing_bytes": size - min(followed, state.output_bytes or 0),
        "mb_per_second": round(size / seconds / 1e6, 1),
    }
    base = {f"{name}_begin_kb": parts["begin"] for name, parts in found.items()}
    end, begin = (sum(parts[part] for parts in found.values()) for part in ("end", "begin"))
    params = {"output_bytes": size, "looks": len(memory["node"])}
    return [Run("memory during output, end over begin", params, figures, base, round(end / begin, 4))]


async def _keep_looking(
    pids: Mapping[str, int], memory: Mapping[str, list[int]], *, task_status: TaskStatus[None]
) -> None:
    """Note the memory of processes again and again, as long as all of them live; started when all have been seen."""
    while all(seen := [anonymous_bytes(pid) for pid in pids.values()]):
        for name, size in zip(pids, seen, strict=True):
            memory[name].append(size)
        if len(memory["node"]) == 1:
            task_status.started()
        await anyio.sleep(SAMPLE_SECONDS)


def _summary(samples: list[int]) -> Figures:
    counted = [each / 1000 for each in samples[int(len(samples) * WARM_UP) :]]
    part = max(1, int(len(counted) * PART))
    return {
        "begin": round(statistics.fmean(counted[:part]), 1),
        "end": round(statistics.fmean(counted[-part:]), 1),
        "most": round(max(counted), 1),
    }
