"""End to end: stopping tasks by way of the node: recorded first, given to the shim, answered when nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.runtime.identity import process_state
from turnkeeper.runtime.tasks import directory

from ..served import kill
from ..served_tasks import TaskStore, begin_session, events_of, fifo, marked_processes, row_of, task_store, types_of
from ..serving import DEADLINE_SECONDS, eventually, stopped

IGNORES_TERM = "trap '' TERM; echo ready; while :; do sleep 0.1; done"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TaskStore]:
    """A served store of its own, of whose tasks nothing may be left."""
    with task_store(tmp_path / "store") as served:
        yield served


def wait_for_output(store: TaskStore, task: str, text: str) -> None:
    """Wait until a task has printed this."""
    eventually(lambda: (store.path / "tasks" / task / "output.log").read_text() == text)


def test_a_stop_is_recorded_ends_the_whole_tree_and_says_which(store: TaskStore) -> None:
    """Children in sessions of their own and those that ignore TERM, too; a bystander isn't touched."""
    client = store.client()
    bystander = subprocess.Popen(["sleep", "100"])
    gentle = client.shell("sleep 100 & setsid sleep 100 & echo ready; wait")
    stubborn = client.shell(IGNORES_TERM)
    ended = client.shell("exit 0")
    client.wait(ended, tree=True)
    for task in (gentle, stubborn):
        wait_for_output(store, task, "ready\n")
    answer = client.stop(gentle, stubborn, ended, grace=0.3)
    assert answer == {"re": answer["re"], "stopped": [gentle, stubborn], "already_ended": [ended], "left": {}}
    assert marked_processes(store.path) == []
    assert [row_of(store.path, task)["how"] for task in (gentle, stubborn)] == [{"signal": 15}, {"signal": 9}]
    for task in (gentle, stubborn):
        assert ("task/stopping", {"by": "stop", "grace": 0.3}) in events_of(store.path, task)
        assert row_of(store.path, task)["by"] == "stop"
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_a_stop_is_recorded_before_the_task_hears_of_it(store: TaskStore) -> None:
    """While the record can't be stored, the task isn't stopped; and then it is."""
    client = store.client()
    task = client.shell("trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    wait_for_output(store, task, "ready\n")
    with stopped(store.writer()):
        number = client.begin("stop_tasks", tasks=[task], grace=5)
        eventually(lambda: client.live()[task]["state"] == "stopping")
        assert directory.read_map(f"{store.path}/tasks/{task}/control.json") is None
    assert client.answer(number)["stopped"] == [task]
    assert (store.path / "tasks" / task / "output.log").read_text().endswith("told\n")
    assert types_of(store, task) == ["task/requested", "task/started", "task/stopping", "task/ended"]


def test_the_first_stop_is_recorded_and_a_later_one_may_be_more_urgent(store: TaskStore) -> None:
    """The second has a shorter grace, and both are answered when the task has ended."""
    client = store.client()
    task = client.shell(IGNORES_TERM)
    wait_for_output(store, task, "ready\n")
    first = client.begin("stop_tasks", tasks=[task], grace=60)
    eventually(lambda: "task/stopping" in types_of(store, task))
    assert client.stop(task, grace=0.1)["stopped"] == [task]
    assert client.answer(first)["stopped"] == [task]
    assert [data for type, data in events_of(store.path, task) if type == "task/stopping"] == [
        {"by": "stop", "grace": 60.0}
    ]


def test_a_task_that_waits_for_the_spawner_is_stopped_without_having_run(store: TaskStore, tmp_path: Path) -> None:
    """No shim begins it afterwards, though it was handed over; whoever waits for its start is answered."""
    client = store.client()
    client.shell("exit 0")
    with stopped(store.spawner()):
        task, number = client.begin_start("/bin/sh", "-c", f"echo ran > {tmp_path}/ran")
        eventually(lambda: store.handed_over() == task.encode())
        assert client.stop(task)["stopped"] == [task]
        assert client.answer(number)["summary"]["state"] == "ended"
    assert row_of(store.path, task)["how"] == {"not_started": "it was stopped before it began"}
    assert types_of(store, task) == ["task/requested", "task/stopping", "task/ended"]
    client.shell("exit 0")
    assert not (tmp_path / "ran").exists()


def test_what_an_ended_task_left_behind_is_stopped(store: TaskStore) -> None:
    """It has ended and is what it was; only the survivors go, and that nothing is left is recorded."""
    client = store.client()
    task = client.shell("sleep 100 & exit 3")
    assert len(client.wait(task)["survivors"]) == 1
    assert client.stop(task)["stopped"] == [task]
    summary = row_of(store.path, task)
    assert (summary["how"], summary["by"], summary.get("survivors")) == ({"code": 3}, "itself", None)
    assert types_of(store, task) == ["task/requested", "task/started", "task/ended", "task/emptied"]


def test_what_a_shim_left_that_died_behind_its_commands_end_is_stopped(store: TaskStore) -> None:
    """The end that it had written counts; what it left is found by session and by mark."""
    client = store.client()
    task = client.shell("setsid sleep 100 & sleep 100 & exit 3")
    assert len(client.wait(task)["survivors"]) == 2
    kill(row_of(store.path, task)["shim"]["pid"])
    assert client.stop(task, grace=0.5)["stopped"] == [task]
    assert marked_processes(store.path) == []
    assert row_of(store.path, task)["how"] == {"code": 3}


def test_a_stop_goes_on_though_the_shim_that_was_told_of_it_is_killed(store: TaskStore) -> None:
    """What the shim left is stopped in its place, and who waits for the stop hears of that."""
    client = store.client()
    task = client.shell("trap 'echo told; test $n && exit; n=1' TERM; echo ready; while :; do sleep 0.05; done")
    wait_for_output(store, task, "ready\n")
    number = client.begin("stop_tasks", tasks=[task], grace=DEADLINE_SECONDS)
    eventually(lambda: (store.path / "tasks" / task / "output.log").read_text().endswith("told\n"))
    kill(row_of(store.path, task)["shim"]["pid"])
    assert client.answer(number)["stopped"] == [task]
    assert row_of(store.path, task)["state"] == "lost"
    assert marked_processes(store.path) == []


def test_the_tasks_of_sessions_are_stopped_by_the_sessions_ids(store: TaskStore) -> None:
    """All unfinished ones of these, and no others."""
    begin_session(store, "a-session")
    client = store.client()
    own = [client.shell("exec sleep 100", session="a-session") for _ in range(2)]
    other = client.shell("exec sleep 100")
    answer = client.request("stop_tasks", tasks=[], sessions=["a-session", "another"], grace=1)
    assert sorted(answer["stopped"]) == sorted(own)
    assert client.live().keys() == {other}
    assert [data["data"]["task"] for _, data in events_of(store.path, "inbox-a-session")] != []


def test_a_stop_that_names_what_is_no_task_stops_nothing(store: TaskStore) -> None:
    """The error names it, and the tasks beside it run on."""
    client = store.client()
    task = client.shell("exec sleep 100")
    answer = client.stop(task, "task-unknown")
    assert (answer["error"], answer["args"]) == ("NotFound", ["task-unknown"])
    assert client.live()[task]["state"] == "running"


def test_who_stops_waiting_for_a_stop_doesnt_stop_it(store: TaskStore) -> None:
    """What was begun goes on when nobody waits for the answer any more; and other answers are given meanwhile."""
    client = store.client()
    task = client.shell(
        "trap 'read nothing < pipe; exit 0' TERM; echo ready; while :; do sleep 0.01; done", **fifo(store.path)
    )
    wait_for_output(store, task, "ready\n")
    number = client.begin("stop_tasks", tasks=[task], grace=30)
    client.send({"op": "forget", "ids": [number, 17, "x"]})
    eventually(lambda: client.live()[task]["state"] == "stopping")
    waiting = client.begin("wait_task", task=task, tree=True)
    (store.path / "pipe").write_text("go\n")
    assert client.answer(waiting)["summary"]["by"] == "stop"
    assert number not in client._answers


def test_a_wait_is_answered_whether_it_is_asked_before_or_after_the_end(store: TaskStore) -> None:
    """From memory or from the journal; of a tree that isn't empty only once it is."""
    client = store.client()
    task = client.shell("(read nothing < pipe) & exit 3", **fifo(store.path))
    tree = client.begin("wait_task", task=task, tree=True)
    assert client.wait(task)["how"] == {"code": 3}
    assert tree not in client._answers
    (store.path / "pipe").write_text("go\n")
    assert client.answer(tree)["summary"]["how"] == {"code": 3}
    eventually(lambda: client.live() == {})
    assert client.wait(task, tree=True) == row_of(store.path, task)


@pytest.mark.root
@pytest.mark.long
def test_what_cant_be_killed_is_named(store: TaskStore) -> None:
    """A process that doesn't react even to KILL: the answer says which, and it is stopped once it can be."""
    group = Path("/sys/fs/cgroup/freezer/turnkeeper-test")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"processes can't be frozen here: {error}")
    client = store.client()
    task = client.shell("exec sleep 100")
    pid = row_of(store.path, task)["pid"]
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        client.connection.settimeout(60)
        answer = client.stop(task, grace=0.1)
        assert (answer["stopped"], answer["left"]) == ([], {task: [pid]})
        assert process_state(pid) != "gone"
    finally:
        (group / "freezer.state").write_text("THAWED")
    assert client.wait(task, tree=True)["how"] == {"signal": signal.SIGTERM}
    group.rmdir()
    assert os.path.exists(store.path)
