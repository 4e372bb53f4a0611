"""Unit: the writer's side of records of tasks: which are committed, and what each is answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from turnkeeper.actors.peers import Peer
from turnkeeper.actors.tasks.records import Notice, TaskRequest, emptied, ended, notice_of, requested, started
from turnkeeper.actors.tasks.state import TaskState
from turnkeeper.actors.writer.inboxes import Inboxes
from turnkeeper.actors.writer.recording import Recordings
from turnkeeper.actors.writer.requests import Listening, Recording, Sending
from turnkeeper.actors.writer.reservations import Reservations
from turnkeeper.runtime.frames import FrameDecoder
from turnkeeper.storage.backend import Backend
from turnkeeper.storage.contract import creation, event, post
from turnkeeper.storage.requests import Append, Appended, Patch, Post
from turnkeeper.storage.store import BackendName

from ..contract.backends import new_store

REQUEST = requested(
    TaskRequest(id="task-a", command=["true"], cwd="/", grace=5.0, limit=9, keep=False, starter={}, session="otter"), 5
)
START = started("task-a", 6, pid=12, shim={"boot": "b", "pid": 11, "start": 3})
END = ended("task-a", {"how": {"code": 0}, "by": "itself", "survivors": [], "output_bytes": 0}, 7, is_tree_empty=True)


class Records:
    """A store of one session, the otter's, with what its writer has for tasks."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.inboxes = Inboxes(backend, Reservations(lambda who: False))
        self._recordings = Recordings(backend, self.inboxes)
        backend.commit([creation("otter", event("otter", 0))])

    def record(self, *posts: Post, notices: tuple[Notice, ...] = ()) -> tuple[list[Any], list[Any]]:
        """Record as the writer does, and give what it answers: results, and notices' results."""
        asked = Recording(list(posts), [Sending(each.to, each.tail, each.key, [], None) for each in notices])
        decided = self._recordings.decide(asked)
        results = self.backend.commit(decided.committed)
        self.inboxes.tell(decided.committed, results)
        answer = decided.answer(results)
        return answer["results"], answer["notices"]

    def summary(self, task: str) -> dict[str, Any]:
        """Give what is known of a task."""
        return self.backend.row(task).summary


@pytest.fixture(params=["journal", "sqlite"])
def records(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Records]:
    """Such a store, kept by either backend."""
    kept_by: BackendName = request.param
    with new_store(tmp_path / "store", kept_by) as store:
        yield Records(store.open())


def test_a_tasks_records_make_its_stream_and_its_summary(records: Records) -> None:
    """Each is answered by its place; what is recorded again is answered as before, and stored once."""
    assert records.record(REQUEST) == ([[0, 1, 2]], [])
    assert records.summary("task-a")["state"] == "queued"
    assert records.record(START) == ([[1, 2, 3]], [])
    assert records.record(END, notices=(notice_of(END, "otter"),)) == ([[2, 3, 4]], [[0, 1, 5]])
    assert records.record(END, notices=(notice_of(END, "otter"),)) == ([[2, 3, 4]], [[0, 1, 5]])
    summary = records.summary("task-a")
    assert (summary["kind"], summary["state"], summary["how"], summary["pid"]) == ("task", "ended", {"code": 0}, 12)
    assert "unfinished" not in summary
    assert records.backend.row("task-a").head == 3


def test_what_belongs_together_is_joined(records: Records) -> None:
    """The notice to the terminal record; nothing to what is before that."""
    recordings = Recordings(records.backend, records.inboxes)
    other = ended("task-b", {"lost": "why"}, 7, is_tree_empty=True)
    notice = notice_of(END, "otter")
    asked = Recording([END, other], [Sending("otter", notice.tail, notice.key, [], None)])
    assert [post.joined for post in recordings.decide(asked).committed] == [False, True, True]


def test_another_end_is_refused(records: Records) -> None:
    """A task ends once; and the same key with other arguments is no second request."""
    records.record(END)
    other = ended("task-a", {"lost": "no exit code was found"}, 9, is_tree_empty=True)
    (refused,), _ = records.record(other)
    assert (refused["error"], refused["args"][0], refused["args"][3]) == ("Conflict", "task-a", "task/ended")
    assert records.summary("task-a")["state"] == "ended"


