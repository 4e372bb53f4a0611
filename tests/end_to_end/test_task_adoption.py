"""End to end: what a new node makes of the tasks that an earlier one left, whichever step that one was killed at."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.protocol import WRITER_SOCKET
from turnkeeper.actors.tasks import records
from turnkeeper.runtime.identity import process_state
from turnkeeper.runtime.tasks import directory, looking

from ..served import kill
from ..served_tasks import TaskStore, begin_session, events_of, fifo, marked_processes, row_of, task_store, types_of
from ..serving import FrameClient, eventually, stopped
from ..stores import make_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TaskStore]:
    """A served store of its own, of whose tasks nothing may be left."""
    with task_store(tmp_path / "store") as served:
        yield served


def counting(store: TaskStore, script: str = "exit 3") -> dict[str, Any]:
    """Give how a task is started that is kept, and says in a file each time that it runs."""
    return {
        "argv": [b"/bin/sh", b"-c", f"echo ran >> {store.path}/../ran; {script}".encode()],
        "program": b"/bin/sh",
        "keep": True,
    }


def runs(store: TaskStore) -> int:
    """Count how often tasks said that they run."""
    place = store.path.parent / "ran"
    return len(place.read_text().splitlines()) if place.exists() else 0


# -- Killed while tasks run


def test_a_store_that_sqlite_keeps_has_the_same_tasks(tmp_path: Path) -> None:
    """What the writer keeps records in is no matter of the supervisor's: start, end, lost, adoption and notice."""
    make_store(tmp_path / "store", "sqlite")
    with task_store(tmp_path / "store") as store:
        begin_session(store, "a-session")
        client = store.client()
        start = fifo(store.path)
        task = client.shell("read nothing < pipe; exit 3", keep=True, session="a-session", **start)
        lost = client.shell("exec sleep 100", keep=True)
        store.kill_node(store.writer(), store.spawner(), row_of(store.path, lost)["shim"]["pid"])
        store.start_node()
        client = store.client()
        assert client.wait(lost)["state"] == "lost"
        client.stop(lost, grace=0.1)
        (store.path / "pipe").write_text("go\n")
        assert client.wait(task)["how"] == {"code": 3}
        assert types_of(store, task) == ["task/requested", "task/started", "task/ended"]
        assert types_of(store, lost) == ["task/requested", "task/started", "task/ended", "task/emptied"]
        assert len(events_of(store.path, "inbox-a-session")) == 1


@pytest.mark.parametrize("who", ["node", "node and writer", "node, writer and spawner"])
def test_a_task_outlives_whoever_is_killed_and_keeps_its_end(store: TaskStore, who: str) -> None:
    """It runs on, the next node adopts it, and its exit code is known: one start, one end."""
    client = store.client()
    task = client.shell("read nothing < pipe; exit 3", keep=True, **fifo(store.path))
    others = {"node": [], "node and writer": [store.writer()]}.get(who, [store.writer(), store.spawner()])
    store.kill_node(*others)
    store.start_node()
    client = store.client()
    assert client.live()[task]["state"] == "running"
    assert client.live()[task]["pid"] == row_of(store.path, task)["pid"]
    (store.path / "pipe").write_text("go\n")
    assert client.wait(task)["how"] == {"code": 3}
    assert types_of(store, task) == ["task/requested", "task/started", "task/ended"]


@pytest.mark.parametrize(("script", "how"), [("exit 5", {"code": 5}), ("kill -9 $$", {"signal": 9})])
def test_a_task_that_ends_while_all_else_is_dead_has_its_true_end(
    store: TaskStore, script: str, how: dict[str, int]
) -> None:
    """The shim has written it down; the next node records it, and tells the session once."""
    begin_session(store, "a-session")
    client = store.client()
    start = fifo(store.path)
    task = client.shell(f"read nothing < pipe; {script}", keep=True, session="a-session", **start)
    store.kill_node(store.writer(), store.spawner())
    (store.path / "pipe").write_text("go\n")
    eventually(lambda: (store.path / "tasks" / task / "exit.json").exists())
    store.start_node()
    summary = store.client().wait(task)
    assert (summary["state"], summary["how"]) == ("ended", how)
    assert summary["by"] == ("itself" if "code" in how else "unknown")
    assert types_of(store, task) == ["task/requested", "task/started", "task/ended"]
    ((_, message),) = events_of(store.path, "inbox-a-session")
    assert (message["type"], message["data"]["task"], message["data"]["how"]) == ("task/ended", task, how)


