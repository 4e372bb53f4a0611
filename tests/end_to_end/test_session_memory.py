"""End to end: what a long session costs whoever resumes it: memory that doesn't grow with it, and next to no time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

from turnkeeper.actors.runtime_opening import open_runtime

from ..served import SECONDS_MAX, finish, start_python

BEHIND = 100
"""Events behind the last snapshot."""

both_backends = pytest.mark.parametrize("kept_by", ["journal", "sqlite"])

RESUMER = """
import json, sys, time
import anyio
from turnkeeper import open_runtime

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))

async def main():
    told = {}
    async with open_runtime(sys.argv[1]) as rt:
        await rt.sessions()
        started = time.perf_counter()
        async with await rt.open_session("k") as session:
            last = await session.last_snapshot()
            told["seconds"] = time.perf_counter() - started
            told["snapshot"] = [last.seq, last.state["n"]]
            told["behind"] = len(await session.read(start=last.seq + 1, limit=1000))
            told["opened"] = peak()
            told["events"] = 0
            async for event in session.events():
                told["events"] += 1
            told["messages"] = 0
            async for message in rt.messages("k"):
                told["messages"] += 1
            told["walked"] = peak()
    print(json.dumps(told))

anyio.run(main, backend="trio")
"""


class Resumed(NamedTuple):
    """What a process that resumed a session tells: memory in KiB, at its greatest."""

    seconds: float
    snapshot: list[int]
    behind: int
    opened: int
    events: int
    messages: int
    walked: int


async def make(store: str, parts: int) -> None:
    """Make a store with one session of so many parts of ten events each, and a snapshot near its end."""
    async with open_runtime(store) as runtime, await runtime.create_session(key="k") as session:
        for part in range(parts):
            if part == parts - BEHIND // 10:
                await session.snapshot({"n": part})
            await session.append("user/message", {"text": f"do {part} " + "as I say, please; " * 10})
            for call in (f"{part}-a", f"{part}-b"):
                await session.append("tool/started", {"id": call, "name": "bash", "arguments": {"command": "make"}})
                await session.append("tool/finished", {"id": call, "output": "so many words " * 20})
                await session.append("assistant/message", {"text": "I did so. " * 20, "usage": {"output_tokens": 9}})
            for page in range(3):
                await session.append("my/note", {"page": page})
            if part % 500 == 0:
                await session.flush()
        await session.flush()


def resumed(store: str, seconds: float = SECONDS_MAX) -> Resumed:
    """Resume and walk over the session in a process of its own."""
    process = start_python(RESUMER, store)
    return Resumed(**json.loads(finish(process, seconds=seconds)))


@both_backends
def test_resuming_and_walking_take_no_more_memory_for_a_longer_session(tmp_path: Path, kept_by: str) -> None:
    """S11: with 12,000 events, 3 MB of lines, more it is not 2 MiB more; and every event and message is given."""
    found: dict[int, Resumed] = {}
    for parts in (400, 1600):
        store = f"{'sqlite:' if kept_by == 'sqlite' else ''}{tmp_path}/{parts}"
        anyio.run(make, store, parts)
        found[parts] = told = resumed(store)
        assert (told.events, told.messages) == (10 * parts + 1, 6 * parts)
        assert (told.snapshot, told.behind) == ([10 * parts - BEHIND, parts - BEHIND // 10], BEHIND)
    assert found[1600].walked - found[400].walked < 2048, found
    assert found[1600].opened - found[400].opened < 2048, found


@pytest.mark.long
@pytest.mark.timeout(900)
@both_backends
def test_a_million_events_are_resumed_within_the_memory_of_ten_thousand(tmp_path: Path, kept_by: str) -> None:
    """S11: the walk's peak is a few MiB above a short session's, whose last snapshot is found as quickly."""
    found: dict[int, Resumed] = {}
    for parts in (1000, 100_000):
        store = f"{'sqlite:' if kept_by == 'sqlite' else ''}{tmp_path}/{parts}"
        anyio.run(make, store, parts)
        found[parts] = resumed(store, seconds=300)
        assert found[parts].events == 10 * parts + 1
    print(found)  # noqa: T201
    assert found[100_000].walked - found[1000].walked < 8192, found
    assert found[100_000].seconds < SECONDS_MAX / 30, found
