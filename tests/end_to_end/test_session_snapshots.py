"""End to end: what a program has folded of a session, kept in it and found again, on either backend."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.errors import InvalidValue
from turnkeeper.actors.log_summary import SNAPSHOTS_KEPT
from turnkeeper.actors.records import Snapshot
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.session import Session
from turnkeeper.storage.store import BackendName

pytestmark = [pytest.mark.anyio, pytest.mark.shared_store]

LARGE = "x" * 300_000
both_backends = pytest.mark.parametrize("kept_by", ["journal", "sqlite"])


async def fold(session: Session) -> tuple[int, int]:
    """Add up the session's notes, from its last snapshot on; give the sum and how many events were read for it."""
    last = await session.last_snapshot()
    total, read = (last.state["sum"], 0) if last else (0, 0)
    async for event in session.events(start=last.seq + 1 if last else 0):
        read += 1
        total += event.data.get("n", 0) if event.type == "my/n" else 0
    return total, read


async def count(session: Session, *numbers: int, snapshot: bool = False) -> None:
    """Append notes, and then a snapshot of their sum so far; flush."""
    for n in numbers:
        await session.append("my/n", {"n": n})
    if snapshot:
        await session.snapshot({"sum": (await fold(session))[0]})
    await session.flush()


@both_backends
async def test_a_session_is_resumed_from_its_last_snapshot_and_what_follows(runtime: Runtime) -> None:
    """Buffered or durable, in this opening or the next; the log stays whole, and is all there is before the first."""
    async with await runtime.create_session() as session:
        assert await session.last_snapshot() is None
        await count(session, 1, 2)
        assert await fold(session) == (3, 2)
        assert await session.snapshot({"sum": 3}) == 2
        assert await session.last_snapshot() == Snapshot(2, {"sum": 3})
        await count(session, 4)
        assert await fold(session) == (7, 1)
        await session.snapshot({"sum": 7, "large": LARGE})
    async with await runtime.open_session(session.id) as session:
        assert await session.last_snapshot() == Snapshot(4, {"sum": 7, "large": LARGE})
        await count(session, 5)
        assert await fold(session) == (12, 1)
        assert [event.seq for event in await session.read()] == list(range(6))


@both_backends
async def test_any_json_is_a_state(runtime: Runtime) -> None:
    """Also null, which is another thing than no snapshot."""
    states: list[Any] = [None, False, 0, "", [], {"deep": [[1.5]]}, "text"]
    async with await runtime.create_session() as session:
        for seq, state in enumerate(states):
            assert await session.snapshot(state) == seq
            assert await session.last_snapshot() == Snapshot(seq, state)


@both_backends
async def test_a_state_that_cant_be_encoded_is_refused_and_nothing_changes(runtime: Runtime) -> None:
    """With the path to the value; the snapshot before it stays the last one."""
    async with await runtime.create_session() as session:
        await session.snapshot({"sum": 1})
        for state, path in [({"x": {1, 2}}, "$.state.x"), (float("nan"), "$.state"), ([b"x"], "$.state[0]")]:
            with pytest.raises(InvalidValue) as caught:
                await session.snapshot(state)
            assert (caught.value.type, caught.value.path) == ("snapshot", path)
        assert session.head == 1
        assert await session.last_snapshot() == Snapshot(0, {"sum": 1})


@both_backends
async def test_a_snapshot_by_key_is_one(runtime: Runtime) -> None:
    """Appended under a key it counts like any other, and a repetition of it changes nothing."""
    async with await runtime.create_session() as session:
        for _ in range(2):
            assert await session.append("snapshot", {"state": 1}, key="k") == 0
        assert session._summary.snapshots == [0]
        assert await session.last_snapshot() == Snapshot(0, 1)


@both_backends
async def test_a_rewound_snapshot_doesnt_count_until_it_is_gone_back_to(runtime: Runtime) -> None:
    """The one before it does; forward again, its own time is back."""
    async with await runtime.create_session() as session:
        await count(session, 1, snapshot=True)
        await count(session, 2, snapshot=True)
        await session.rewind(3)
        assert await session.last_snapshot() == Snapshot(1, {"sum": 1})
        await session.rewind(1)
        assert await session.last_snapshot() is None
        await session.rewind(4)
        assert await session.last_snapshot() == Snapshot(3, {"sum": 3})
        for at, expected in ((4, Snapshot(3, {"sum": 3})), (3, Snapshot(1, {"sum": 1})), (1, None)):
            async with await session.fork(at=at) as fork:
                assert await fork.last_snapshot() == expected
    async with await runtime.open_session(session.id) as session:
        assert await session.last_snapshot() == Snapshot(3, {"sum": 3})


