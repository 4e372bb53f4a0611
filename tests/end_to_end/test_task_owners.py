"""End to end: tasks that end with their owner and those that don't, and how long the node stays for either."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.actors.client.asking import ask_stop
from turnkeeper.actors.node.tasks.owners import COME_BACK_SECONDS
from turnkeeper.runtime.identity import process_state
from turnkeeper.runtime.tasks import directory
from turnkeeper.storage.lock import store_is_held

from ..served_tasks import TaskStore, events_of, fifo, marked_processes, row_of, task_store, types_of
from ..serving import DEADLINE_SECONDS, eventually, stopped

KILLED_SECONDS = 5.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TaskStore]:
    """A served store of its own, of whose tasks nothing may be left."""
    with task_store(tmp_path / "store") as served:
        yield served


def host(store: TaskStore, *, keep: bool = False, forks: bool = False) -> tuple[subprocess.Popen[str], str]:
    """Start a process that attaches and starts a task, and give it with the task's id; with `forks` a fork of it has
    its connection, too.
    """
    program = f"""
import os, sys, time
from pathlib import Path
from tests.served_tasks import TaskClient
client = TaskClient(Path({str(store.path)!r}))
task = client.shell("exec sleep 100", keep={keep})
if {forks} and os.fork() == 0:
    os.close(1)
    time.sleep(30)
    os._exit(0)
print(task, flush=True)
time.sleep(1000)
"""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / '.import'}:{root}"}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process, and reap it."""
    process.kill()
    process.communicate()


# -- Owners that leave


def test_what_a_runtime_owns_ends_when_it_says_goodbye(store: TaskStore) -> None:
    """It is stopped by its owner, with all that it started, before the goodbye is answered; another's goes on."""
    client, other = store.client(), store.client()
    task = client.shell("trap '' TERM; sleep 100 & sleep 100")
    others = other.shell("exec sleep 100")
    assert client.bye() == "staying"
    assert (row_of(store.path, task)["state"], row_of(store.path, task)["by"]) == ("ended", "owner")
    assert ("task/stopping", {"by": "owner", "grace": 2.0}) in events_of(store.path, task)
    assert other.live().keys() == {others}
    assert len(marked_processes(store.path)) == 1
    assert other.bye() == "ending"
    other.wait_for_end()
    assert marked_processes(store.path) == []


def test_what_a_runtime_owns_can_be_ended_before_it_leaves(store: TaskStore) -> None:
    """`end_tasks` stops these and no others, and returns when that is recorded."""
    client, other = store.client(), store.client()
    owned, kept, others = (
        client.shell("exec sleep 100"),
        client.shell("exec sleep 100", keep=True),
        other.shell("sleep 9"),
    )
    assert client.request("end_tasks").keys() == {"re"}
    assert row_of(store.path, owned)["by"] == "owner"
    assert client.live().keys() == {kept, others}
    client.stop(kept)


def test_what_a_runtimes_tasks_left_behind_ends_with_it_too(store: TaskStore) -> None:
    """Of a task that has ended, whose shim lives or was killed, and of one that is lost: none outlives the owner."""
    client = store.client()
    left, orphaned = (client.shell("sleep 100 & exit 3") for _ in range(2))
    lost = client.shell("exec sleep 100")
    client.wait(left), client.wait(orphaned)
    for task in (orphaned, lost):
        os.kill(row_of(store.path, task)["shim"]["pid"], signal.SIGKILL)
    assert client.wait(lost)["state"] == "lost"
    assert len(marked_processes(store.path)) == 3
    assert client.request("end_tasks").keys() == {"re"}
    assert marked_processes(store.path) == []
    assert [row_of(store.path, task)["by"] for task in (left, orphaned, lost)] == ["itself", "itself", "unknown"]


