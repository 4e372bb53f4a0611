"""Contract of the agent over plain files: it is fair to what plain files can do, and shows what they can't."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import FileIO
from itertools import zip_longest
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.benchmarks.demonstration.oracle import Verdict, judge, read_notes, read_plain
from turnkeeper.benchmarks.demonstration.plain_agent import PlainAgent
from turnkeeper.benchmarks.demonstration.planned_tasks import PlannedTask
from turnkeeper.benchmarks.demonstration.task_oracle import (
    judge_tasks,
    read_logs,
    read_task_notes,
    read_witnesses,
)
from turnkeeper.benchmarks.demonstration.workbench import Workbench
from turnkeeper.benchmarks.measuring.marked_processes import kill_left_behind, left_behind

STEPS: list[tuple[str, dict[str, Any]]] = [("user/message", {"text": "begin"}), ("assistant/message", {"text": "é"})]


@pytest.fixture(autouse=True)
def bench(tmp_path: Path) -> Iterator[Workbench]:
    """The workbench of the agents' tasks, and directories for all else; nothing of the tasks is left at its end."""
    (tmp_path / "files").mkdir()
    (tmp_path / "notes").mkdir()
    made = Workbench(tmp_path / "tasks")
    with FileIO(made.prepare(), "r+"):
        yield made
        kill_left_behind(made.mark, patience=10.0)


def agent_of(directory: Path, label: str) -> PlainAgent:
    """Make an agent of one session."""
    files, notes, tasks = (str(directory / name) for name in ("files", "notes", "tasks"))
    return PlainAgent(files, notes, tasks, label, ["a"])


def judged(directory: Path) -> Verdict:
    """Judge what the agents left."""
    return judge(read_notes((directory / "notes").iterdir()), read_plain(directory / "files"))


async def replay(directory: Path, label: str, *turns: int, tasks: Sequence[PlannedTask] = ()) -> None:
    """Open one session's file, replay these turns in it, the first ones with tasks, and close it."""
    async with agent_of(directory, label) as agent:
        for number, task in zip_longest(turns, tasks):
            report = await agent.replay(0, number, STEPS, task and task._asdict())
            assert report["events"] == len(report["flushes"]) == 4
            assert len(report["starts"]) == (task is not None)
        await agent.finish()


def test_what_it_wrote_is_found_again(tmp_path: Path) -> None:
    """One owner after the other: numbers go on, turns are closed, everything noted is there."""
    anyio.run(replay, tmp_path, "first", 1, 2)
    anyio.run(replay, tmp_path, "second", 3)
    verdict = judged(tmp_path)
    assert verdict.is_clean
    assert (verdict.events, verdict.acknowledged, verdict.found) == (12, 12, 12)


def test_it_goes_on_behind_the_last_line_that_can_be_read(tmp_path: Path) -> None:
    """A torn line is neither ended nor counted, so the next event is glued to it and unreadable, as it happens."""
    anyio.run(replay, tmp_path, "first", 1)
    with (tmp_path / "files" / "a.jsonl").open("ab") as file:
        file.write(b'{"seq": 4, "type": "turn/st')
    anyio.run(replay, tmp_path, "second", 2)
    verdict = judged(tmp_path)
    assert (verdict.unreadable, verdict.lost, verdict.holes) == (1, 1, 1)


def test_two_owners_give_the_same_numbers(tmp_path: Path) -> None:
    """Nothing keeps a second one out, and each counts on from what it found."""

    async def two_owners() -> None:
        async with agent_of(tmp_path, "first") as first, agent_of(tmp_path, "second") as second:
            await first.replay(0, 1, STEPS, None)
            await second.replay(0, 2, STEPS, None)

    anyio.run(two_owners)
    verdict = judged(tmp_path)
    assert (verdict.repeated, verdict.lost) == (4, 0)


EXIT = PlannedTask("exit", 3, 20, 7, keep=False, waits=False, stop_after=None, give_up_ms=None)


def test_its_tasks_end_as_they_had_to_as_long_as_it_lives(tmp_path: Path, bench: Workbench) -> None:
    """It writes every code down, stops what is to be stopped after so many turns or at its end, and waits for all."""
    tasks = [
        EXIT,
        EXIT._replace(kind="signal", number=9, waits=True),
        EXIT._replace(kind="server", stop_after=1),
        EXIT._replace(kind="server"),
    ]
    anyio.run(lambda: replay(tmp_path, "first", 1, 2, 3, 4, tasks=tasks))
    verdict = judge_tasks(
        read_task_notes(bench.notes.iterdir()),
        read_witnesses(bench.witnesses),
        [read_logs(bench.logs.iterdir(), bench.outputs)],
        left_behind(bench.mark),
    )
    assert verdict.violations == ()
    assert verdict.tasks == 4
    assert judged(tmp_path).is_clean


def test_what_has_left_the_process_group_outlives_its_stop(tmp_path: Path, bench: Workbench) -> None:
    """As it does with all who stop by the group; the task itself is known to have ended."""
    anyio.run(lambda: replay(tmp_path, "first", 1, tasks=[EXIT._replace(kind="daemon")]))
    assert len(left_behind(bench.mark)) == 1
    (found,) = read_logs(bench.logs.iterdir(), bench.outputs).values()
    assert [end.how for end in found.ends] == [{"signal": 15}]
