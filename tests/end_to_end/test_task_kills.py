"""Tasks whose spawner or shim is killed, at any moment: what is said of them is true, and what is left is found."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from subprocess import PIPE

import pytest

from turnkeeper.runtime.tasks import control, directory, survivors, tree

from .. import dying_spawner
from ..shims import Shims, Started, marked, own_identity, until

CALLS_MAX = 130
"""More system calls than a shim of these tests makes."""


@pytest.mark.parametrize("script", ["exit 7", "sleep 0.2 & exit 7"])
def test_a_shim_killed_before_any_of_its_system_calls_leaves_a_true_answer(tmp_path: Path, script: str) -> None:
    """Its task is unstarted and runs when it is handed over again, or lost for ever, or ended with its true code."""
    shims = Shims(tmp_path, dying_spawner.__file__)
    tasks = []
    for call in range(1, CALLS_MAX):
        task = shims.make(["/bin/sh", "-c", f"echo ran >>{tmp_path}/runs-{call}; {script}"])
        Path(task.path, "kill_at").write_text(str(call))
        shims.hand_over(task)
        tasks.append((task, tmp_path / f"runs-{call}"))
    shims.catch_up()
    until(lambda: not marked(*(task.id for task, _ in tasks)))
    stages = [_judge(task, runs) for task, runs in tasks]
    assert set(stages) == {"unstarted", "lost", "ended"}, stages
    assert any(task.id in shims.log().split() for task, _ in tasks), "no shim came to its end: raise CALLS_MAX"
    for task, _ in tasks:
        os.unlink(f"{task.path}/kill_at")
        shims.hand_over(task)
    shims.catch_up()
    for (task, runs), stage in zip(tasks, stages, strict=True):
        end = task.wait()
        assert ("lost" in end) == (stage == "lost")
        assert ("lost" in end) or (end["how"], end["by"]) == ({"code": 7}, "itself")
        assert (stage == "lost" and not runs.exists()) or runs.read_text() == "ran\n"
        assert not os.path.exists(f"{task.path}/{directory.ENVIRONMENT}")
    shims.close()


def _judge(task: Started, runs: Path) -> str:
    """Say what is said of a task whose shim and processes are all gone; settled, that stays so."""
    before = task.look()
    look = task.look(settle=True)
    assert (look.stage, look.end) == (before.stage, before.end)
    assert look.stage in ("unstarted", "ended")
    if look.stage == "unstarted":
        assert not runs.exists()
    return "lost" if look.is_lost else look.stage


def _hand_over_under_kills(shims: Shims, runs: Path, tasks: int, kills: int) -> None:
    """Hand tasks over to one spawner after the other, each killed meanwhile, until all have run."""
    scripts = [f"echo {number} >>{runs}; exit {number % 250}" for number in range(tasks)]
    made = [shims.make(["/bin/sh", "-c", script]) for script in scripts]
    chance = random.Random(tasks)
    for _ in range(kills):
        unstarted = [task for task in made if task.look(settle=True).stage == "unstarted"]
        chosen = chance.sample(unstarted, min(len(unstarted), 2 * tasks // kills))
        for task in chosen:
            shims.hand_over(task)
        if chosen and chance.random() < 0.8:
            until(partial(_any_begun, chosen))
        shims.restart_spawner()
    for task in made:
        shims.hand_over(task)
    assert [task.wait().get("how") for task in made] == [{"code": number % 250} for number in range(tasks)]
    assert Counter(runs.read_text().split()) == {str(number): 1 for number in range(tasks)}


def _any_begun(tasks: list[Started]) -> bool:
    return any(task.look().stage != "unstarted" for task in tasks)


def test_tasks_run_once_whenever_their_spawner_is_killed(shims: Shims, tmp_path: Path) -> None:
    """Handed over again and again to spawners that are killed, each runs exactly once and has its own code."""
    _hand_over_under_kills(shims, tmp_path / "runs", tasks=100, kills=10)


@pytest.mark.long
def test_many_tasks_run_once_whenever_their_spawner_is_killed(shims: Shims, tmp_path: Path) -> None:
    """The same with 1,200 tasks under 60 killed spawners."""
    _hand_over_under_kills(shims, tmp_path / "runs", tasks=1200, kills=60)


def test_no_look_calls_a_task_lost_that_just_ends(shims: Shims) -> None:
    """Looked at without a pause, a task goes through its stages in order and never backwards."""
    stages = ["unstarted", "running", "left", "ended"]
    for number in range(60):
        task = shims.make(["/bin/sh", "-c", "sleep 0.001 & exit 5" if number % 2 else "exit 5"])
        shims.hand_over(task)
        seen = ["unstarted"]
        while seen[-1] != "ended":
            look = task.look(settle=number % 3 == 0)
            assert stages.index(look.stage) >= stages.index(seen[-1]), seen
            seen.append(look.stage)
            if look.end is not None:
                assert look.end["how"] == {"code": 5}, seen


def test_what_a_killed_shim_left_is_found_and_stopped(shims: Shims) -> None:
    """Members of its process session and all that have its mark: without a code, the task is lost, its tree isn't."""
    script = "trap '' TERM; setsid sleep 600 & env -i sleep 600 & echo; while :; do sleep 600; done"
    task, other = shims.shell(script), shims.start("/bin/sleep", "600")
    task.said()
    until(lambda: len(tree.below(task.shim["pid"])) == 4)
    below = {each.pid: each.start for each in tree.below(task.shim["pid"])}
    shim = task.kill_shim()
    look = task.look(settle=True)
    assert (look.end, look.is_tree_empty) == ({"lost": "its shim was killed"}, False)
    assert look.shim is not None
    assert shim == {name: look.shim[name] for name in shim}
    found = survivors.find(task.id, shim)
    assert {each["pid"]: each["start"] for each in found} == below
    assert sorted(each["command"] for each in found) == ["/bin/sh -c " + script, *3 * ["sleep 600"]]
    assert survivors.stop(task.id, shim, grace=0.1) == []
    assert not any(map(tree.is_alive, below, below.values()))
    assert other.look().stage == "running"
    other.stop(0.0)
    other.wait()