def spoil(store: Path, kept_by: BackendName, mark: bytes) -> None:
    """Damage the one stored line that holds this mark."""
    if kept_by == "journal":
        segment = store / "journal" / "00000001.jsonl"
        content = segment.read_bytes()
        assert content.count(mark) == 1
        segment.write_bytes(content.replace(mark, b"#" * len(mark)))
        return
    database = sqlite3.connect(next(store.glob("*.sqlite*")))
    with database:
        found = database.execute("DELETE FROM events WHERE instr(line, ?) > 0", (mark,))
    database.close()
    assert found.rowcount == 1


@both_backends
@pytest.mark.shared_store(False)
async def test_a_damaged_snapshot_falls_back_to_the_one_before_then_to_the_log(
    store: Path, kept_by: BackendName
) -> None:
    """S10: each damaged one is passed over, in a session that opens as always."""
    async with open_runtime(store) as runtime, await runtime.create_session(key="k") as session:
        await count(session, 0)
        for n in (1, 2, 3):
            await session.snapshot({"sum": n})
            await session.flush()
    for n, expected in [(3, Snapshot(2, {"sum": 2})), (2, Snapshot(1, {"sum": 1})), (1, None)]:
        spoil(store, kept_by, b'{"state":{"sum":%d}}' % n)
        async with open_runtime(store) as runtime, await runtime.open_session("k") as session:
            assert await session.last_snapshot() == expected
    async with open_runtime(store) as runtime, await runtime.open_session("k") as session:
        await session.snapshot({"sum": 4})
        assert await session.last_snapshot() == Snapshot(4, {"sum": 4})


@pytest.mark.shared_store(False)
async def test_a_snapshot_whose_blob_is_lost_falls_back(store: Path) -> None:
    """What a large state lay in is missing; the session, and the snapshot before it, are as good as ever."""
    async with open_runtime(store) as runtime, await runtime.create_session(key="k") as session:
        await session.snapshot({"sum": 1})
        await session.snapshot({"sum": 2, "large": LARGE})
    (blob,) = [path for path in (store / "blobs").rglob("*") if path.is_file()]
    blob.unlink()
    async with open_runtime(store) as runtime, await runtime.open_session("k") as session:
        assert await session.last_snapshot() == Snapshot(0, {"sum": 1})


async def test_only_so_many_snapshots_are_found(runtime: Runtime) -> None:
    """The summary is small: of many it names the newest, of which the last one is found."""
    async with await runtime.create_session() as session:
        for n in range(SNAPSHOTS_KEPT + 4):
            await session.snapshot({"sum": n})
        assert await session.last_snapshot() == Snapshot(session.head - 1, {"sum": session.head - 1})
        await session.rewind(4)
        assert await session.last_snapshot() is None


@pytest.mark.shared_store(False)
async def test_a_repaired_copy_has_the_snapshots_and_versions_under_its_own_numbers(store: Path) -> None:
    """What was damaged is left out, the numbers behind it are others; what is critical stays so for all but repair."""
    upgrades = {1: lambda data: {"n": data["n"], "new": True}}
    async with open_runtime(store) as runtime:
        async with await runtime.create_session(key="k") as session:
            for n in range(3):
                await session.append("my/n", {"n": n})
                await session.flush()
        runtime.register("my/n", version=2, critical=True, upgrades=upgrades)
        async with await runtime.open_session("k") as session:
            await session.append("my/n", {"n": 3})
            await session.snapshot({"sum": 6})
    spoil(store, "journal", b'"data":{"n":1}')
    async with open_runtime(store) as runtime:
        copy = (await runtime.repair_session("k")).copy
        assert copy is not None
        runtime.register("my/n", version=2, upgrades=upgrades)
        assert [event.data for event in await runtime.read(copy, start=1)] == [
            {"n": 0, "new": True},
            {"n": 2, "new": True},
            {"n": 3},
            {"state": {"sum": 6}},
        ]
        async with await runtime.open_session(copy) as session:
            assert session._summary.critical == ["my/n"]
            assert await session.last_snapshot() == Snapshot(4, {"sum": 6})