def test_a_task_whose_shim_was_killed_is_lost_and_what_it_left_is_named_and_stopped(store: TaskStore) -> None:
    """Nobody knows how it ended: that is said, and never an exit code. Its processes are found, in a session of their
    own too, and end when it is stopped.
    """
    client = store.client()
    task = client.shell("setsid sleep 100 & sleep 100 & echo two; wait", keep=True)
    eventually(lambda: (store.path / "tasks" / task / "output.log").read_text() == "two\n")
    shim = row_of(store.path, task)["shim"]["pid"]
    kill(shim)
    summary = client.wait(task)
    assert (summary["state"], summary["why"]) == ("lost", "its shim was killed")
    assert "how" not in summary
    assert sorted(each["pid"] for each in summary["survivors"]) == marked_processes(store.path)
    assert len(summary["survivors"]) == 3
    assert client.stop(task, grace=1)["stopped"] == [task]
    assert marked_processes(store.path) == []
    assert types_of(store, task) == ["task/requested", "task/started", "task/ended", "task/emptied"]
    assert client.live() == {}


def test_survivors_of_a_shim_that_was_killed_with_all_else_are_found_by_the_next_node(store: TaskStore) -> None:
    """They are named in the one terminal record, and when the last of them has ended, that is recorded too."""
    client = store.client()
    task = client.shell("sleep 100 & echo $!; wait", keep=True)
    eventually(lambda: (store.path / "tasks" / task / "output.log").read_text().endswith("\n"))
    store.kill_node(row_of(store.path, task)["shim"]["pid"], store.writer(), store.spawner())
    store.start_node()
    client = store.client()
    assert client.wait(task)["state"] == "lost"
    left = client.live()[task]["survivors"]
    assert [each["pid"] for each in left] == marked_processes(store.path)
    for each in left:
        os.kill(each["pid"], signal.SIGKILL)
    client.wait(task, tree=True)
    assert types_of(store, task)[-2:] == ["task/ended", "task/emptied"]


def test_survivors_of_an_ended_task_are_followed_by_the_next_node(store: TaskStore) -> None:
    """The command has ended and left a process; the shim lives on, and so does the record's promise."""
    client = store.client()
    task = client.shell("(read nothing < pipe) & exit 3", keep=True, **fifo(store.path))
    assert client.wait(task)["how"] == {"code": 3}
    assert len(client.live()[task]["survivors"]) == 1
    store.kill_node(store.writer(), store.spawner())
    store.start_node()
    client = store.client()
    number = client.begin("wait_task", task=task, tree=True)
    assert len(client.live()[task]["survivors"]) == 1
    (store.path / "pipe").write_text("go\n")
    assert client.answer(number)["summary"]["how"] == {"code": 3}
    assert types_of(store, task) == ["task/requested", "task/started", "task/ended", "task/emptied"]


# -- Killed between two steps of a start


def test_a_directory_that_no_record_followed_is_removed_and_the_start_runs_once(store: TaskStore) -> None:
    """Killed behind the directory, before the record: nothing of it is left, and asked again it is a new task."""
    client = store.client()
    client.wait(client.shell("exit 0"), tree=True)
    writer = store.writer()
    with stopped(writer):
        task, _ = client.begin_start("/bin/true", task="task-begun", **counting(store))
        eventually(lambda: (store.path / "tasks" / task / "spec.json").exists())
        store.kill_node(writer)
        store.start_node()
    client = store.client()
    assert client.live() == {}
    assert not (store.path / "tasks" / task).exists()
    assert client.request("wait_task", task=task, tree=False)["error"] == "NotFound"
    client.start("/bin/true", task="task-begun", **counting(store))
    assert client.wait(task)["how"] == {"code": 3}
    assert runs(store) == 1


def test_a_directory_that_nobody_knows_and_somebody_locks_is_left_alone(store: TaskStore) -> None:
    """It may be another's; it is no task of this store, and stays as it is."""
    store.client().shell("exit 0")
    store.kill_node(store.writer())
    place = directory.make(str(store.path / "tasks"), "task-of-another", {"argv": []}, {})
    lock = directory.open_lock(place)
    assert directory.take_lock(lock)
    shutil.copytree(place, store.path / "tasks" / "task-unlocked")
    (store.path / "tasks" / "not a task").mkdir()
    store.start_node()
    assert store.client().live() == {}
    assert sorted(os.listdir(place)) != []
    assert not (store.path / "tasks" / "task-unlocked").exists()
    assert (store.path / "tasks" / "not a task").exists()
    os.close(lock)