def test_what_a_killed_host_left_without_a_shim_is_stopped_by_the_next_node(store: TaskStore) -> None:
    """Nobody else can: the task is lost, and what it started lives as long as its owner does, and no longer."""
    store.client().shell("exit 0")
    process, task = host(store)
    store.kill_node(store.writer())
    os.kill(row_of(store.path, task)["shim"]["pid"], signal.SIGKILL)
    store.start_node()
    client = store.client()
    assert client.wait(task)["state"] == "lost"
    assert len(marked_processes(store.path)) == 1
    end(process)
    client.wait(task, tree=True)
    assert marked_processes(store.path) == []


@pytest.mark.parametrize("forks", [False, True], ids=["alone", "with a forked child"])
def test_what_a_killed_host_owned_is_stopped_at_once(store: TaskStore, forks: bool) -> None:
    """A client watches; the host's death is its process's, whoever else has its connection."""
    client = store.client()
    process, task = host(store, forks=forks)
    end(process)
    number = client.begin("wait_task", task=task, tree=True)
    client.connection.settimeout(KILLED_SECONDS)
    assert client.answer(number)["summary"]["by"] == "owner"


def test_a_node_whose_last_client_was_killed_ends_once_its_tasks_have(store: TaskStore) -> None:
    """They are stopped first, and recorded; then nothing of the store runs."""
    process, task = host(store)
    end(process)
    assert store.node.wait(DEADLINE_SECONDS) == 0
    assert row_of(store.path, task)["by"] == "owner"


def test_what_a_killed_host_kept_goes_on(store: TaskStore) -> None:
    """It was asked to outlive its owner."""
    client = store.client()
    process, task = host(store, keep=True)
    end(process)
    client.shell("exit 0")
    assert client.live()[task]["state"] == "running"
    assert client.stop(task)["stopped"] == [task]


@pytest.mark.long
def test_an_owner_whose_connection_ended_may_come_back_for_a_while(store: TaskStore) -> None:
    """Its process lives: it is given some seconds to attach with its token, and only then what it owns is stopped."""
    client, watcher = store.client(), store.client()
    task = client.shell("exec sleep 100")
    client.close()
    back = store.client(client.token)
    number = watcher.begin("wait_task", task=task, tree=False)
    watcher.connection.settimeout(COME_BACK_SECONDS + 2)
    with pytest.raises(TimeoutError):
        watcher.answer(number)
    back.close()
    assert watcher.answer(number)["summary"]["by"] == "owner"


@pytest.mark.long
def test_a_node_waits_for_an_owner_that_may_come_back(store: TaskStore) -> None:
    """With no client left it stays for those seconds, stops what nobody came back for, and ends."""
    client = store.client()
    task = client.shell("exec sleep 100")
    client.close()
    assert store.node.wait(COME_BACK_SECONDS + DEADLINE_SECONDS) == 0
    assert row_of(store.path, task)["by"] == "owner"


# -- Owners of an earlier node


def test_what_a_host_owned_that_died_with_the_node_is_stopped_by_the_next_one(store: TaskStore) -> None:
    """The shim does so by itself, too; whoever is first, it is by the owner, and recorded once."""
    store.client()
    process, task = host(store)
    os.kill(row_of(store.path, task)["shim"]["pid"], signal.SIGSTOP)
    store.kill_node(store.writer())
    end(process)
    os.kill(row_of(store.path, task)["shim"]["pid"], signal.SIGCONT)
    store.start_node()
    assert store.client().wait(task)["by"] == "owner"
    assert types_of(store, task).count("task/ended") == 1


def test_what_a_host_owns_that_lives_is_left_to_it_and_stopped_when_it_dies(store: TaskStore) -> None:
    """It may be stopped or slow, and not have come back yet. The node sees to it, whatever its shim does meanwhile."""
    store.client()
    process, task = host(store)
    store.kill_node(store.writer())
    store.start_node()
    client = store.client()
    assert client.live()[task]["state"] == "running"
    with stopped(row_of(store.path, task)["shim"]["pid"]):
        end(process)
        eventually(lambda: ("task/stopping", {"by": "owner", "grace": 5.0}) in events_of(store.path, task))
    assert client.wait(task)["by"] == "owner"


