"""End to end: what anybody sees of tasks while nobody writes down what becomes of them. Real shims, no node."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.errors import Ambiguous, NotFound, WrongKind
from turnkeeper.actors.tasks import listing
from turnkeeper.actors.tasks.records import TaskRequest, ended, requested, started, stopping
from turnkeeper.actors.tasks.state import TaskState
from turnkeeper.runtime.tasks import survivors, tree
from turnkeeper.storage.backend import Backend, open_reader
from turnkeeper.storage.contract import creation, event
from turnkeeper.storage.requests import Append, Appended, Post
from turnkeeper.storage.store import BackendName

from ..contract.backends import new_store
from ..shims import Shims, Started, until

ENDED = {"how": {"code": 0}, "by": "itself", "survivors": [], "output_bytes": 0, "ended": 7}


class Tasks:
    """A store, its tasks, and the journal of them, in which the test writes what it wants to."""

    def __init__(self, path: Path, backend: Backend, shims: Shims) -> None:
        self.path = path
        self.shims = shims
        self._backend = backend

    def record(self, *posts: Post | Append) -> None:
        """Write records."""
        answers = self._backend.commit(posts)
        assert all(isinstance(answer, Appended) for answer in answers), answers

    def request(self, task: str, **more: Any) -> None:
        """Write down that a task is wanted."""
        asked = {"command": ["sh"], "cwd": "/", "grace": 5.0, "limit": 9, "keep": True, "starter": {}, **more}
        self.record(requested(TaskRequest(id=task, **asked), 5))

    def started(self, task: Started) -> None:
        """Write down that a task is wanted and runs."""
        self.request(task.id)
        self.record(started(task.id, 6, pid=task.leader, shim=task.shim))

    def state(self, task: str, path: Path | None = None) -> TaskState:
        """See a task's state, here or in a copy."""
        with closing(open_reader(str(path or self.path), None if path else self._backend.index_directory)) as reader:
            return listing.state_of(reader, str(path or self.path), task)

    def listed(self, **wanted: Any) -> list[TaskState]:
        """List tasks."""
        with closing(open_reader(str(self.path), self._backend.index_directory)) as reader:
            return listing.list_tasks(reader, str(self.path), **wanted)

    def ids(self, **wanted: Any) -> list[str]:
        """List tasks' ids."""
        return [state.id for state in self.listed(**wanted)]


@pytest.fixture(params=["journal", "sqlite"])
def tasks(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Tasks]:
    """A store of either backend, with a spawner."""
    kept_by: BackendName = request.param
    with new_store(tmp_path / "store", kept_by) as store, closing(Shims(store.path)) as shims:
        yield Tasks(store.path, store.open(), shims)


def files(path: Path) -> dict[str, tuple[int, str]]:
    """Say what lies below a directory: each file's time of change and content."""
    return {
        str(each): (each.stat().st_mtime_ns, hashlib.blake2b(each.read_bytes()).hexdigest())
        for each in path.rglob("*")
        if each.is_file()
    }


def test_a_task_that_waits_is_queued_and_one_that_runs_runs(tasks: Tasks) -> None:
    """As its files say, though the journal knows of nothing but the request; its output is as large as it is now."""
    waiting = tasks.shims.make(["/bin/true"])
    tasks.request(waiting.id)
    assert (tasks.state(waiting.id).state, tasks.state(waiting.id).pid) == ("queued", None)
    running = tasks.shims.shell("echo hello; exec sleep 60")
    running.said()
    tasks.request(running.id)
    state = tasks.state(running.id)
    assert (state.state, state.pid, state.output_bytes, state.why) == ("running", running.leader, 6, None)
    tasks.record(stopping(running.id, 6, by="stop", grace=5.0))
    assert tasks.state(running.id).state == "stopping"
    running.stop()
    running.wait()
    assert tasks.ids(state="running") == []


def test_an_end_that_nobody_has_recorded_is_seen_as_it_will_be_recorded(tasks: Tasks) -> None:
    """Code, by whom, size of the output, time: nothing changes when the node writes it down."""
    for script in ("echo hello; exit 3", "kill -9 $$"):
        task = tasks.shims.shell(script)
        tasks.started(task)
        end = task.wait()
        seen = tasks.state(task.id)
        assert (seen.state, seen.how, seen.is_over) == ("ended", end["how"], True)
        tasks.record(ended(task.id, end, 99, is_tree_empty=True))
        assert tasks.state(task.id) == seen
        shutil.rmtree(task.path)
        assert tasks.state(task.id) == seen