def test_a_shim_killed_after_its_command_ended_has_said_how(shims: Shims) -> None:
    """The code stands; what was left is found as well as after a loss, and a stop of it changes no record."""
    task = shims.shell("sleep 600 & exit 7")
    until(lambda: task.look().stage == "left")
    shim = task.kill_shim()
    look = task.look(settle=True)
    assert look.end is not None
    assert (look.stage, look.end["how"], look.is_tree_empty) == ("ended", {"code": 7}, False)
    assert [each["pid"] for each in look.end["survivors"]] == [each["pid"] for each in survivors.find(task.id, shim)]
    assert survivors.stop(task.id, shim, grace=1.0) == []
    assert task.look() == look


def test_an_order_reaches_the_very_shim_or_nobody(shims: Shims) -> None:
    """A process that has the shim's pid, but not its start or not its boot, gets no signal."""
    task = shims.start("/bin/sleep", "600")
    bystander = subprocess.Popen(["/bin/sleep", "600"])
    identity = own_identity(bystander.pid)
    for changed in ({"start": identity["start"] + 1}, {"boot": "another"}):
        assert not control.order_stop(task.path, {**identity, **changed}, grace=0.0)
        assert survivors.stop("task-of-nobody", {**identity, **changed}, grace=0.0) == []
    assert not tree.send_signal(identity["pid"], identity["start"] + 1, signal.SIGKILL)
    assert bystander.poll() is None
    assert task.look().stage == "running"
    bystander.kill()
    bystander.wait()
    assert not tree.send_signal(identity["pid"], identity["start"], signal.SIGKILL)
    task.stop(0.0)
    task.wait()


@pytest.fixture
def orphans() -> Iterator[None]:
    """The test's process adopts what a shim, or any other child, leaves behind, and reaps it."""
    own = {child.pid for child in tree.children(os.getpid())}
    libc = ctypes.CDLL(None)
    libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    yield
    libc.prctl(36, 0, 0, 0, 0)
    for adopted in {child.pid for child in tree.children(os.getpid())} - own:
        os.waitpid(adopted, 0)


