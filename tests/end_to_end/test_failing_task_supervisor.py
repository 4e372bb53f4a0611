"""End to end: what tasks and those who ask about them notice of a process supervisor that fails. Mostly nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.actors import launch
from turnkeeper.actors.protocol import NODE_SOCKET
from turnkeeper.runtime.tasks import directory

from .. import failing_node
from ..served_tasks import TaskStore, events_of, fifo, task_store, types_of
from ..serving import DEADLINE_SECONDS, FrameClient, eventually, stopped

ONCE = ["task/requested", "task/started", "task/ended"]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskStore]:
    """A served store of its own, whose process supervisor may be told to fail; no task may be left."""
    monkeypatch.setattr(launch, "_NODE_FILE", failing_node.__file__)
    with task_store(tmp_path / "store") as served:
        yield served


def let_fail(store: TaskStore, place: str, times: int = 1) -> None:
    """Have the process supervisor fail the next time that it comes there."""
    (store.path / f"fail at {place}").write_text(str(times))


def failures(store: TaskStore) -> int:
    """Count how often it has failed, by node.log."""
    return (store.path / "node.log").read_text().count("the process supervisor failed:\n")


def test_a_task_runs_on_and_who_waits_for_it_is_told_its_end(store: TaskStore) -> None:
    """The next supervisor adopts it: one start, one end, the true exit code, over the connection that asked."""
    client = store.client()
    task = client.shell("read nothing < pipe; exit 3", **fifo(store.path))
    waiting = client.begin("wait_task", task=task, tree=True)
    spawner = store.spawner()
    let_fail(store, "a tick")
    eventually(lambda: failures(store) == 1)
    (store.path / "pipe").write_text("go\n")
    assert client.answer(waiting)["summary"]["how"] == {"code": 3}
    assert types_of(store, task) == ONCE
    assert client.shell("exit 0")
    assert store.spawner() != spawner
    assert "RuntimeError: told to fail at a tick" in (store.path / "node.log").read_text()


def test_a_start_that_it_fails_over_is_one_start(store: TaskStore) -> None:
    """Who asked for it is answered by the next supervisor, and isn't told."""
    client = store.client()
    let_fail(store, "a start")
    task = client.shell("exit 3")
    assert client.wait(task, tree=True)["how"] == {"code": 3}
    assert types_of(store, task) == ONCE
    assert failures(store) == 1


def test_what_is_asked_when_it_fails_is_answered_by_the_next_one(store: TaskStore) -> None:
    """Whether it fails in a task of its own or in its answer; nothing is done twice."""
    client = store.client()
    task = client.shell("exec sleep 100")
    let_fail(store, "a list")
    assert list(client.live()) == [task]
    let_fail(store, "a stop")
    assert client.stop(task)["stopped"] == [task]
    assert [data["by"] for type, data in events_of(store.path, task) if type == "task/stopping"] == ["stop"]
    assert failures(store) == 2


def test_a_start_whose_record_is_under_way_when_it_fails_is_one_start(store: TaskStore) -> None:
    """What the failed one had given the recorder is stored before the next one looks what there is."""
    client = store.client()
    client.shell("exit 0")
    with stopped(store.writer()):
        task, number = client.begin_start("/bin/sh", "-c", f"echo ran >> {store.path}/ran; exit 3")
        eventually(lambda: (store.path / "tasks" / task / directory.SPEC).exists())
        let_fail(store, "a tick")
        eventually(lambda: failures(store) == 1)
    assert "error" not in client.answer(number)
    assert client.wait(task, tree=True)["how"] == {"code": 3}
    assert types_of(store, task) == ONCE
    assert (store.path / "ran").read_text() == "ran\n"


def test_the_node_stays_for_a_kept_task_whose_supervisor_failed(store: TaskStore) -> None:
    """Nobody is attached, but visitors come and go: what there is isn't known until the next one has adopted it."""
    client = store.client()
    task = client.shell("read nothing < pipe", keep=True, **fifo(store.path))
    assert client.bye() == "staying"
    let_fail(store, "an adoption", times=3)
    let_fail(store, "a tick")

    def fails_while_visited() -> bool:
        FrameClient(store.path, NODE_SOCKET).close()
        return failures(store) == 4

    eventually(fails_while_visited)
    assert store.status()["tasks"] == 1
    client = store.client()
    (store.path / "pipe").write_text("go\n")
    assert client.wait(task, tree=True)["how"] == {"code": 0}
    assert store.node.poll() is None


def test_tasks_end_with_the_owner_whom_a_failed_supervisor_knew(store: TaskStore) -> None:
    """Leaving stops what it owns, also when the supervisor fails over that."""
    client = store.client()
    task = client.shell("exec sleep 100")
    let_fail(store, "a stop")
    assert client.bye() == "ending"
    store.node.wait(DEADLINE_SECONDS)
    assert failures(store) == 1
    assert [data["by"] for type, data in events_of(store.path, task) if type == "task/ended"] == ["owner"]


def test_one_that_fails_again_and_again_ends_the_node_and_the_next_node_goes_on(store: TaskStore) -> None:
    """It says so in node.log; the tasks run on meanwhile."""
    client = store.client()
    task = client.shell("read nothing < pipe; exit 3", keep=True, **fifo(store.path))
    let_fail(store, "an adoption", times=100)
    let_fail(store, "a tick")
    assert store.node.wait(DEADLINE_SECONDS) == 0
    log = (store.path / "node.log").read_text()
    assert "the node ends: its process supervisor can't be kept alive: it failed: " in log
    assert "RuntimeError: told to fail at an adoption, and it ended again after 5 restarts within 30 s" in log
    assert failures(store) == 6
    let_fail(store, "an adoption", times=0)
    store.start_node()
    client = store.client()
    (store.path / "pipe").write_text("go\n")
    assert client.wait(task, tree=True)["how"] == {"code": 3}
    assert types_of(store, task) == ONCE