def test_a_start_whose_pid_no_file_tells_is_recorded_all_the_same(store: TaskStore) -> None:
    """The disk had no room for the second run.json, say: after a moment the shim's child is known to be the command."""
    client = store.client()
    client.shell("exit 0")
    spawner = store.spawner()
    with stopped(spawner):
        task, number = client.begin_start("/bin/sleep", "100")
        eventually(lambda: store.handed_over() == task.encode())
        os.kill(store.node.pid, signal.SIGSTOP)
    place = f"{store.path}/tasks/{task}/run.json"
    eventually(lambda: "leader" in (directory.read_map(place) or {}))
    run = directory.read_map(place) or {}
    leader = run.pop("leader")
    directory.write_whole(place, run)
    os.kill(store.node.pid, signal.SIGCONT)
    assert client.answer(number)["summary"]["pid"] == leader["pid"]


@pytest.mark.parametrize("asks_again", [True, False], ids=["asked again", "not asked again"])
def test_a_task_that_was_recorded_and_never_begun_begins_once(store: TaskStore, asks_again: bool) -> None:
    """Killed while it was on its way to the spawner, or in a spawner that wakes up later and forks it, too."""
    client = store.client()
    client.shell("exit 0")
    spawner = store.spawner()
    with stopped(spawner):
        task, _ = client.begin_start("/bin/true", task="task-recorded", **counting(store))
        eventually(lambda: store.handed_over() == task.encode())
        store.kill_node(store.writer())
        store.start_node()
        client = store.client()
        if asks_again:
            client.start("/bin/true", task="task-recorded", **counting(store))
        assert client.wait(task)["how"] == {"code": 3}
    eventually(lambda: process_state(spawner) in ("gone", "zombie"))
    assert runs(store) == 1
    assert types_of(store, task) == ["task/requested", "task/started", "task/ended"]


def test_a_start_that_was_never_recorded_is_recorded_by_the_next_node(store: TaskStore) -> None:
    """Killed behind the fork, before the record of it: the task runs, and asked again its pid is given."""
    client = store.client()
    client.shell("exit 0")
    writer, spawner = store.writer(), store.spawner()
    os.kill(spawner, signal.SIGSTOP)
    start = counting(store, "read nothing < pipe; exit 3") | fifo(store.path)
    task, _ = client.begin_start("/bin/true", task="task-recorded", **start)
    eventually(lambda: store.handed_over() == task.encode())
    os.kill(writer, signal.SIGSTOP)
    os.kill(spawner, signal.SIGCONT)
    eventually(lambda: "leader" in (directory.read_map(f"{store.path}/tasks/{task}/run.json") or {}))
    store.kill_node(writer)
    assert types_of(store, task) == ["task/requested"]
    store.start_node()
    client = store.client()
    client.start("/bin/true", task="task-recorded", **start)
    run = directory.read_map(f"{store.path}/tasks/{task}/run.json")
    assert run is not None
    assert client.live()[task]["pid"] == run["leader"]["pid"]
    (store.path / "pipe").write_text("go\n")
    assert client.wait(task)["how"] == {"code": 3}
    assert types_of(store, task) == ["task/requested", "task/started", "task/ended"]
    assert runs(store) == 1


def test_a_task_that_began_and_ended_while_nothing_could_be_recorded_has_both_records(store: TaskStore) -> None:
    """Killed behind the fork; when the next node comes the task is over, and its start stands before its end."""
    client = store.client()
    client.shell("exit 0")
    writer, spawner = store.writer(), store.spawner()
    with stopped(spawner):
        task, _ = client.begin_start("/bin/true", task="task-recorded", **counting(store))
        eventually(lambda: store.handed_over() == task.encode())
        os.kill(writer, signal.SIGSTOP)
    eventually(lambda: (store.path / "tasks" / task / "exit.json").exists())
    store.kill_node(writer)
    store.start_node()
    summary = store.client().wait(task)
    assert (summary["how"], isinstance(summary["pid"], int)) == ({"code": 3}, True)
    assert types_of(store, task) == ["task/requested", "task/started", "task/ended"]
    assert runs(store) == 1


def test_an_end_that_was_never_recorded_is_recorded_by_the_next_node_once(store: TaskStore) -> None:
    """Killed while the record of it was on its way: whether the writer had stored it or not, there is one."""
    begin_session(store, "a-session")
    client = store.client()
    start = fifo(store.path)
    task = client.shell("read nothing < pipe; exit 3", keep=True, session="a-session", **start)
    writer = store.writer()
    with stopped(writer):
        (store.path / "pipe").write_text("go\n")
        eventually(lambda: (store.path / "tasks" / task / "exit.json").exists())
        os.kill(store.node.pid, signal.SIGKILL)
        store.node.wait()
    store.start_node()
    assert store.client().wait(task)["how"] == {"code": 3}
    assert types_of(store, task) == ["task/requested", "task/started", "task/ended"]
    assert len(events_of(store.path, "inbox-a-session")) == 1


# -- Killed between two steps of a stop