@pytest.mark.root
@pytest.mark.usefixtures("orphans")
def test_a_process_that_got_the_pid_of_a_dead_shim_is_no_survivor(shims: Shims) -> None:
    """It leads a process session of the same number, and neither it nor its children are the task's."""
    task = shims.start("/bin/sleep", "600")
    shim = task.kill_shim()
    os.kill(task.leader, signal.SIGKILL)
    os.waitpid(task.leader, 0)  # unreaped it would keep the number of its session
    # No pid comes back within a tick of the clock by itself: 30,000 processes would have to begin meanwhile.
    until(lambda: time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") > shim["start"] + 1)
    stranger = _start_with_pid(shim["pid"])
    try:
        found = tree.process_of(stranger.pid)
        assert found is not None
        assert (found.pid, found.session) == (shim["pid"], shim["pid"])
        (child,) = until(lambda: tree.children(stranger.pid))
        assert child.session == shim["pid"]
        assert survivors.find(task.id, shim) == []
        assert survivors.stop(task.id, shim, grace=0.0) == []
        assert not control.order_stop(task.path, shim, grace=0.0)
        assert task.look().is_lost
        assert stranger.poll() is None
        assert tree.is_alive(child.pid, child.start)
    finally:
        os.killpg(stranger.pid, signal.SIGKILL)
        stranger.wait()


def _start_with_pid(pid: int) -> subprocess.Popen[bytes]:
    """Start a process with this pid, which is free."""
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        try:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        except OSError as error:
            pytest.skip(f"the next pid can't be chosen here: {error}")
        process = subprocess.Popen(
            ["/bin/sh", "-c", "read x || exit; sleep 600 & wait"], stdin=PIPE, start_new_session=True
        )
        assert process.stdin is not None
        with process.stdin:
            if process.pid == pid:
                process.stdin.write(b"\n")
                return process
        process.wait()
    pytest.skip("another process was always faster")


def test_what_another_stores_task_of_the_same_id_runs_is_left_alone(shims: Shims, tmp_path: Path) -> None:
    """Ids follow from keys, so two stores may have the same; neither finds, or stops, what is the other's."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    task = shims.start("/bin/sleep", "600")
    with closing(Shims(elsewhere)) as others:
        twin = others.start("/bin/sleep", "600", id=task.id)
        shim, leader = task.shim, task.leader
        task.kill_shim()
        assert [each["pid"] for each in survivors.find(task.id, shim)] == [leader]
        assert survivors.stop(task.id, shim, grace=5.0) == []
        assert twin.look().stage == "running"
        twin.stop(0.0)
        twin.wait()


def test_a_task_of_another_boot_is_lost_with_all_its_processes(shims: Shims) -> None:
    """After the machine went down nothing of it lives, and one that can't be known to have begun is not begun."""
    task = shims.start("/bin/sleep", "600")
    run = directory.read_map(f"{task.path}/run.json")
    task.kill_shim()
    assert run is not None
    directory.write_whole(f"{task.path}/run.json", {**run, "boot": "another"})
    look = task.look()
    assert (look.end, look.is_tree_empty) == ({"lost": "the machine went down"}, True)
    assert survivors.find(task.id, {**run, "boot": "another"}) == []
    unstarted = shims.make(["/bin/true"])
    spec = directory.read_map(f"{unstarted.path}/spec.json")
    directory.write_whole(f"{unstarted.path}/spec.json", {**(spec or {}), "boot": "another"})
    assert unstarted.look(settle=True).end == {"lost": "the machine went down"}
    shims.hand_over(unstarted)
    shims.catch_up()
    assert unstarted.look().end == {"lost": "the machine went down"}


def test_whoever_settles_and_whoever_runs_a_task_exclude_each_other(shims: Shims) -> None:
    """A shim waits while its task's lock is taken, and a task that was settled as lost is run by none."""
    task = shims.make(["/bin/true"])
    lock = directory.open_lock(task.path)
    assert directory.take_lock(lock)
    shims.hand_over(task)
    until(lambda: tree.children(shims.process.pid))
    assert task.look().stage == "running"
    assert not os.path.exists(f"{task.path}/run.json")
    os.close(lock)
    assert task.wait()["how"] == {"code": 0}