def test_what_a_command_has_left_behind_is_named_as_long_as_it_lives(tasks: Tasks) -> None:
    """The task has ended, with its code; its survivors are those that are still there, also once it is recorded."""
    task = tasks.shims.shell("sleep 60 & echo $!; exit 3")
    survivor = int(task.said())
    tasks.started(task)
    left = until(lambda: (look := task.look()).stage == "left" and look)
    state = tasks.state(task.id)
    assert (state.state, state.how, state.survivors) == ("ended", {"code": 3}, [survivor])
    assert left.end is not None
    tasks.record(ended(task.id, left.end, 9, is_tree_empty=False))
    assert tasks.state(task.id).survivors == [survivor]
    os.kill(survivor, signal.SIGKILL)
    task.wait()
    assert (tasks.state(task.id).state, tasks.state(task.id).survivors) == ("ended", [])


def test_all_that_a_command_has_left_behind_is_named(tasks: Tasks) -> None:
    """More than the summary holds, before and behind the record; and those alone that live still."""
    task = tasks.shims.shell("for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 60 & done; echo hello")
    task.said()
    tasks.started(task)
    end = until(lambda: (look := task.look()).stage == "left" and look).end
    assert end is not None
    before = tasks.state(task.id)
    assert (len(before.survivors), before.survivors_more) == (15, 0)
    tasks.record(ended(task.id, end, 9, is_tree_empty=False))
    assert tasks.state(task.id) == before
    first, *others = before.survivors
    for pid in others:
        os.kill(pid, signal.SIGKILL)
    until(lambda: tasks.state(task.id).survivors == [first])
    assert tasks.ids(state="ended") == [task.id]


def test_what_is_left_of_a_lost_task_is_named_as_long_as_it_lives(tasks: Tasks) -> None:
    """Also by a list, which knows of them by the record."""
    task = tasks.shims.shell("echo hello; exec sleep 60")
    task.said()
    tasks.started(task)
    leader = task.leader
    task.kill_shim()
    end = dict(task.look(settle=True).end or {})
    tasks.record(ended(task.id, {**end, "survivors": survivors.find(task.id, task.shim)}, 9, is_tree_empty=False))
    assert [state.survivors for state in tasks.listed(state="lost")] == [[leader]]
    os.kill(leader, signal.SIGKILL)
    until(lambda: not tasks.state(task.id).survivors)
    assert [state.survivors for state in tasks.listed(state="lost")] == [[]]


def test_a_task_whose_shim_was_killed_is_lost_and_what_is_left_of_it_is_found(tasks: Tasks) -> None:
    """Never running, and never an exit code that nobody saw."""
    task = tasks.shims.shell("echo hello; exec sleep 60")
    task.said()
    tasks.started(task)
    leader = task.leader
    task.kill_shim()
    state = tasks.state(task.id)
    assert (state.state, state.how, state.by, state.why) == ("lost", None, "unknown", "its shim was killed")
    assert state.survivors == [leader]
    assert tasks.ids(state="lost") == [task.id]


