"""Failpoints: named places at which a process can be made to die, and which are nowhere if nobody wants them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from turnkeeper.actors.failpoints import NODE, POINTS, WRITER, limits_of
from turnkeeper.benchmarks.chaos.failpoint import Failpoint
from turnkeeper.benchmarks.chaos.store_processes import state_of
from turnkeeper.runtime import failpoints
from turnkeeper.runtime.tasks.failpoints import SHIM, SPAWNER
from turnkeeper.storage.filesystem import LocalFileSystem

from ..serving import eventually

SECONDS_MAX = 30.0

PROGRAM = """
import asyncio, os, sys
from turnkeeper.benchmarks.chaos.failpoint import Failpoint
from turnkeeper.benchmarks.chaos.store_processes import state_of
from turnkeeper.runtime import failpoints

class Work:
    def do(self, number):
        print("did", number, flush=True)
        return number
    async def wait(self, number):
        print("waited", number, flush=True)
        return number

sys.modules["work"] = sys.modules["__main__"]
failpoints.arm({"a-point": sys.argv[1]})
for number in range(3):
    if number == 1:
        open(os.environ["TURNKEEPER_FAILPOINTS"] + "/a-point", "w").write(sys.argv[2])
    assert Work().do(number) == number
    assert asyncio.run(Work().wait(number)) == number
"""


def run(place: Path, target: str, content: str = "") -> tuple[int, int, str]:
    """Run the program with one point; give its pid, how it ended, and what it said."""
    environment = {**os.environ, failpoints.VARIABLE: str(place)}
    command = [sys.executable, "-c", PROGRAM, target, content]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    said, _ = process.communicate(timeout=SECONDS_MAX)
    return process.pid, process.returncode, said


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("before work:Work.do", "did 0|waited 0|"),
        ("behind work:Work.do", "did 0|waited 0|did 1|"),
        ("before work:Work.wait", "did 0|waited 0|did 1|"),
        ("behind work:Work.wait", "did 0|waited 0|did 1|waited 1|"),
    ],
)
def test_who_passes_an_armed_point_dies_there(tmp_path: Path, target: str, said: str) -> None:
    """Not before its file is there; and the file then says by its name who died."""
    pid, code, output = run(tmp_path, target)
    assert code == -signal.SIGKILL
    assert output == said.replace("|", "\n")
    assert os.listdir(tmp_path) == [f"a-point.{pid}"]


def test_the_file_may_name_another_signal(tmp_path: Path) -> None:
    """A process can be made to stop there as well, or to end."""
    _, code, output = run(tmp_path, "behind work:Work.do", str(signal.SIGTERM.value))
    assert (code, output) == (-signal.SIGTERM, "did 0\nwaited 0\ndid 1\n")


def test_a_file_is_obeyed_once(tmp_path: Path) -> None:
    """The next process that passes the same point goes on."""
    first = run(tmp_path, "before work:Work.do", str(signal.SIGCONT.value))
    assert first[1:] == (0, "".join(f"did {number}\nwaited {number}\n" for number in range(3)))
    assert os.listdir(tmp_path) == [f"a-point.{first[0]}"]


def test_the_file_may_name_a_later_pass(tmp_path: Path) -> None:
    """Who passes the point so often from now on obeys it then."""
    _, code, output = run(tmp_path, "before work:Work.do", f"{signal.SIGTERM.value} 2")
    assert (code, output) == (-signal.SIGTERM, "did 0\nwaited 0\ndid 1\nwaited 1\n")


def test_the_runner_knows_who_has_stopped_and_lets_him_go_on(tmp_path: Path) -> None:
    """A stop at a failpoint is one that ends, and what is armed and never passed is taken away."""
    code = PROGRAM.replace('open(os.environ["TURNKEEPER_FAILPOINTS"] + "/a-point", "w").write(sys.argv[2])', "pass")
    stop = Failpoint(tmp_path, "a-point", signal.SIGSTOP, passes=2)
    environment = {**os.environ, failpoints.VARIABLE: str(tmp_path)}
    command = [sys.executable, "-c", code, "before work:Work.do", ""]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert stop.obeyed_by() is None or stop.obeyed_by() == process.pid
        eventually(lambda: stop.obeyed_by() == process.pid and state_of(process.pid) == "T")
        assert not stop.is_armed
        stop.lift()
        said, _ = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, said.count("did")) == (0, 3)
    Failpoint(tmp_path, "other-point", signal.SIGKILL).lift()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("points", [WRITER, NODE, SPAWNER, SHIM], ids=["writer", "node", "spawner", "shim"])
def test_each_point_is_at_a_function_that_is_there(points: Mapping[str, str]) -> None:
    """A function that gets another name takes its points along."""
    for name, target in points.items():
        when, _, where = target.partition(" ")
        assert when in (failpoints.BEFORE, failpoints.BEHIND), name
        assert callable(failpoints.target_of(where)), name
    assert sorted([*WRITER, *NODE, *SPAWNER, *SHIM]) == sorted(name for names in POINTS.values() for name in names)
    assert all(name.startswith(f"{role}-") for role, names in POINTS.items() for name in names)


def test_each_limit_is_one_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant that gets another name takes its limit along; and one that isn't there would limit nothing."""
    usual = {where: failpoints.target_of(where) for where in limits_of(1)}
    assert all(number > 100_000 for number in usual.values())
    for numbers in (limits_of(1000), usual):
        monkeypatch.setenv(failpoints.LIMITS_VARIABLE, json.dumps(numbers))
        failpoints.set_limits()
        assert {where: failpoints.target_of(where) for where in usual} == numbers
    monkeypatch.setenv(failpoints.LIMITS_VARIABLE, '{"turnkeeper.storage.journal:SEGMENT_LITRES": 1}')
    with pytest.raises(AttributeError):
        failpoints.set_limits()
    monkeypatch.delenv(failpoints.LIMITS_VARIABLE)
    failpoints.set_limits()


def test_a_process_without_the_variable_has_none() -> None:
    """Nothing is wrapped, and nothing is loaded that would wrap it."""
    assert failpoints.directory() is None
    assert not hasattr(LocalFileSystem.write, "__wrapped__")
    code = "import sys, turnkeeper.actors.writer.writer_main; print('turnkeeper.actors.failpoints' in sys.modules)"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS_MAX).stdout == "False\n"
