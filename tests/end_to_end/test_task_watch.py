"""End to end: what the node tells of a running task: output and progress to who listens, silences to its session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..served_tasks import TaskClient, TaskStore, begin_session, events_of, fifo, row_of, task_store, types_of
from ..serving import eventually

REPORT = 'TURNKEEPER_PROGRESS {"percent": %d, "phase": "build"}'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TaskStore]:
    """A served store of its own, of whose tasks nothing may be left."""
    with task_store(tmp_path / "store") as served:
        yield served


def next_value(client: TaskClient, type: str) -> dict[str, Any]:
    """Wait for the next value of a type."""
    while True:
        message = client.heard.pop(0) if client.heard else client.receive()
        if message.get("op") == "value" and message["type"] == type:
            value: dict[str, Any] = message["value"]
            return value


def write(place: Path, line: str) -> None:
    """Write a line to a task that reads its pipe."""
    with open(place / "pipe", "a") as pipe:
        pipe.write(line + "\n")


def start_repeating(store: TaskStore, client: TaskClient, **what: Any) -> str:
    """Start a task that prints each line that is written to its pipe, and ends when one says so."""
    script = 'exec 3<> pipe; while read -r line <&3; do [ "$line" = end ] && exit 0; echo "$line"; done'
    return client.shell(script, **what, **fifo(store.path))


def test_output_and_progress_are_told_to_who_listens(store: TaskStore) -> None:
    """Latest values under the number of the task's next record, so nobody takes them for newer than that."""
    client = store.client()
    task = start_repeating(store, client)
    client.send({"op": "listen", "topics": [task]})
    assert next_value(client, "task/output")["data"] == {"output_bytes": 0}
    write(store.path, REPORT % 40)
    told = next_value(client, "task/progress")
    assert (told["data"]["percent"], told["data"]["phase"], told["seq"]) == (40, "build", 2)
    assert client.live()[task]["progress"]["percent"] == 40
    write(store.path, REPORT % 90)
    write(store.path, "end")
    assert next_value(client, "task/progress")["data"]["percent"] == 90
    client.wait(task)
    assert row_of(store.path, task)["progress"]["percent"] == 90
    assert events_of(store.path, task)[-1][1]["progress"]["percent"] == 90


def test_nothing_is_told_to_who_doesnt_listen_and_progress_is_known_all_the_same(store: TaskStore) -> None:
    """The listener of another topic hears of none of it; who asks is told how far the task is."""
    client = store.client()
    task = start_repeating(store, client)
    client.send({"op": "listen", "topics": ["another"]})
    write(store.path, "10%")
    eventually(lambda: client.live()[task].get("progress") is not None)
    write(store.path, "end")
    client.wait(task, tree=True)
    assert [message for message in client.heard if message.get("op") == "value"] == []


def test_an_adopted_tasks_progress_is_known_from_what_it_had_printed(store: TaskStore) -> None:
    """The next node reads the end of its output, and goes on from there."""
    client = store.client()
    task = start_repeating(store, client, keep=True)
    write(store.path, REPORT % 40)
    eventually(lambda: client.live()[task].get("progress", {}).get("percent") == 40)
    store.kill_node(store.writer())
    store.start_node()
    client = store.client()
    eventually(lambda: client.live()[task].get("progress", {}).get("percent") == 40)
    write(store.path, "end")
    assert client.wait(task)["progress"]["percent"] == 40


def test_a_silence_is_told_once_to_the_tasks_session(store: TaskStore) -> None:
    """Once a silence, and again after something was printed; each recorded first, with the size of the output."""
    begin_session(store, "a-session")
    client = store.client()
    task = start_repeating(store, client, stall=0.2, session="a-session")
    eventually(lambda: types_of(store, task).count("task/stalled") == 1)
    write(store.path, "something")
    eventually(lambda: types_of(store, task).count("task/stalled") == 2)
    write(store.path, "end")
    client.wait(task, tree=True)
    stalls = [data for type, data in events_of(store.path, task) if type == "task/stalled"]
    assert [each["output_bytes"] for each in stalls] == [0, len("something\n")]
    assert all(each["silent_seconds"] >= 0.2 for each in stalls)
    told = [(data["type"], data["data"]["task"]) for _, data in events_of(store.path, "inbox-a-session")]
    assert told == [("task/stalled", task), ("task/stalled", task), ("task/ended", task)]


def test_a_silence_that_was_told_isnt_told_again_by_the_next_node(store: TaskStore) -> None:
    """It is the same silence, however long it lasts; the next one is told."""
    begin_session(store, "a-session")
    client = store.client()
    task = start_repeating(store, client, stall=0.2, keep=True, session="a-session")
    eventually(lambda: types_of(store, task).count("task/stalled") == 1)
    store.kill_node(store.writer())
    store.start_node()
    client = store.client()
    write(store.path, "something")
    eventually(lambda: types_of(store, task).count("task/stalled") == 2)
    write(store.path, "end")
    client.wait(task, tree=True)
    assert len(events_of(store.path, "inbox-a-session")) == 3


def test_output_that_shrinks_or_goes_away_is_no_reason_to_stop_looking(store: TaskStore) -> None:
    """Cut, it is read from its new beginning; deleted, what is known stays known."""
    client = store.client()
    task = start_repeating(store, client)
    output = store.path / "tasks" / task / "output.log"
    write(store.path, REPORT % 40)
    eventually(lambda: client.live()[task].get("progress", {}).get("percent") == 40)
    os.truncate(output, 0)
    write(store.path, REPORT % 60)
    eventually(lambda: client.live()[task].get("progress", {}).get("percent") == 60)
    output.unlink()
    client.send({"op": "listen", "topics": [task]})
    assert next_value(client, "task/progress")["data"]["percent"] == 60
    write(store.path, "end")
    client.wait(task, tree=True)
