"""End to end: following from a position that the store hasn't got, or hasn't got any more."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

import turnkeeper
from turnkeeper.actors.blocking import connect
from turnkeeper.actors.errors import PositionLost
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime

from ..command_line import CommandLine

SECONDS_MAX = 20


async def _write(runtime: Runtime, count: int) -> None:
    """Make a session of that many events, each in a batch of its own."""
    async with await runtime.create_session() as session:
        for number in range(count):
            await session.append("note/n", {"number": number})
            await session.flush()


def _go_down(path: Path, events: int) -> None:
    """Leave of the store what a machine's disk may have, if it went down before its last events were written."""
    record = json.loads((path / "index.json").read_text())
    (path / "index.json").write_text(json.dumps({**record, "boot": "before", "state": "open", "witness": None}))
    segment = path / "journal" / "00000001.jsonl"
    content = segment.read_bytes()
    begin = content.index(b'{"$batch":%d,' % (events + 1))
    segment.write_bytes(content[:begin] + bytes(len(content) - begin))


@pytest.mark.anyio
async def test_a_position_that_went_with_the_machine_is_told_and_gone_on_from_the_end(tmp_path: Path) -> None:
    """A store that doesn't sync keeps a beginning: who has read more is told so at once, and not left to wait."""
    path = tmp_path / "store"
    async with open_runtime(path, durability="os") as runtime:
        await _write(runtime, 5)
    _go_down(path, 3)
    async with open_runtime(path) as runtime:
        with anyio.fail_after(SECONDS_MAX):
            for after in (5, 4):
                following = runtime.follow(after=after)
                for _ in range(2):
                    with pytest.raises(PositionLost, match=r"the store ends with 3: .* follow from there"):
                        await anext(following)
            following = runtime.follow(after=3)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_write, runtime, 1)
                event = await anext(following)
    assert (event.position, event.data) == (4, {"number": 0})


@pytest.mark.anyio
async def test_the_end_itself_is_waited_at(tmp_path: Path) -> None:
    """Of an empty store and of any other: it is where the next event comes."""
    async with open_runtime(tmp_path / "store") as runtime:
        for end in (0, 2):
            following = runtime.follow(after=end)
            with anyio.move_on_after(0.05) as scope:
                await anext(following)
            assert scope.cancelled_caught
            with anyio.fail_after(SECONDS_MAX):
                await _write(runtime, 2)
                assert (await anext(following)).position == end + 1


@pytest.mark.anyio
async def test_what_is_no_position_is_refused_at_once(tmp_path: Path) -> None:
    """Before anything is read."""
    async with open_runtime(tmp_path / "store") as runtime:
        for wrong in (-1, 1.5, "1"):
            with pytest.raises(ValueError, match="whole numbers from 0 on"):
                runtime.follow(after=wrong)  # type: ignore[arg-type]


def test_plain_programs_and_the_command_are_told_the_same(tmp_path: Path) -> None:
    """The error is public, and the command's line says where the store ends."""
    with connect(tmp_path / "store") as runtime:
        with runtime.create_session() as session:
            session.append("note/n", {})
        with pytest.raises(turnkeeper.PositionLost):
            next(iter(runtime.follow(after=7)))
    found = CommandLine(tmp_path / "store", tmp_path).run("follow", "--after", "7", "--json")
    assert found.code == 3
    assert {name: found.error[name] for name in ("kind", "after", "next_position")} == {
        "kind": "position_lost",
        "after": 7,
        "next_position": 2,
    }