def test_a_stop_that_was_recorded_and_never_given_is_given_by_the_next_node(store: TaskStore) -> None:
    """Killed between the record and the order: the task is stopped all the same, and by whom is known."""
    client = store.client()
    task = client.shell("exec sleep 100", keep=True)
    os.kill(store.node.pid, signal.SIGSTOP)
    with FrameClient(store.path, WRITER_SOCKET) as writer:
        post = records.stopping(task, 1, by="stop", grace=0.5)
        fields = {name: getattr(post, name) for name in ("stream", "tail", "key", "header", "patch")}
        assert "results" in writer.ask({"op": "record", "id": 1, "posts": [fields], "notices": []})
    store.kill_node()
    store.start_node()
    summary = store.client().wait(task)
    assert (summary["how"], summary["by"]) == ({"signal": 15}, "stop")
    assert types_of(store, task) == ["task/requested", "task/started", "task/stopping", "task/ended"]


def test_an_order_that_was_written_and_never_signalled_is_signalled_by_the_next_node(store: TaskStore) -> None:
    """Killed between the file and the signal; by whom the task is stopped is what the file says."""
    client = store.client()
    task = client.shell("exec sleep 100", keep=True)
    store.kill_node()
    order = {"do": "stop", "grace": 0.5, "by": "stop"}
    directory.write_whole(f"{store.path}/tasks/{task}/control.json", order)
    store.start_node()
    summary = store.client().wait(task)
    assert (summary["how"], summary["by"]) == ({"signal": 15}, "stop")
    assert types_of(store, task) == ["task/requested", "task/started", "task/stopping", "task/ended"]


# -- What others did to the files


def test_a_copy_of_the_store_leaves_the_tasks_alone_that_run_in_the_first_one(store: TaskStore, tmp_path: Path) -> None:
    """There they are lost, and this is said; nothing that is done in the copy reaches a process of the first one."""
    client = store.client()
    task = client.shell("read nothing < pipe; exit 3", keep=True, **fifo(store.path))
    ignored = shutil.ignore_patterns("*.sock", "pipe")
    shutil.copytree(store.path, tmp_path / "copy", ignore=ignored)
    with task_store(tmp_path / "copy") as copy:
        assert (copy.client().wait(task)["state"], copy.client().wait(task)["why"]) == ("lost", looking.COPIED)
        assert copy.client().stop(task)["already_ended"] == [task]
        assert client.live()[task]["state"] == "running"
        (store.path / "pipe").write_text("go\n")
        assert client.wait(task, tree=True)["how"] == {"code": 3}


def test_a_task_whose_directory_was_deleted_goes_on_and_can_be_stopped(store: TaskStore) -> None:
    """It says that its files are gone; its end can't be known, and is said to be lost with them."""
    client = store.client()
    task = client.shell("exec sleep 100", keep=True)
    shutil.rmtree(store.path / "tasks" / task)
    store.kill_node(store.writer(), store.spawner())
    store.start_node()
    client = store.client()
    eventually(lambda: client.live()[task].get("gone") == "files deleted")
    assert client.live()[task]["state"] == "running"
    assert client.stop(task, grace=1)["stopped"] == [task]
    summary = client.wait(task)
    assert (summary["state"], summary["why"]) == ("lost", "directory deleted")


def test_tasks_whose_directories_are_all_gone_are_lost_at_the_first_look(store: TaskStore) -> None:
    """With nothing in the store that tells of tasks a node loads nothing for them; the first who asks makes it look."""
    client = store.client()
    task = client.shell("exec sleep 100", keep=True)
    store.kill_node(row_of(store.path, task)["shim"]["pid"], store.writer(), store.spawner())
    for pid in marked_processes(store.path):
        kill(pid)
    shutil.rmtree(store.path / "tasks")
    store.start_node()
    assert store.client().wait(task)["state"] == "lost"


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"leader": {}}', '{"pid": "x", "leader": 1}', "\0"])
def test_files_that_make_no_sense_keep_nobody_from_serving(store: TaskStore, content: str) -> None:
    """Each of a task's files may have been damaged: the task is what can be known of it, and the store is served."""
    client = store.client()
    task = client.shell("(sleep 100) & exit 3", keep=True)
    client.wait(task)
    store.kill_node(row_of(store.path, task)["shim"]["pid"], store.writer(), store.spawner())
    place = store.path / "tasks" / task
    for name in ("spec.json", "run.json", "control.json", "leader.json", "exit.json"):
        (place / name).write_text(content)
    store.start_node()
    client = store.client()
    assert client.wait(task)["how"] == {"code": 3}
    client.stop(task, grace=0.5)
    assert json.dumps(client.live()) == "{}"
