"""Unit: which ends of tasks a session's inbox tells of behind a place in the session's log, on a real journal."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from turnkeeper.actors.tails import message_tail
from turnkeeper.actors.tasks import untold
from turnkeeper.storage.reading import open_reader
from turnkeeper.storage.requests import Append, Post

from ..stores import StoreInTest, commit_one, create, event, new_store


def post(store: StoreInTest, number: int, type: str = "task/ended", sender: str | None = None) -> None:
    """Put a message into the session's inbox."""
    assert store.journal is not None
    tail = message_tail(type, {"task": "x"}, sender or f"task-{number}", 1)
    commit_one(store.journal, Post("inbox-otter", tail, f"key {number}", {"kind": "inbox"}))


def append(store: StoreInTest, seq: int) -> None:
    """Put an event into the session's log."""
    assert store.journal is not None
    commit_one(store.journal, Append("otter", 1, seq, event("otter", seq)))


def ended_since(store: StoreInTest, events: int) -> list[str]:
    """Ask for the tasks that ended behind so many events."""
    assert store.journal is not None
    with contextlib.closing(open_reader(str(store.path), store.journal.index_directory)) as reader:
        return untold._ended_since(reader, "otter", events)


@pytest.mark.parametrize("page", [1, 2, 3, 256])
def test_ends_are_told_of_from_a_place_in_the_log_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """In their order, however many messages are looked at a time, and however many lie before."""
    monkeypatch.setattr(untold, "PAGE_EVENTS", page)
    with new_store(tmp_path / "store") as store:
        commit_one(store.open(), create("otter", event("otter", 0)))
        for number in range(5):
            post(store, number)
        append(store, 1)
        for number in range(5, 8):
            post(store, number)
        append(store, 2)
        assert ended_since(store, 3) == []
        assert ended_since(store, 2) == ["task-5", "task-6", "task-7"]
        for events in (0, 1):
            assert ended_since(store, events) == [f"task-{number}" for number in range(8)]


def test_other_messages_are_no_ends(tmp_path: Path) -> None:
    """Nor is what somebody says who is no task; a session that nobody wrote to has none."""
    with new_store(tmp_path / "store") as store:
        commit_one(store.open(), create("otter", event("otter", 0)))
        assert ended_since(store, 1) == []
        post(store, 1, type="task/stalled")
        post(store, 2, sender="brave-otter-1234")
        post(store, 3)
        assert ended_since(store, 1) == ["task-3"]
