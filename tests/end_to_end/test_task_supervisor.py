"""End to end: what the node does to start a task once, to say how it ended, and to keep nothing of it afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.protocol import WRITER_SOCKET
from turnkeeper.runtime.identity import process_state
from turnkeeper.runtime.tasks import directory

from ..served import kill
from ..served_tasks import TaskStore, begin_session, events_of, fifo, row_of, task_store, types_of
from ..serving import FrameClient, eventually, first_append, stopped

CGROUPS = Path("/sys/fs/cgroup")
IDS: dict[str, Any] = {"task": "task-of-a-key-0123456789ab", "key": "a key", "token": None}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TaskStore]:
    """A served store of its own, of whose tasks nothing may be left."""
    with task_store(tmp_path / "store") as served:
        yield served


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """Mount a file system that is hardly larger than the reserve that a store keeps."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=90m", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@contextmanager
def no_more_processes(pid: int) -> Iterator[None]:
    """Keep a process from making others meanwhile."""
    home = next((each for each in (CGROUPS / "pids", CGROUPS) if (each / "cgroup.procs").exists()), CGROUPS)
    group = home / "turnkeeper-test"
    try:
        group.mkdir()
        (group / "pids.max").write_text("1")
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        pytest.skip(f"processes can't be limited here: {error}")
    try:
        yield
    finally:
        (home / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def children_of(pid: int) -> list[int]:
    """List the children of a process of one thread."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# -- Starting


def test_a_task_is_recorded_before_it_runs_and_when_it_does_and_once_it_has_ended(store: TaskStore) -> None:
    """Three records in this order, the last with the true exit code; the environment's values are in none of them."""
    client = store.client()
    env = {b"PATH": os.environb[b"PATH"], b"SECRET": b"hunter2"}
    task = client.shell('echo "$SECRET"; exit 7', env=env, environment=["SECRET"])
    summary = client.wait(task, tree=True)
    assert (summary["state"], summary["how"], summary["by"]) == ("ended", {"code": 7}, "itself")
    assert types_of(store, task) == ["task/requested", "task/started", "task/ended"]
    assert (store.path / "tasks" / task / "output.log").read_text() == "hunter2\n"
    assert "hunter2" not in json.dumps(events_of(store.path, task))
    assert not (store.path / "tasks" / task / "env.json").exists()


def test_a_start_that_the_node_sees_late_is_not_said_to_be_behind_the_end(store: TaskStore) -> None:
    """A short task is over before the node can look: its start is when it was."""
    client = store.client()
    client.shell("exit 0")
    with stopped(store.spawner()):
        task, number = client.begin_start("/bin/sh", "-c", "exit 7")
        eventually(lambda: store.handed_over() == task.encode())
        os.kill(store.node.pid, signal.SIGSTOP)
    eventually(lambda: (directory.read_map(f"{store.path}/tasks/{task}/exit.json") or {}).get("how") == {"code": 7})
    os.kill(store.node.pid, signal.SIGCONT)
    assert "error" not in client.answer(number)
    row = row_of(store.path, task)
    assert row["requested"] <= row["started"] <= row["ended"]


def test_a_start_that_is_asked_for_again_is_one_start(store: TaskStore, tmp_path: Path) -> None:
    """While it runs, once it has ended, from another runtime: the same id with the same arguments starts nothing."""
    script = f"echo began >> {tmp_path}/began; read nothing; sleep 0.05"
    client, other = store.client(), store.client()
    both = [client.begin_start("/bin/sh", "-c", script, **IDS) for _ in range(2)]
    answers = [client.answer(number) for _, number in both]
    assert [answer["summary"]["pid"] for answer in answers] == [answers[0]["summary"]["pid"]] * 2
    client.wait(IDS["task"])
    other.start("/bin/sh", "-c", script, **IDS)
    assert (tmp_path / "began").read_text() == "began\n"
    assert types_of(store, IDS["task"]) == ["task/requested", "task/started", "task/ended"]


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "once it has ended"])
def test_the_same_key_with_other_arguments_is_refused(store: TaskStore, is_running: bool) -> None:
    """The error is a conflict that names the key and the task; the task is what it was."""
    client = store.client()
    script = "exec sleep 100" if is_running else "exit 0"
    client.shell(script, **IDS)
    if not is_running:
        client.wait(IDS["task"], tree=True)
    _, number = client.begin_start("/bin/sh", "-c", "echo another", **IDS)
    assert client.answer(number)["error"] == "TaskDiffers"
    assert (IDS["task"] in client.live()) is is_running


