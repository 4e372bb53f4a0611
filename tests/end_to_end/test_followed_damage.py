"""End to end: what follows is told of events that it can't be given, where they would have come, and goes on."""

from __future__ import annotations

import errno
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from turnkeeper.actors.blocking import connect
from turnkeeper.actors.reading.following import Following
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.storage.errors import Corrupt, Failed
from turnkeeper.storage.run_reader import RunReader
from turnkeeper.storage.store import BackendName

from ..command_line import CommandLine
from ..served import LOOPS_AND_STORES, SECONDS_MAX

LOOPS = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


async def write(runtime: Runtime) -> tuple[str, str]:
    """Store six events of two sessions in turn, each in a batch of its own; give the sessions' ids."""
    async with await runtime.create_session() as one, await runtime.create_session() as two:
        for n in range(3):
            for session, name in (one, "one"), (two, "two"):
                await session.append("note/n", {"n": f"{name} {n}"})
                await session.flush()
        return one.id, two.id


def damage(store: Path, kept_by: BackendName) -> None:
    """Take the second event of the first session from the disk."""
    if kept_by == "sqlite":
        with closing(sqlite3.connect(store / "store.sqlite")) as database, database:
            database.execute("DELETE FROM events WHERE instr(line, 'one 1')")
    else:
        segment = store / "journal" / "00000001.jsonl"
        segment.write_bytes(segment.read_bytes().replace(b"one 1", b"one 7"))


async def told(following: Following, count: int) -> list[object]:
    """Take so much of what a follower is given or told: an event's `n`, or the error."""
    found: list[object] = []
    with anyio.fail_after(SECONDS_MAX):
        while len(found) < count:
            try:
                found.append((await anext(following)).data["n"])
            except Corrupt as error:
                found.append(error)
    return found


@pytest.mark.anyio
@LOOPS_AND_STORES
async def test_a_damaged_event_is_told_once_in_its_place_to_whom_it_concerns(store: Path, kept_by: BackendName) -> None:
    """With all that the error can say; who follows another session isn't told; the next event comes behind it, live."""
    async with open_runtime(store) as runtime:
        one, two = await write(runtime)
    damage(store, kept_by)
    async with open_runtime(store) as runtime:
        for following in runtime.follow(after=0), runtime.follow(one, two, after=0, types=["note/*"]):
            before_one, before_two, error, *behind = await told(following, 6)
            assert (before_one, before_two, behind) == ("one 0", "two 0", ["two 1", "one 2", "two 2"])
            assert isinstance(error, Corrupt)
            assert (error.stream, error.missing, error.positions) == (one, [(1, 1)], (3, 1))
            assert error.path == ("store.sqlite" if kept_by == "sqlite" else "00000001.jsonl")
            assert "missing events: 1-1; missing positions: 3-3" in str(error)
        assert await told(runtime.follow(two, after=0), 3) == ["two 0", "two 1", "two 2"]
        assert await told(runtime.follow(after=3), 3) == ["two 1", "one 2", "two 2"]
        live = runtime.follow(one, after=0)
        assert isinstance((await told(live, 3))[1], Corrupt)
        async with await runtime.open_session(two) as session, anyio.create_task_group() as tasks:
            tasks.start_soon(session.append, "note/n", {"n": "not followed"})
            with anyio.move_on_after(0.1) as scope:
                await anext(live)
            assert scope.cancelled_caught, "it was told again"


@pytest.mark.anyio
@LOOPS
async def test_what_nobody_can_name_is_told_to_everybody(store: Path) -> None:
    """A batch without header, in a store without index: the positions, and why."""
    async with open_runtime(store) as runtime:
        _, two = await write(runtime)
    segment = store / "journal" / "00000001.jsonl"
    content = segment.read_bytes()
    begin = content.rindex(b'{"$batch":', 0, content.index(b"one 1"))
    segment.write_bytes(content[:begin] + b"#" * 10 + content[begin + 10 :])
    shutil.rmtree(store / "index")
    (store / "index.json").unlink()
    async with open_runtime(store) as runtime:
        before, error, *behind = await told(runtime.follow(two, after=0), 4)
    assert [before, *behind] == ["two 0", "two 1", "two 2"]
    assert isinstance(error, Corrupt)
    assert (error.stream, error.missing, error.positions, error.path) == ("the store", [], (3, 1), "00000001.jsonl")
    assert "neither a batch nor the index says what stood there" in error.reason


@pytest.mark.anyio
@LOOPS
@pytest.mark.parametrize("kept_by", ["sqlite"])
async def test_a_row_that_holds_no_event_is_told(store: Path) -> None:
    """SQLite doesn't check what a row says: what can't be read as an event is damage, too."""
    async with open_runtime(store) as runtime:
        one, _ = await write(runtime)
    with closing(sqlite3.connect(store / "store.sqlite")) as database, database:
        database.execute("UPDATE events SET line = x'00' WHERE instr(line, 'one 1')")
    async with open_runtime(store) as runtime:
        before, error, *behind = await told(runtime.follow(one, after=0, types=["note/*"]), 3)
    assert [before, *behind] == ["one 0", "one 2"]
    assert isinstance(error, Corrupt)
    assert (error.stream, error.missing, error.positions) == (one, [(1, 1)], (3, 1))


@pytest.mark.anyio
@LOOPS
async def test_a_read_that_fails_is_told_as_a_failure_and_tried_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is passed over: the next call gives what could not be read."""
    failures = [OSError(errno.EIO, "Input/output error")] * 2
    read = RunReader.read

    def fail(self: RunReader, stream: str, extent: object) -> list[bytes]:
        if failures:
            raise failures.pop()
        return read(self, stream, extent)  # type: ignore[arg-type]

    async with open_runtime(store) as runtime:
        await write(runtime)
        monkeypatch.setattr(RunReader, "read", fail)
        following = runtime.follow(after=0)
        for _ in range(2):
            with pytest.raises(Failed, match=r"from position 1 on can't be read now \(Input/output error\)"):
                await anext(following)
        assert await told(following, 6) == ["one 0", "two 0", "one 1", "two 1", "one 2", "two 2"]


def test_plain_programs_and_the_command_are_told_the_same(cli: CommandLine, tmp_path: Path) -> None:
    """`next` raises and goes on; the command says so in a line on stderr and prints what comes behind it."""
    store = tmp_path / "store"
    with connect(store) as runtime, runtime.create_session() as session:
        for n in range(3):
            session.append("note/n", {"n": f"one {n}"})
            session.flush()
    damage(store, "journal")
    with connect(store) as runtime:
        following = iter(runtime.follow(after=0))
        assert next(following).data["n"] == "one 0"
        with pytest.raises(Corrupt, match="missing events: 1-1"):
            next(following)
        assert next(following).data["n"] == "one 2"
    with cli.running("follow", "--after", "0", "--json") as command:
        assert command.stdout is not None
        assert command.stderr is not None
        assert [json.loads(command.stdout.readline())["seq"] for _ in range(2)] == [0, 2]
        line = command.stderr.readline()
    text = line.decode()
    assert text.startswith(f"turnkeeper: {session.id} is damaged: its bytes don't fit their checksum (00000001.jsonl")
    assert "missing events: 1-1; missing positions: 2-2" in text