def test_a_task_that_never_began_isnt_begun_for_an_owner_that_is_dead(store: TaskStore, tmp_path: Path) -> None:
    """It ends without having run, by its owner."""
    client = store.client()
    client.shell("exit 0")
    process, _ = host(store)
    token = "of a host that dies"
    program = f"""
from pathlib import Path
from tests.served_tasks import TaskClient
client = TaskClient(Path({str(store.path)!r}), {token!r})
client.begin_start("/bin/sh", "-c", "echo ran > {tmp_path}/ran", task="task-waiting")
print("asked", flush=True)
client.receive()
"""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / '.import'}:{root}"}
    end(process)
    with stopped(store.spawner()):
        asking = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, text=True)
        eventually(lambda: store.handed_over() == b"task-waiting")
        store.kill_node(store.writer())
        end(asking)
        store.start_node()
        summary = store.client().wait("task-waiting")
    assert (summary["by"], summary["how"]) == ("owner", {"not_started": "its owner ended before it began"})
    assert not (tmp_path / "ran").exists()


# -- How long the node stays


def test_a_node_stays_for_kept_tasks_and_ends_with_the_last_of_them(store: TaskStore) -> None:
    """The goodbye says so; nobody is attached, and still the end is recorded."""
    client = store.client()
    task = client.shell("read nothing < pipe; exit 3", keep=True, **fifo(store.path))
    assert client.bye() == "staying"
    (store.path / "pipe").write_text("go\n")
    assert store.node.wait(DEADLINE_SECONDS) == 0
    assert row_of(store.path, task)["how"] == {"code": 3}


def test_what_an_ended_task_left_behind_keeps_no_node(store: TaskStore) -> None:
    """Survivors may live as long as they like; they are named, and followed by the next node."""
    client = store.client()
    task = client.shell("(read nothing < pipe) & exit 3", keep=True, **fifo(store.path))
    client.wait(task)
    assert client.bye() == "ending"
    assert store.node.wait(DEADLINE_SECONDS) == 0
    (store.path / "pipe").write_text("go\n")
    eventually(lambda: (store.path / "tasks" / task / "exit.json").exists())
    store.start_node()
    store.client().wait(task, tree=True)
    assert types_of(store, task)[-1] == "task/emptied"


def test_a_node_that_finds_kept_tasks_stays_for_them_though_its_starter_leaves(store: TaskStore) -> None:
    """Whoever came first after a crash may go again at once."""
    client = store.client()
    task = client.shell("read nothing < pipe; exit 3", keep=True, **fifo(store.path))
    store.kill_node(store.writer())
    store.start_node()
    assert store.client().bye() == "staying"
    (store.path / "pipe").write_text("go\n")
    assert store.node.wait(DEADLINE_SECONDS) == 0
    assert row_of(store.path, task)["how"] == {"code": 3}


@pytest.mark.parametrize("how", ["stop", "SIGTERM"])
def test_a_node_that_is_told_to_end_leaves_kept_tasks_to_their_shims(store: TaskStore, how: str) -> None:
    """Tasks are no reason to refuse; they go on, and the next node records how they ended."""
    client = store.client()
    task = client.shell("read nothing < pipe; exit 3", keep=True, **fifo(store.path))
    spawner = store.spawner()
    if how == "stop":
        assert ask_stop(str(store.path))["op"] == "refused"  # type: ignore[index]
        assert client.bye() == "staying"
        assert ask_stop(str(store.path))["op"] == "stopping"  # type: ignore[index]
    else:
        store.node.terminate()
    assert store.node.wait(DEADLINE_SECONDS) == 0
    assert not store_is_held(str(store.path))
    assert process_state(spawner) in ("gone", "zombie")
    (store.path / "pipe").write_text("go\n")
    eventually(lambda: (directory.read_map(f"{store.path}/tasks/{task}/exit.json") or {}).get("how") == {"code": 3})
    store.start_node()
    assert store.client().wait(task)["how"] == {"code": 3}
