"""End to end: sessions of very many events are opened, closed and read in memory that doesn't grow with them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from turnkeeper.storage import lock, store
from turnkeeper.storage.backend import open_backend
from turnkeeper.storage.exact_json import encode_event
from turnkeeper.storage.requests import Append, Appended

from ..served import SECONDS_MAX, finish, start_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="peak memory is told by Linux")

EVENTS_AN_APPEND = 1000
EVENTS_A_SECOND_MIN = 1000
GROWTH_KIB_MAX = 4 * 1024
"""What reading may take more for the longer session than for the shorter one: caches that fill up, and chance."""

_READER = """
import asyncio, re, sys
from turnkeeper.actors.runtime_opening import open_runtime

async def main():
    async with open_runtime(sys.argv[1]) as runtime:
        async with await runtime.open_session(sys.argv[2]) as session:
            print(session.interrupted.turn, session.head, end=" ")
            count = len(await session.read(last=50))
            while page := await session.read(start=count - 50, limit=500):
                count += len(page)
            following, followed = runtime.follow(sys.argv[2], after=0), 0
            while followed < session.head:
                await anext(following)
                followed += 1
            print(count - 50, followed, end=" ")
    print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])

asyncio.run(main())
"""


@pytest.mark.parametrize("kept_by", ["journal", "sqlite"])
@pytest.mark.parametrize(
    "events", [20_000, pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
def test_memory_does_not_grow_with_a_session(store: Path, kept_by: store.BackendName, events: int) -> None:
    """Neither for its opening, which closes a turn of all of its events, nor for pages, nor for a follower."""
    peaks = []
    for key, count in (("short", events // 10), ("long", events)):
        fill(store, key, count)
        output = finish(start_python(_READER, str(store), key), seconds=SECONDS_MAX + count / EVENTS_A_SECOND_MIN)
        turn, head, read, followed, peak = map(int, output.split())
        assert (turn, head, read, followed) == (1, *[count + 3] * 3)
        peaks.append(peak)
    assert peaks[1] - peaks[0] < GROWTH_KIB_MAX


def fill(path: Path, key: str, count: int) -> None:
    """Store a session whose owner was killed in a turn of so many events and one call."""
    store.make_directory(str(path))
    descriptor = store.open_store_file(str(path), create=True)
    assert lock.take(descriptor)
    store.finish(descriptor, str(path))
    backend = open_backend(str(path), boot="boot", is_gone=lambda who: True, holder={})
    id = f"{key}-0000"
    call = {"id": "call", "name": "bash", "arguments": {}, "effect": "once"}
    first = encode_event(id, 0, 1, "turn/start", {"turn": 1})
    header = {"id": id, "key": key, "kind": "session", "open_turn": 0, "turns": 1}
    requests = [Append(id, 1, 0, first, header, create=True)]
    for start in range(1, count, EVENTS_AN_APPEND):
        stop = min(count, start + EVENTS_AN_APPEND)
        lines = [encode_event(id, n, n, "note/n", {"n": n, "text": "x" * 200}) for n in range(start, stop)]
        requests.append(Append(id, 1, start, b"".join(lines)))
    requests.append(Append(id, 1, count, encode_event(id, count, count, "tool/started", call)))
    for request in requests:
        (answer,) = backend.commit([request])
        assert isinstance(answer, Appended)
        backend.between_commits()
    backend.close()
    os.close(descriptor)
