"""Contract of the agent over plain files: it is fair to what plain files can do, and shows what they can't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from turnkeeper.benchmarks.oracle import judge, read_notes, read_plain
from turnkeeper.benchmarks.replay.plain_agent import PlainAgent

STEPS: list[tuple[str, dict[str, Any]]] = [("user/message", {"text": "begin"}), ("assistant/message", {"text": "é"})]


async def replay(files: Path, notes: Path, *turns: int) -> None:
    """Open one session's file, replay these turns in it, and close it."""
    async with PlainAgent(str(files), str(notes), ["a"]) as agent:
        for number in turns:
            report = await agent.replay(0, number, STEPS)
            assert report["events"] == len(report["flushes"]) == 4


def test_what_it_wrote_is_found_again(tmp_path: Path) -> None:
    """One owner after the other: numbers go on, turns are closed, everything noted is there."""
    anyio.run(replay, tmp_path, tmp_path / "notes-1", 1, 2)
    anyio.run(replay, tmp_path, tmp_path / "notes-2", 3)
    verdict = judge(read_notes([tmp_path / "notes-1", tmp_path / "notes-2"]), read_plain(tmp_path))
    assert verdict.is_clean
    assert (verdict.events, verdict.acknowledged, verdict.found) == (12, 12, 12)


def test_it_goes_on_behind_the_last_line_that_can_be_read(tmp_path: Path) -> None:
    """A torn line is neither ended nor counted, so the next event is glued to it and unreadable, as it happens."""
    anyio.run(replay, tmp_path, tmp_path / "notes-1", 1)
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(b'{"seq": 4, "type": "turn/st')
    anyio.run(replay, tmp_path, tmp_path / "notes-2", 2)
    verdict = judge(read_notes([tmp_path / "notes-1", tmp_path / "notes-2"]), read_plain(tmp_path))
    assert (verdict.unreadable, verdict.lost, verdict.holes) == (1, 1, 1)


def test_two_owners_give_the_same_numbers(tmp_path: Path) -> None:
    """Nothing keeps a second one out, and each counts on from what it found."""

    async def two_owners() -> None:
        first = PlainAgent(str(tmp_path), str(tmp_path / "notes-1"), ["a"])
        second = PlainAgent(str(tmp_path), str(tmp_path / "notes-2"), ["a"])
        async with first, second:
            await first.replay(0, 1, STEPS)
            await second.replay(0, 2, STEPS)

    anyio.run(two_owners)
    verdict = judge(read_notes([tmp_path / "notes-1", tmp_path / "notes-2"]), read_plain(tmp_path))
    assert (verdict.repeated, verdict.lost) == (4, 0)