def test_the_same_key_at_the_same_time_with_other_arguments_is_refused(store: TaskStore, tmp_path: Path) -> None:
    """Of two that are asked for before either is recorded, one counts and runs; the other hears of it."""
    client = store.client()
    client.shell("exit 0")
    with stopped(store.writer()):
        first = client.begin_start("/bin/sh", "-c", f"echo 1 >> {tmp_path}/ran", **IDS)
        second = client.begin_start("/bin/sh", "-c", f"echo 2 >> {tmp_path}/ran", **IDS)
        eventually(lambda: (store.path / "tasks" / IDS["task"] / "spec.json").exists())
    errors = [client.answer(number).get("error") for _, number in (first, second)]
    assert sorted(errors, key=str) == [None, "TaskDiffers"]
    client.wait(IDS["task"], tree=True)
    assert (tmp_path / "ran").read_text() == f"{1 + errors.index(None)}\n"


def test_an_id_that_is_a_sessions_is_refused_and_nothing_is_left(store: TaskStore) -> None:
    """Ids are of one kind; an older session may have one that looks like a task's."""
    client = store.client()
    with FrameClient(store.path, WRITER_SOCKET) as writer:
        writer.ask([1, [first_append("task-force-7f3a", kind="session")]])
    _, number = client.begin_start("/bin/true", task="task-force-7f3a")
    assert client.answer(number)["error"] == "WrongKind"
    assert client.request("wait_task", task="task-force-7f3a", tree=False)["error"] == "WrongKind"
    assert client.request("stop_tasks", tasks=["task-force-7f3a"], grace=1)["error"] == "WrongKind"
    assert not (store.path / "tasks" / "task-force-7f3a").exists()


def test_what_the_system_refuses_to_run_is_a_task_that_never_started(store: TaskStore) -> None:
    """The program went away behind the checks: recorded as what it is, without a start."""
    client = store.client()
    _, number = client.begin_start("/nonexistent/program", task="task-missing")
    summary = client.answer(number)["summary"]
    assert summary["state"] == "ended"
    assert "No such file" in summary["how"]["not_started"]
    assert types_of(store, "task-missing") == ["task/requested", "task/ended"]


def test_a_directory_that_cant_be_made_is_a_refusal_in_one_line(store: TaskStore) -> None:
    """A file stands where the tasks' directory should be; nothing is recorded and nothing is left."""
    (store.path / "tasks").write_text("")
    client = store.client()
    _, number = client.begin_start("/bin/true", task="task-refused")
    answer = client.answer(number)
    assert answer["error"] == "TaskRefused"
    assert "can't be made" in answer["args"][1]
    (store.path / "tasks").unlink()
    assert client.request("wait_task", task="task-refused", tree=False)["error"] == "NotFound"
    client.start("/bin/true", task="task-refused")


@pytest.mark.root
def test_a_full_disk_refuses_a_start_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    """Whether the directory or the record finds no space; the same start works once there is some."""
    with small_disk(tmp_path / "disk") as disk, task_store(disk / "store") as store:
        client = store.client()
        client.shell("exit 0")
        ballast = disk / "ballast"
        for left in (16 * 4096, 1024 * 4096):
            with open(ballast, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free - left)
            _, number = client.begin_start("/bin/true", task="task-refused", env={b"A": b"x" * 100_000})
            assert client.answer(number)["error"] == ("TaskRefused" if left < 100_000 else "StoreFull")
            assert not (store.path / "tasks" / "task-refused").exists()
            ballast.unlink()
        client.start("/bin/true", task="task-refused")


@pytest.mark.root
def test_an_end_on_a_full_disk_is_told_at_once_and_recorded_when_there_is_space(tmp_path: Path) -> None:
    """Who waits isn't kept waiting for the disk; exactly one terminal record comes, and one notice."""
    with small_disk(tmp_path / "disk") as disk, task_store(disk / "store") as store:
        client = store.client()
        begin_session(store, "a-session")
        task = client.shell("read nothing < pipe; exit 3", session="a-session", **fifo(tmp_path))
        ballast = disk / "ballast"
        with open(ballast, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free - 4 * 1024 * 1024)
        (tmp_path / "pipe").write_text("go\n")
        assert client.wait(task)["how"] == {"code": 3}
        assert types_of(store, task) == ["task/requested", "task/started"]
        ballast.unlink()
        client.request("wait_task", task=task, tree=True)
        assert types_of(store, task) == ["task/requested", "task/started", "task/ended"]
        assert [type for type, _ in events_of(store.path, "inbox-a-session")] == ["inbox/message"]


