"""Run as a process: reads what it can of a store whose bytes were damaged, and tells it on its standard output.

`python -m turnkeeper.benchmarks.chaos.copy_reading STORE`. It says one object of JSON: by session the `events` that the
product gives, as [number, type, digest], the ranges that it says are `missing`, as [first, events], and why what is
`refused` can't be read at all.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio

from turnkeeper import Runtime, TurnkeeperError, open_runtime

from ..demonstration.oracle import digest
from .reading import all_sessions

PAGE = 1000


async def read_copy(store: str) -> dict[str, Any]:
    """Open the store and read every session of it, event by event where that takes it."""
    found: dict[str, Any] = {"events": {}, "missing": {}, "refused": {}}
    async with open_runtime(store) as runtime:
        for row in await all_sessions(runtime):
            try:
                await _read(runtime, row.id, found)
            except TurnkeeperError as error:
                found["refused"][row.id] = str(error)
    return found


async def _read(runtime: Runtime, id: str, found: dict[str, Any]) -> None:
    events = found["events"].setdefault(id, [])
    missing = found["missing"].setdefault(id, [])
    start, head = 0, 1
    while start < head:
        page = await runtime.read(id, start=start, limit=PAGE)
        head = page.head
        events += [[event.seq, event.type, digest(event.data)] for event in page]
        missing += [[gap.first, gap.events] for gap in page.missing]
        ends = [event.seq + 1 for event in page] + [gap.first + gap.events for gap in page.missing]
        if not ends:
            return
        start = max(ends)


def main() -> None:
    """Read the store that the argument names."""
    json.dump(anyio.run(read_copy, sys.argv[1], backend="trio"), sys.stdout)


if __name__ == "__main__":
    main()
