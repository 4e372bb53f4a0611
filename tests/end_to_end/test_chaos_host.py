"""End to end: a host of chaos does as it is ordered, and its notes can be judged."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper import open_runtime
from turnkeeper.benchmarks.chaos import planned_tasks
from turnkeeper.benchmarks.chaos.checker.evidence import read_evidence
from turnkeeper.benchmarks.chaos.checker.judging import judge
from turnkeeper.benchmarks.chaos.follower import follow
from turnkeeper.benchmarks.chaos.host import HostStart
from turnkeeper.benchmarks.chaos.notes import Notebook, read_notebooks
from turnkeeper.benchmarks.chaos.plan import AgentPlan, FollowerPlan, HostPlan

from ..served import SECONDS_MAX, wait_unserved
from ..serving import eventually


def test_who_takes_a_session_over_twice_notes_each_time_by_itself(tmp_path: Path) -> None:
    """A host that was stopped twice has its sessions taken over twice by the same other one, which fences itself."""
    for name in ("notes", "bench"):
        (tmp_path / name).mkdir()
    planned_tasks.prepare(tmp_path / "bench")
    agent = AgentPlan("agent", 1, 1, (), in_worker=False)
    plan = HostPlan("host-0", "trio", (), ())
    store, notes, bench = (str(tmp_path / name) for name in ("store", "notes", "bench"))
    start = HostStart("host-0.1", store, notes, bench, plan.as_map(), peers=["agent"], after={}, draw=1000)

    def opened() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for note in read_notebooks(Path(notes).iterdir()):
            if note["what"] == "opened":
                found.setdefault(note["file"], []).append(note["session"])
        return found

    command = [sys.executable, "-P", "-m", "turnkeeper.benchmarks.chaos.host"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as host:
        assert host.stdin is not None

        def order(words: Mapping[str, Any]) -> None:
            assert host.stdin is not None
            host.stdin.write(json.dumps(words).encode() + b"\n")
            host.stdin.flush()

        try:
            order(dataclasses.asdict(start))
            for number in (1, 2):
                order({"take": [agent.as_map()]})
                eventually(lambda number=number: len(opened()) == number)  # type: ignore[misc]
            order({"leave": True})
            assert host.wait(SECONDS_MAX) == 0
        finally:
            host.kill()
    wait_unserved(Path(store), SECONDS_MAX)
    (first,), (second,) = opened().values()
    assert first == second
    assert judge(read_evidence(Path(store), Path(notes).iterdir())).counts == {}


class Reached(dict[str, int]):
    """How far followers have come; `moved` is set when one does."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = anyio.Event()

    def __setitem__(self, name: str, position: int) -> None:
        super().__setitem__(name, position)
        self.moved.set()


def beginnings(notes: Path) -> list[int]:
    """Give behind which position each following began."""
    return [note["after"] for note in read_notebooks(notes.glob("*.jsonl")) if note["what"] == "following"]


@pytest.mark.anyio
async def test_a_follower_goes_on_in_its_hosts_next_runtime_where_it_was(tmp_path: Path) -> None:
    """A host that has to open its store once more doesn't begin anew: who goes on after its death goes by its notes."""
    notebook = Notebook(tmp_path / "host-0.1.jsonl")
    reached = Reached()
    for number in (1, 2):
        async with open_runtime(str(tmp_path / "store")) as runtime, await runtime.create_session() as session:
            await session.append("note/seen", {"number": number})
            last = await session.flush()
            leaving = anyio.Event()
            with anyio.fail_after(SECONDS_MAX):
                async with anyio.create_task_group() as group:
                    group.start_soon(follow, runtime, FollowerPlan("one", 0), reached, notebook, leaving)
                    while reached.get("one", 0) < last:
                        await reached.moved.wait()
                        reached.moved = anyio.Event()
                    leaving.set()
    first, second = beginnings(tmp_path)
    assert first == 0 < second
