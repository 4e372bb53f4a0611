"""What clients ask of a node about tasks, read from frames: what isn't as it should be is no request."""

from __future__ import annotations

from typing import Any

import pytest

from turnkeeper.actors.node.tasks.requests import (
    SECONDS_MAX,
    Stop,
    Wait,
    start_from_wire,
    stop_from_wire,
    wait_from_wire,
)
from turnkeeper.runtime.frames import FrameError

START: dict[str, Any] = {
    "op": "start_task",
    "id": 1,
    "task": "task-a",
    "key": None,
    "token": "random",
    "argv": [b"make", b"\xff all"],
    "program": b"/usr/bin/make",
    "cwd": b"/tmp/\xe9",
    "umask": 0o022,
    "env": {b"PATH": b"/bin", b"B\xff": b"\xfe"},
    "environment": ["PATH"],
    "timeout": 30,
    "grace": 0.5,
    "limit": 100,
    "keep": True,
    "session": None,
    "group": "a group",
    "stall": None,
}


def test_a_start_is_read_with_every_byte_of_it() -> None:
    """Bytes that are no UTF-8 stand in texts as the task's files have them; numbers become seconds."""
    start = start_from_wire(START)
    assert start.argv == ["make", "\udcff all"]
    assert start.cwd == "/tmp/\udce9"
    assert start.env == START["env"]
    assert (start.timeout, start.grace, start.stall) == (30.0, 0.5, None)
    assert start.as_spec(None)["umask"] == 0o022
    record = start.as_record({"token": "a token"})
    assert (record.id, record.keep, record.environment, record.token) == ("task-a", True, ["PATH"], "random")


@pytest.mark.parametrize(
    "wrong",
    [
        {"task": "session-a"},
        {"task": "task-../a"},
        {"task": None},
        {"argv": []},
        {"argv": ["make"]},
        {"argv": [b"a\0b"]},
        {"program": b"make"},
        {"cwd": b"here"},
        {"cwd": None},
        {"env": {"PATH": b"/bin"}},
        {"env": {b"PATH": b"\0"}},
        {"env": []},
        {"environment": [b"PATH"]},
        {"environment": None},
        {"umask": 0o1000},
        {"umask": None},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"grace": None},
        {"grace": "1"},
        {"limit": 0},
        {"limit": 2**64},
        {"limit": True},
        {"keep": 1},
        {"key": ""},
        {"session": 7},
        {"group": "g" * 1000},
        {"stall": float("inf")},
    ],
    ids=repr,
)
def test_a_start_with_a_field_that_makes_no_sense_is_no_request(wrong: dict[str, Any]) -> None:
    """Whoever sends it loses his connection; nothing of it reaches a file."""
    with pytest.raises(FrameError):
        start_from_wire({**START, **wrong})


@pytest.mark.parametrize(
    "name", sorted(START.keys() - {"op", "id", "key", "token", "timeout", "session", "group", "stall"})
)
def test_a_start_without_a_field_that_it_needs_is_no_request(name: str) -> None:
    """What may be missing is as if it were None."""
    with pytest.raises(FrameError):
        start_from_wire({key: value for key, value in START.items() if key != name})


def test_times_beyond_all_measure_are_none_or_the_longest() -> None:
    """A timeout of a thousand years is none; a grace is as long as it may be."""
    start = start_from_wire({**START, "timeout": 1e12, "grace": 1e12})
    assert (start.timeout, start.grace) == (None, float(SECONDS_MAX))


def test_stops_and_waits_name_tasks_once() -> None:
    """Sessions may be named beside them."""
    assert stop_from_wire({"tasks": ["a", "b", "a"], "grace": 1}) == Stop(["a", "b"], [], 1.0)
    assert stop_from_wire({"tasks": [], "sessions": ["s"], "grace": 0}) == Stop([], ["s"], 0.0)
    assert wait_from_wire({"task": "a"}) == Wait("a", False)


@pytest.mark.parametrize("wrong", [{"tasks": "a", "grace": 1}, {"tasks": [1], "grace": 1}, {"tasks": [""], "grace": 1}])
def test_a_stop_that_names_no_ids_is_no_request(wrong: dict[str, Any]) -> None:
    """Nor is one without a grace."""
    with pytest.raises(FrameError):
        stop_from_wire(wrong)
    with pytest.raises(FrameError):
        stop_from_wire({"tasks": ["a"]})


@pytest.mark.parametrize("wrong", [{}, {"task": 1}, {"task": "a", "tree": 1}])
def test_a_wait_that_names_no_task_is_no_request(wrong: dict[str, Any]) -> None:
    """And `tree` is true or false."""
    with pytest.raises(FrameError):
        wait_from_wire(wrong)
