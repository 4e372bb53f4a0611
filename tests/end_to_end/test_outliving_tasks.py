"""End to end: tasks that outlive their host and all who served them, and what goes on of them afterwards."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from turnkeeper.actors.blocking import BlockingRuntime, connect
from turnkeeper.benchmarks.chaos.store_processes import Process, descriptors, is_alive, processes_by_role, zombies_below

from ..command_line import CommandLine
from ..served import SECONDS_MAX, read_line, start_python
from ..serving import eventually

HOST = """
import sys
from turnkeeper import connect
with connect(sys.argv[1]) as runtime:
    with runtime.open_session("agent", create=True) as session:
        task = runtime.start_task(["sh", "-c", sys.argv[2]], session=session, on_owner_exit="keep")
        print(task.id, flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory whose store is left with no task that runs."""
    yield tmp_path
    with connect(tmp_path / "store") as runtime:
        runtime.stop_tasks(
            *[task.id for state in ("running", "queued") for task in runtime.tasks(state=state)], grace=1
        )


@contextmanager
def host_of_task(store: Path, script: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a program that starts a task that is kept; give it and the task's id."""
    process = start_python(HOST, str(store), script)
    try:
        yield process, read_line(process)
    finally:
        process.kill()
        process.communicate()


def kill_all(store: Path, *others: int) -> None:
    """Kill node, writer and spawner of a store, and others, at once."""
    found = processes_by_role(store)
    processes = [Process(pid) for pid in (*others, *found["node"], *found["writer"], *found["spawner"])]
    for process in processes:
        process.kill()
    for process in processes:
        process.wait_dead()
        process.close()


def has_ended(store: Path, task: str) -> bool:
    """Say whether a task's shim has written its end."""
    return (store / "tasks" / task / "exit.json").exists()


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_true_end_is_known_after_all_were_killed_at_once(place: Path, when: str) -> None:
    """Host, node, writer and spawner; whether the task ended before anybody came back, or after."""
    store, gate = place / "store", place / "gate"
    os.mkfifo(gate)
    with host_of_task(store, f"echo begins; read line <{gate}; echo ends; exit 7") as (host, task):
        kill_all(store, host.pid)
    if when == "before":
        gate.write_text("go\n")
        eventually(lambda: has_ended(store, task))
    with connect(store) as runtime:
        if when == "after":
            assert runtime.task(task).state().state == "running"
            gate.write_text("go\n")
        state = runtime.task(task).wait(tree=True, timeout=SECONDS_MAX)
        assert (state.state, state.how, state.by, state.keep) == ("ended", {"code": 7}, "itself", True)
        assert runtime.task(task).output().data == b"begins\nends\n"
        assert [event.type for event in runtime.read(task)] == ["task/requested", "task/started", "task/ended"]


def test_what_is_known_of_a_task_goes_on_after_all_were_killed(place: Path) -> None:
    """A follower misses and repeats no byte, progress and timeout count on, a silence and the end are told once."""
    store = place / "store"
    script = "echo 1/4 steps; sleep 0.6; echo 2/4 steps; while :; do sleep 1; done"
    with connect(store) as runtime, runtime.open_session("agent", create=True) as session:
        task = runtime.start_task(["sh", "-c", script], session=session, timeout=6.0, grace=0.3, stall=1.0)
        pieces = task.follow()
        heard = bytearray()
        while heard != b"1/4 steps\n":
            heard += next(pieces).data
        kill_all(store)
        heard += b"".join(piece.data for piece in pieces)
        state = task.wait(timeout=SECONDS_MAX)
        assert heard == b"1/4 steps\n2/4 steps\n"
        assert (state.state, state.by, state.progress) == ("ended", "timeout", {**(state.progress or {}), "current": 2})
        assert 6.0 <= ((state.ended or 0) - (state.started or 0)) / 1000 < SECONDS_MAX
        told = {message.type: message for _, message in zip(range(2), session.inbox(), strict=False)}
        assert told.keys() == {"task/stalled", "task/ended"}
        assert told["task/stalled"].data["output_bytes"] == len(heard)
        assert [event.type for event in runtime.read(task.id)].count("task/stalled") == 1


def test_a_task_started_from_a_terminal_outlives_it(tmp_path: Path, place: Path) -> None:
    """The terminal is closed, which hangs up all that run in it; a task that is kept goes on, and has no terminal."""
    cli = CommandLine(place / "store", tmp_path)
    gate = place / "gate"
    os.mkfifo(gate)
    script = f"test -t 0 || test -t 1 || echo no terminal; read line <{gate}; exit 7"
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which whoever runs the tests may have ignored
        line = cli.line("task", "start", "--key", "kept", "--", "sh", "-c", script)
        os.execve("/bin/sh", ["sh", "-c", '"$@"; exec sleep 600', "sh", *line], cli.environment)
    try:
        with suppress(OSError):
            while b"running" not in os.read(terminal, 4096):
                pass
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    assert os.waitstatus_to_exitcode(status) == -signal.SIGHUP
    with connect(place / "store") as runtime:
        state = runtime.task("kept").state()
        assert state.state == "running"
        gate.write_text("go\n")
        assert runtime.task("kept").wait(timeout=SECONDS_MAX).how == {"code": 7}
        assert runtime.task("kept").output().text == "no terminal\n"


def test_hanging_up_on_all_of_them_ends_no_task(place: Path) -> None:
    """SIGHUP to node, writer, spawner and shim, as a session manager's logout sends it."""
    store, gate = place / "store", place / "gate"
    os.mkfifo(gate)
    with connect(store) as runtime:
        task = runtime.start_task(["sh", "-c", f"trap '' HUP; read line <{gate}; exit 7"], on_owner_exit="keep")
        found = processes_by_role(store)
        for pids in found.values():
            for pid in pids:
                os.kill(pid, signal.SIGHUP)
        gate.write_text("go\n")
        assert task.wait(timeout=SECONDS_MAX).how == {"code": 7}
        assert all(is_alive(pid) for role in ("node", "writer", "spawner") for pid in found[role])


def run_tasks(runtime: BlockingRuntime, count: int) -> None:
    """Start tasks as fast as they can be, some of which leave something behind, and see all of them finished."""
    scripts = ["exit 0", "sleep 0.05 & exit 1", "kill -9 $$", "(sleep 0.01 &) & exit 3"]
    tasks = [runtime.start_task(["sh", "-c", scripts[number % len(scripts)]]) for number in range(count)]
    for first in range(0, count, 100):
        states = runtime.wait_tasks(*tasks[first : first + 100], tree=True, timeout=SECONDS_MAX)
        assert [state.state for state in states] == ["ended"] * len(states)


def assert_nothing_is_left(store: Path, count: int) -> None:
    """Run so many tasks, and see that no zombie and no descriptor of them is left in those who served them."""
    with connect(store) as runtime:
        run_tasks(runtime, 4)
        found = processes_by_role(store)
        servants = [found[role][0] for role in ("node", "writer", "spawner")]
        before = {pid: descriptors(pid) for pid in (*servants, os.getpid())}
        run_tasks(runtime, count)
        eventually(lambda: not zombies_below([*servants, os.getpid()]))
        eventually(lambda: processes_by_role(store)["shim"] == [])
        eventually(lambda: {pid: descriptors(pid) for pid in before} == before)
        assert processes_by_role(store) == found


def test_tasks_leave_no_zombie_and_no_descriptor(tmp_path: Path) -> None:
    """However they ended, and whatever they left behind for a moment."""
    assert_nothing_is_left(tmp_path / "store", 40)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_thousand_tasks_leave_no_zombie_and_no_descriptor(tmp_path: Path) -> None:
    """The long form."""
    assert_nothing_is_left(tmp_path / "store", 1000)