def test_another_boots_task_is_lost_and_never_runs(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine went down, or the store is another machine's: whoever has those pids now is somebody else."""
    running, waiting = tasks.shims.shell("echo hello; exec sleep 60"), tasks.shims.make(["/bin/true"])
    leaving = tasks.shims.shell("sleep 60 & echo hello; exit 3")
    for task in (running, leaving):
        task.said()
        tasks.started(task)
    tasks.request(waiting.id)
    end = until(lambda: (look := leaving.look()).stage == "left" and look).end
    assert end is not None
    tasks.record(ended(leaving.id, end, 9, is_tree_empty=False))
    assert tasks.state(leaving.id).survivors != []
    copy = tasks.path.with_name("copy")
    shutil.copytree(tasks.path, copy, ignore=shutil.ignore_patterns("*.sock"))
    for module in ("runtime.tasks.directory", "actors.tasks.listing"):
        monkeypatch.setattr(f"turnkeeper.{module}.boot_id", lambda: "another boot")
    for task in (running, waiting):
        state = tasks.state(task.id, copy)
        assert (state.state, state.survivors, state.by) == ("lost", [], "unknown")
        assert state.why == "the machine went down"
    state = tasks.state(leaving.id, copy)
    assert (state.state, state.how, state.survivors) == ("ended", {"code": 3}, [])


def test_a_task_whose_files_are_gone_says_so(tasks: Tasks) -> None:
    """It runs as long as its shim does, and is lost with it; files that can't be read are named, too."""
    task = tasks.shims.shell("exec sleep 60")
    tasks.started(task)
    shim, leader = task.shim, task.leader
    (Path(task.path) / "lock").rename(Path(task.path) / "kept")
    (Path(task.path) / "lock").symlink_to("lock")
    state = tasks.state(task.id)
    assert state.state == "running"
    assert "can't be read" in (state.why or "")
    shutil.rmtree(task.path)
    state = tasks.state(task.id)
    assert (state.state, state.why, state.pid) == ("running", "files deleted", leader)
    os.kill(shim["pid"], signal.SIGKILL)
    until(lambda: not tree.is_alive(shim["pid"], shim["start"]))
    state = tasks.state(task.id)
    assert (state.state, state.why, state.survivors) == ("lost", "directory deleted", [leader])
    Path(task.path).mkdir()
    (Path(task.path) / "lock").symlink_to("lock")
    assert tasks.state(task.id).state == "lost"


def test_looking_changes_nothing_on_the_disk(tasks: Tasks) -> None:
    """Neither a file nor its time, whatever there is to be seen."""
    running, lost = tasks.shims.shell("exec sleep 60"), tasks.shims.shell("exec sleep 60")
    done = tasks.shims.start("/bin/true")
    for task in (running, lost, done):
        tasks.started(task)
    lost.kill_shim()
    done.wait()
    before = files(tasks.path / "tasks")
    assert [state.state for state in tasks.listed()] == ["ended", "lost", "running"]
    assert [tasks.state(task.id).state for task in (done, lost, running)] == ["ended", "lost", "running"]
    assert files(tasks.path / "tasks") == before


def test_tasks_are_listed_newest_first_by_session_group_and_state(tasks: Tasks) -> None:
    """In pages, each of which goes on behind the last one of the one before; what no task has, finds none."""
    tasks.record(*[creation(id, event(id, 0), key=f"{id}'s key") for id in ("otter", "owl")])
    for number in range(300):
        task = f"task-{number:03}"
        tasks.request(task, session=("otter", "owl")[number % 2], group=("a", "b", None)[number % 3])
        lost = {"lost": "why"}
        tasks.record(ended(task, lost if number % 100 == 7 else ENDED, 7, is_tree_empty=number != 5))
    newest = [f"task-{number:03}" for number in reversed(range(300))]
    assert tasks.ids() == newest[:20]
    assert tasks.ids(limit=1000) == newest
    assert tasks.ids(session="otter", limit=3) == ["task-298", "task-296", "task-294"]
    assert tasks.ids(session="owl's key", group="b", limit=2) == ["task-295", "task-289"]
    assert tasks.ids(state="lost") == ["task-207", "task-107", "task-007"]
    assert tasks.ids(state="lost", limit=1, after="task-207") == ["task-107"]
    assert tasks.ids(state="ended", limit=1) == ["task-299"]
    assert tasks.ids(group="none") == tasks.ids(state="running") == tasks.ids(limit=0) == []
    pages, page = [], tasks.listed(limit=70)
    while page:
        pages += page
        page = tasks.listed(limit=70, after=page[-1])
    assert [state.id for state in pages] == newest
    tasks.record(stopping("task-150", 8, by="stop", grace=1.0))
    assert tasks.ids(limit=1) == ["task-150"]


def test_what_can_be_no_list_is_refused(tasks: Tasks) -> None:
    """A state that is none, a limit that is none, a session that isn't there or is a task."""
    tasks.request("task-a")
    for wrong, refusal in (
        ({"state": "gone"}, ValueError),
        ({"limit": -1}, ValueError),
        ({"limit": True}, ValueError),
        ({"session": "nobody"}, NotFound),
        ({"session": "task-a"}, WrongKind),
        ({"after": "task-b"}, NotFound),
    ):
        with pytest.raises(refusal):
            tasks.listed(**wrong)
    with pytest.raises(NotFound):
        tasks.state("task-b")
    tasks.request("task-ab")
    assert tasks.state("task-a").id == "task-a"
    with pytest.raises(Ambiguous):
        tasks.state("task-")


def test_unfinished_tasks_are_those_that_have_to_be_looked_at(tasks: Tasks) -> None:
    """Without an end, or with survivors; however many have finished."""
    for number in range(1500):
        tasks.record(ended(f"task-{number}", ENDED, 7, is_tree_empty=number not in (3, 1499)))
    tasks.request("task-new")
    with closing(open_reader(str(tasks.path), tasks._backend.index_directory)) as reader:
        assert [row.id for row in listing.unfinished(reader)] == ["task-new", "task-1499", "task-3"]


def test_a_state_is_the_same_wherever_it_stands_in_a_list(tasks: Tasks) -> None:
    """A list's row and a look at the one task say the same; where it stood is no part of it."""
    tasks.record(ended("task-a", ENDED, 7, is_tree_empty=True))
    (row,) = tasks.listed()
    assert row == tasks.state("task-a") == replace(row, position=0)
