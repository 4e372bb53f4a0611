"""A task's end and the notice of it, killed at each operation on the disk: both are stored or neither is."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from turnkeeper.actors.tasks.records import ended, notice_of
from turnkeeper.storage.backend import Backend, open_reader
from turnkeeper.storage.contract import creation, event, post
from turnkeeper.storage.errors import InvalidLine, NotFound, StorageError
from turnkeeper.storage.requests import Appended, Post, Request
from turnkeeper.storage.store import BackendName

from ..stores import make_store
from .killed_moments import Snapshots, opened

END = ended("task-a", {"how": {"code": 3}, "by": "itself", "survivors": [], "output_bytes": 0}, 7, is_tree_empty=True)


def end_and_notice() -> list[Request]:
    """Make the two posts that belong together."""
    notice = notice_of(END, "otter")
    return [END, Post("inbox-otter", notice.tail, notice.key, {"kind": "inbox"}, joined=True)]


def messages(number: int) -> list[Request]:
    """Make other messages for the same inbox."""
    return [post("inbox-otter", f"message {each}") for each in range(number)]


def heads(path: Path, *streams: str) -> list[int]:
    """Say how many events streams have, as anybody reads them."""
    found = []
    with contextlib.closing(open_reader(str(path))) as reader:
        for stream in streams:
            try:
                found.append(reader.row(stream).head)
            except NotFound:
                found.append(0)
    return found


def batches_for(backend: Backend, requests: list[Request]) -> int:
    """Commit requests that are all stored, and say in how many batches."""
    before = backend.statistics()["batches"]
    answers = backend.commit(requests)
    assert all(isinstance(answer, Appended) for answer in answers), answers
    return backend.statistics()["batches"] - before


@pytest.fixture
def messages_a_batch(memory_path: Path) -> int:
    """How many messages for one inbox a journal's batch holds."""
    path = memory_path / "counted"
    make_store(path, "journal")
    with opened(path) as backend:
        number = 1
        while batches_for(backend, [post(f"inbox-{number}", f"message {each}") for each in range(number)]) == 1:
            number += 1
    return number - 1


@pytest.mark.parametrize("kept_by", ["journal", "sqlite"])
@pytest.mark.parametrize("with_many", [False, True], ids=["alone", "behind a full batch"])
def test_a_tasks_end_and_its_notice_are_never_one_without_the_other(
    memory_path: Path, kept_by: BackendName, with_many: bool, messages_a_batch: int
) -> None:
    """Wherever the writer dies, also where the commit takes two batches and the notice would be the second one's."""
    path = memory_path / "store"
    make_store(path, kept_by)
    others = messages_a_batch if with_many else 0
    with opened(path) as backend:
        assert batches_for(backend, [creation("otter", event("otter", 0))]) == 1
    snapshots = Snapshots(path)
    with opened(path, snapshots) as backend:
        batches = batches_for(backend, [*messages(others), *end_and_notice()])
    assert batches == (2 if with_many and kept_by == "journal" else 1)
    seen = set()
    for copy in (*snapshots.taken, path):
        with opened(copy):
            pass  # as the next writer does, which settles what the killed one left
        ends, notices = heads(copy, "task-a", "inbox-otter")
        seen.add((ends, notices))
        assert ends == max(0, notices - others), copy
        with opened(copy) as backend:
            assert all(isinstance(answer, Appended) for answer in backend.commit(end_and_notice()))
        assert heads(copy, "task-a", "inbox-otter")[0] == 1
        shutil.rmtree(copy)
    assert seen >= {(0, 0), (1, others + 1)}


def test_more_joined_posts_than_a_batch_holds_are_refused_together(memory_path: Path, messages_a_batch: int) -> None:
    """Nothing of them is stored, and what comes behind them is."""
    path = memory_path / "store"
    make_store(path, "journal")
    joined: list[Request] = [
        post("inbox-otter", f"message {each}", joined=each > 0) for each in range(messages_a_batch + 1)
    ]
    with opened(path) as backend:
        answers = backend.commit([*joined, post("inbox-owl", "k")])
    assert {type(answer) for answer in answers[:-1]} == {InvalidLine}
    assert "joined" in str(answers[0])
    assert not isinstance(answers[-1], StorageError)
    assert heads(path, "inbox-otter", "inbox-owl") == [0, 1]