@pytest.mark.root
def test_a_fork_that_fails_is_a_task_that_never_started(store: TaskStore) -> None:
    """The system has no process left for it: the record says so, and the next task runs."""
    client = store.client()
    client.shell("exit 0")
    with no_more_processes(store.spawner()):
        _, number = client.begin_start("/bin/true", task="task-refused")
        summary = client.answer(number)["summary"]
    assert summary["state"] == "ended"
    assert "no process could be made for it (Resource temporarily unavailable)" in summary["how"]["not_started"]
    assert types_of(store, "task-refused") == ["task/requested", "task/ended"]
    client.start("/bin/true")


# -- The spawner


def test_a_spawner_that_is_killed_is_followed_by_another(store: TaskStore) -> None:
    """What runs goes on and keeps its end; what was handed over and hadn't begun begins, once."""
    client = store.client()
    task = client.shell("read nothing < pipe; exit 3", **fifo(store.path))
    spawner = store.spawner()
    os.kill(spawner, signal.SIGSTOP)
    waiting = [client.begin_start("/bin/sh", "-c", "echo ran") for _ in range(3)]
    eventually(lambda: len([each for each in client.live().values() if each["state"] == "queued"]) == 3)
    kill(spawner)
    for id, number in waiting:
        assert "error" not in client.answer(number)
        assert client.wait(id)["how"] == {"code": 0}
        assert (store.path / "tasks" / id / "output.log").read_text() == "ran\n"
    assert store.spawner() != spawner
    (store.path / "pipe").write_text("go\n")
    assert client.wait(task)["how"] == {"code": 3}


def test_a_shim_that_is_killed_before_it_could_write_is_followed_by_another(store: TaskStore) -> None:
    """Nothing says that it ever was; the task is handed over again, and runs."""
    client = store.client()
    client.shell("exit 0")
    with stopped(store.spawner()):
        task, number = client.begin_start("/bin/sh", "-c", "exit 4")
        eventually(lambda: store.handed_over() == task.encode())
        lock = directory.open_lock(f"{store.path}/tasks/{task}")
        assert directory.take_lock(lock)
    spawner = store.spawner()
    eventually(lambda: len(children_of(spawner)) == 1)
    kill(*children_of(spawner))
    os.close(lock)
    assert "error" not in client.answer(number)
    assert client.wait(task)["how"] == {"code": 4}


# -- What is left


def test_a_node_keeps_nothing_of_tasks_that_have_finished(store: TaskStore) -> None:
    """After 200 of them it has no descriptor more than after one, and nothing is a zombie."""
    client = store.client()
    client.wait(client.shell("exit 0"), tree=True)
    eventually(lambda: client.live() == {})
    node = store.node.pid
    before = sorted(os.listdir(f"/proc/{node}/fd"))
    for _ in range(10):
        started = [client.begin_start("/bin/true") for _ in range(20)]
        for task, number in started:
            assert "error" not in client.answer(number)
            client.wait(task, tree=True)
    eventually(lambda: client.live() == {})
    assert sorted(os.listdir(f"/proc/{node}/fd")) == before
    assert store.status()["tasks"] == 0
    children = [*children_of(node), *children_of(store.spawner())]
    assert [pid for pid in children if process_state(pid) == "zombie"] == []


def test_status_names_spawner_and_shims(store: TaskStore) -> None:
    """And counts what hasn't finished; a node that never had a task has neither."""
    assert store.status()["pids"]["spawner"] is None
    client = store.client()
    task = client.shell("exec sleep 100")
    status = store.status()
    assert status["tasks"] == 1
    assert status["pids"]["shims"] == [row_of(store.path, task)["shim"]["pid"]]
    assert os.getsid(status["pids"]["spawner"]) == status["pids"]["spawner"]


def test_a_node_without_tasks_loads_nothing_for_them(store: TaskStore) -> None:
    """No index is mapped and no spawner started before the first task, nor is there a socket for shims."""
    client = store.client()
    client.ask({"op": "status"})
    assert "lmdb" not in Path(f"/proc/{store.node.pid}/maps").read_text()
    assert not (store.path / "task.sock").exists()
