"""Contract of the demo's tasks: what is known of each before it runs is what it does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.benchmarks.demonstration.planned_tasks import Kind, PlannedTask, draw_task, place_of_call
from turnkeeper.benchmarks.demonstration.task_oracle import read_witnesses
from turnkeeper.benchmarks.demonstration.workbench import Workbench
from turnkeeper.benchmarks.measuring.marked_processes import kill_left_behind, left_behind, wait_left_behind

from ..serving import eventually

PLANNED = PlannedTask("exit", 5, 10, 7, keep=False, waits=False, stop_after=None, give_up_ms=None)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    """A workbench, not prepared yet; nothing of its tasks is left at its end."""
    made = Workbench(tmp_path / "bench")
    yield made
    kill_left_behind(made.mark, patience=10.0)


@pytest.fixture
def hold(bench: Workbench) -> Iterator[FileIO]:
    """What holds open the FIFO that lasting tasks read from."""
    with FileIO(bench.prepare(), "r+") as held:
        yield held


@contextmanager
def running(bench: Workbench, task: PlannedTask) -> Iterator[subprocess.Popen[bytes]]:
    """Start a task in a process session of its own, with a file for its output, and end it if it doesn't end."""
    with (bench.outputs / "a").open("wb") as output:
        process = subprocess.Popen(
            bench.argv("a", task), stdout=output, env=os.environ | bench.environment("a"), start_new_session=True
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("hold")
@pytest.mark.parametrize(
    ("kind", "number", "code", "witness"),
    [
        ("exit", 0, 0, "code 0"),
        ("exit", 125, 125, "code 125"),
        ("signal", signal.SIGUSR1.value, -signal.SIGUSR1, f"signal {signal.SIGUSR1.value}"),
        ("child", 7, 7, "code 7"),
    ],
)
def test_what_ends_by_itself_does_as_planned(
    bench: Workbench, kind: Kind, number: int, code: int, witness: str
) -> None:
    """Its end, its output to the last byte and what it witnesses are known, and nothing of it is left."""
    planned = PLANNED._replace(kind=kind, number=number)
    with running(bench, planned) as process:
        assert process.wait(20) == code
    assert planned.end == ({"code": code} if code >= 0 else {"signal": -code})
    assert wait_left_behind(bench.mark, patience=20.0) == []
    assert (bench.outputs / "a").read_bytes() == planned.output("a")
    assert read_witnesses(bench.witnesses) == {"a": ["began", witness]}


@pytest.mark.parametrize(("kind", "left"), [("server", 0), ("daemon", 1)])
def test_what_lasts_ends_by_a_stop(bench: Workbench, hold: FileIO, kind: Kind, left: int) -> None:
    """A signal to its group ends it and its child; one that has left its process session ends with the demo at last."""
    planned = PLANNED._replace(kind=kind, number=0)
    with running(bench, planned) as process:
        eventually(lambda: (bench.outputs / "a").stat().st_size >= len(planned.output("a")))
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM
    assert (bench.outputs / "a").read_bytes() == planned.output("a")
    assert planned.end == {"signal": signal.SIGTERM}
    assert read_witnesses(bench.witnesses) == {"a": ["began"]}
    eventually(lambda: len(left_behind(bench.mark)) == left)
    hold.close()
    assert wait_left_behind(bench.mark, patience=20.0) == []


@pytest.mark.parametrize("kind", ["server", "daemon"])
def test_what_lasts_ends_with_the_demo_however_that_dies(bench: Workbench, hold: FileIO, kind: Kind) -> None:
    """Nobody has to stop it: what it reads from has an end once nobody holds that open, from then on or before."""
    with running(bench, PLANNED._replace(kind=kind)) as process:
        eventually(lambda: (bench.outputs / "a").read_bytes().endswith(b"ready\n"))
        hold.close()
        process.wait(20)
    with running(bench, PLANNED._replace(kind=kind)) as late:
        late.wait(20)
    assert wait_left_behind(bench.mark, patience=20.0) == []


def test_what_ends_by_its_own_signal_ended_by_nobody_else() -> None:
    """As the journal has it: a stop is known, a signal of unknown origin isn't called the task's own doing."""
    assert (PLANNED.by, PLANNED._replace(kind="signal").by) == ("itself", "unknown")
    lasting = PLANNED._replace(kind="server")
    assert (lasting._replace(stop_after=2).by, lasting.by) == ("stop", "owner")


@given(st.integers(0, 2**32))
def test_a_drawn_task_can_be_judged(seed: int) -> None:
    """What lasts is not kept beyond its agent nor waited for, what ends by itself not stopped; a map keeps it all."""
    task = draw_task(Random(seed))
    if task.lasts:
        assert not task.keep
        assert not task.waits
    else:
        assert task.stop_after is None
    assert 0 <= task.number < 126
    assert (task.kind == "signal") <= (task.number > 0)
    assert PlannedTask.from_map(json.loads(json.dumps(task._asdict()))) == task


def test_a_turn_starts_its_task_at_its_first_call() -> None:
    """Without one at its end."""
    steps: list[tuple[str, dict[str, Any]]] = [("user/message", {}), ("tool/started", {}), ("tool/started", {})]
    assert (place_of_call(steps), place_of_call(steps[:1])) == (1, 0)