@pytest.mark.parametrize("stream", ["otter", "inbox-otter", "new", "task-of-another-kind"])
def test_streams_that_are_no_tasks_are_refused(records: Records, stream: str) -> None:
    """A session's, an inbox's, a new one under no task's id, or a task's id that is something else."""
    before = records.backend.next_position
    records.backend.commit([post("inbox-otter", "k"), post("task-of-another-kind", "k")])
    record = Post(stream, END.tail, END.key, {"kind": "task"}, {"state": "ended"})
    (refused, fine), _ = records.record(record, REQUEST)
    assert (refused["error"], refused["args"][0], refused["args"][2]) == ("WrongKind", stream, "task")
    assert fine[:2] == [0, 1]
    assert records.backend.next_position == before + 3


def test_a_new_stream_of_another_kind_is_refused(records: Records) -> None:
    """A task's id alone makes no task."""
    (refused,), _ = records.record(Post("task-b", END.tail, END.key, {"kind": "inbox"}))
    assert refused == {"error": "WrongKind", "args": ["task-b", "inbox", "task"]}


@pytest.mark.parametrize("to", ["nobody", "owl", "task-a"])
def test_a_notice_that_nobody_can_get_is_refused_alone(records: Records, to: str) -> None:
    """Its session is unknown, deleted, or none; the task has ended all the same."""
    records.backend.commit([creation("owl", event("owl", 0)), Append("owl", 1, 1, b"", {"owner": None})])
    records.backend.commit([Patch("owl", {"deleted": 5})])
    records.record(REQUEST)
    (end,), (refused,) = records.record(END, notices=(notice_of(END, to),))
    assert end[:2] == [1, 2]
    assert refused["error"] == {"nobody": "NotFound", "owl": "Deleted", "task-a": "WrongKind"}[to]


def test_who_listens_to_the_inbox_gets_the_notice(records: Records) -> None:
    """An idle owner wakes when its task has ended, and reads which and how."""
    told: list[bytes] = []
    peer = cast("Peer", type("Told", (), {"tell": staticmethod(told.append)}))
    records.inboxes.listen(peer, 4, Listening("otter", 1, 0))
    records.record(END, notices=(notice_of(END, "otter"),))
    (news,) = [message for frame in told for message in FrameDecoder().feed(frame)]
    assert (news["re"], news["head"]) == (4, 1)
    assert b'"type":"task/ended"' in news["lines"]
    assert b'"sender":"task-a"' in news["lines"]


def test_a_task_whose_first_record_was_damaged_gets_its_end(tmp_path: Path) -> None:
    """Nobody knows any more what it was to run; how it ended is written down all the same, and it is a task again."""
    with new_store(tmp_path / "store", "journal") as store:
        Records(store.open()).record(REQUEST)
        store.close()
        store.damage("task-a")
        backend = store.open()
        assert "kind" not in backend.row("task-a").summary
        recordings = Recordings(backend, Inboxes(backend, Reservations(lambda who: False)))
        (answer,) = backend.commit(recordings.decide(Recording([END], [])).committed)
        assert isinstance(answer, Appended)
        row = backend.row("task-a")
        assert (row.summary["kind"], row.summary["state"]) == ("task", "ended")
        assert TaskState.from_row(row).command == []


def test_the_last_survivors_end_finishes_a_task(records: Records) -> None:
    """Until then it counts as unfinished, though it has ended."""
    survivors = [{"pid": 4, "start": 5, "command": "sleep 9"}]
    records.record(ended("task-a", {"how": {"code": 0}, "survivors": survivors}, 7, is_tree_empty=False))
    assert (records.summary("task-a")["unfinished"], records.summary("task-a")["survivors"]) == (
        True,
        [{"pid": 4, "start": 5}],
    )
    records.record(emptied("task-a", 9))
    assert not {"unfinished", "survivors"} & records.summary("task-a").keys()
