"""Unit: what is written of a task: lines that say the same whoever sends them, and summaries that stay small."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.actors.ids import task_id_of_key
from turnkeeper.actors.tasks.records import (
    CUT,
    TaskRequest,
    emptied,
    ended,
    notice_of,
    requested,
    stalled,
    started,
    stopping,
)
from turnkeeper.actors.tasks.state import TaskState
from turnkeeper.storage.format import encode_patch, event_prefix, line_fault
from turnkeeper.storage.limits import KIB, LINE_BYTES_MAX
from turnkeeper.storage.requests import Post, StreamRow

STARTER = {"boot": "b" * 36, "pid": 4_000_000, "start": 10**12, "host": "h" * 64, "token": "t" * 32}
REQUEST = TaskRequest(
    id="task-a", command=["sh", "-c", "true"], cwd="/src", grace=5.0, limit=9, keep=False, starter=STARTER
)
EVERYTHING = {
    "how": {"not_started": "é" * 5000},
    "by": "output limit",
    "survivors": [{"pid": n, "start": 10**12 + n, "command": "x" * 4096} for n in range(5000)],
    "ended": 10**13,
    "output_bytes": 10**15,
    "output": "disk full",
}


def said(post: Post) -> tuple[str, dict[str, Any]]:
    """Read a post's line as the journal would hold it: its type and data."""
    line = event_prefix(post.stream, 7) + post.tail
    assert line_fault(post.stream, 7, line) is None
    assert len(line) <= LINE_BYTES_MAX
    event = json.loads(line)
    return event["type"], event["data"]


def state(*posts: Post) -> TaskState:
    """Read the state that a task's posts leave in its summary."""
    summary: dict[str, Any] = {}
    for place, post in enumerate(posts):
        summary |= post.header if place == 0 else {}
        summary |= post.patch or {}
    present = {name: value for name, value in summary.items() if value is not None}
    return TaskState.from_row(StreamRow("task-a", len(posts), 0, 1, 1, present))


def test_the_life_of_a_task_is_told_by_its_records() -> None:
    """Each says what has come to be, and the summary what holds."""
    shim = {"boot": "b", "pid": 11, "start": 3, "pidns": 9}
    asked = requested(replace(REQUEST, key="ci", group="g", session="otter", timeout=900, token="t"), 5)
    data = {"command": ["sh", "-c", "true"], "cwd": "/src", "grace": 5.0, "limit": 9, "on_owner_exit": "kill"}
    given_too = {"key": "ci", "session": "otter", "group": "g", "timeout": 900, "token": "t"}
    assert said(asked) == ("task/requested", {**data, **given_too})
    assert (state(asked).state, state(asked).key, state(asked).is_over) == ("queued", "ci", False)
    runs = started("task-a", 6, pid=12, shim=shim)
    assert said(runs) == ("task/started", {"pid": 12, "shim": {"boot": "b", "pid": 11, "start": 3}})
    assert (state(asked, runs).state, state(asked, runs).pid, state(asked, runs).started) == ("running", 12, 6)
    stops = stopping("task-a", 7, by="stop", grace=2.0)
    assert said(stops) == ("task/stopping", {"by": "stop", "grace": 2.0})
    assert state(asked, runs, stops).state == "stopping"
    end = {"how": {"signal": 15}, "by": "stop", "survivors": [{"pid": 4, "start": 5, "command": "x"}], "ended": 8}
    over = ended("task-a", {**end, "output_bytes": 3}, 9, is_tree_empty=False, progress={"fraction": 0.5})
    found = state(asked, runs, stops, over)
    assert (found.state, found.how, found.by, found.ended, found.survivors) == ("ended", {"signal": 15}, "stop", 8, [4])
    assert (found.output_bytes, found.progress, found.code, found.is_over) == (3, {"fraction": 0.5}, None, True)
    assert state(asked, runs, stops, over, emptied("task-a", 10)).survivors == []


def test_what_is_gone_by_the_time_of_the_record_survives_in_its_line_alone() -> None:
    """The end that a shim wrote names what it had left; where that is gone, too, the state names nothing."""
    survivors = [{"pid": 4, "start": 5, "command": "x"}]
    post = ended("task-a", {"how": {"code": 0}, "survivors": survivors}, 9, is_tree_empty=True)
    assert said(post)[1]["survivors"] == survivors
    assert (state(post).survivors, state(post).survivors_more) == ([], 0)


def test_an_end_that_nobody_knows_is_said_as_that() -> None:
    """Lost, with the reason; by whom stays unknown, and survivors are named where they were found."""
    survivors = [{"pid": 4, "start": 5, "command": "x"}]
    post = ended("task-a", {"lost": "the machine went down", "survivors": survivors}, 9, is_tree_empty=False)
    assert said(post)[1] == {
        "state": "lost",
        "by": "unknown",
        "why": "the machine went down",
        "survivors": survivors,
    }
    found = state(post)
    assert (found.state, found.why, found.by, found.how, found.ended) == (
        "lost",
        "the machine went down",
        "unknown",
        None,
        9,
    )


def test_the_same_request_is_the_same_line_whoever_makes_it() -> None:
    """Another process, another time; other arguments make another line, and so does the token of one without a key."""
    tail = requested(REQUEST, 5).tail
    again = requested(replace(REQUEST, starter={**STARTER, "pid": 7}), 5)
    assert again.tail == tail
    assert again.key == requested(REQUEST, 9).key
    for other in ({"command": ["sh"]}, {"cwd": "/"}, {"timeout": 1}, {"environment": ["A"]}, {"token": "t"}):
        assert requested(replace(REQUEST, **other), 5).tail != tail, other


def test_a_silence_is_told_once() -> None:
    """The record of a stall has a key of its own for each size of the output, the others one for each type."""
    first = stalled("task-a", 5, silent_seconds=60.0, output_bytes=12)
    again = stalled("task-a", 9, silent_seconds=60.0, output_bytes=12)
    assert (first.key, again.key) == ("task/stalled/12", "task/stalled/12")
    assert stalled("task-a", 5, silent_seconds=60.0, output_bytes=13).key != first.key
    assert first.patch is None


def test_a_notice_says_which_task_and_all_that_the_record_says() -> None:
    """Its type is the record's, its sender the task, and its key tells it from every other notice of any task."""
    end = ended(
        "task-a", {"how": {"code": 3}, "by": "itself", "survivors": [], "output_bytes": 0}, 7, is_tree_empty=True
    )
    notice = notice_of(end, "otter")
    message = json.loads(b"{" + notice.tail)
    assert (notice.to, notice.key) == ("otter", "task-a/ended")
    assert (message["type"], message["time"]) == ("inbox/message", 7)
    assert message["data"] == {"type": "task/ended", "data": {"task": "task-a", **said(end)[1]}, "sender": "task-a"}
    assert notice_of(stalled("task-a", 5, silent_seconds=1.0, output_bytes=12), "otter").key == "task-a/stalled/12"


@pytest.mark.parametrize("letter", ["x", "é", "\x01", "\udcff", "😀", '"'])
@pytest.mark.parametrize("count", [1, 3, 5000])
def test_lines_and_summaries_stay_small_whatever_the_command_is(letter: str, count: int) -> None:
    """Long arguments, many of them, bytes that are no text; what was cut says so, and what fits is whole."""
    request = replace(
        REQUEST,
        command=["sh", *[letter * (200_000 // count)] * count],
        cwd="/" + letter * 4095,
        key=letter.replace("\udcff", "k") * 256,
        group=letter.replace("\udcff", "g") * 256,
        session="s" * 64,
        environment=[letter * 100] * 5000,
    )
    post = requested(request, 10**13)
    _, data = said(post)
    assert len(post.tail) <= 160 * KIB
    assert data["command"][0] == "sh"
    assert data["command"][-1].endswith(CUT)
    assert len(data["command_digest"]) == 32
    header = post.header
    assert (header["group"], header["session"]) == (request.group, request.session)
    assert header["command"][-1].endswith(CUT)
    assert header["cwd"].endswith(CUT)
    assert len(encode_patch({**header, "keys": {"0" * 32: 0}})) <= 3 * KIB


def test_a_summary_stays_small_however_many_survive() -> None:
    """Twelve are named there and a thousand in the line; the others are counted."""
    request = requested(replace(REQUEST, command=["x" * 9000], cwd="/" + "y" * 4000, group="\x01" * 256), 10**13)
    shim = {"boot": "b" * 36, "pid": 4_000_000, "start": 10**12}
    runs = started("task-a", 10**13, pid=4_000_000, shim=shim)
    over = ended("task-a", EVERYTHING, 5, is_tree_empty=False, progress={"phase": "x" * 200})
    _, data = said(over)
    assert (len(data["survivors"]), data["survivors_more"]) == (1024, 5000 - 1024)
    found = state(request, runs, over)
    assert (len(found.survivors), found.survivors_more) == (12, 5000 - 12)
    assert (found.how or {})["not_started"].endswith(CUT)
    assert len(encode_patch({**request.header, **(runs.patch or {}), **(over.patch or {})})) <= 4 * KIB


def test_a_large_progress_stands_in_the_line_alone() -> None:
    """It is advisory, and a summary is read by every list."""
    post = ended("task-a", {"how": {"code": 0}}, 5, is_tree_empty=True, progress={"phase": "x" * 1000})
    assert said(post)[1]["progress"] == {"phase": "x" * 1000}
    assert "progress" not in (post.patch or {})


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*EVERYTHING, "lost"]), anything))
def test_an_end_that_was_tampered_with_makes_a_record_all_the_same(end: dict[str, Any]) -> None:
    """Anybody can write into a task's directory; what makes no sense there is left out."""
    post = ended("task-a", end, 7, is_tree_empty=False, progress={"phase": "\ud800"})
    type, data = said(post)
    assert (type, data["state"] in ("ended", "lost")) == ("task/ended", True)
    assert len(encode_patch(post.patch or {})) <= 2 * KIB
    assert state(post).is_over


@given(anything)
def test_survivors_and_ways_to_end_that_make_no_sense_are_left_out(value: Any) -> None:
    """Whatever stands in the place of one of their members."""
    end = {"how": {"code": value, "signal": value, "not_started": value}, "survivors": [value, {"pid": value}]}
    post = ended("task-a", end, 7, is_tree_empty=False)
    assert all(isinstance(pid, int) for pid in state(post).survivors)
    assert said(post)[1]["state"] == "ended"


def test_an_end_of_any_length_makes_a_record() -> None:
    """Its texts are cut to what a line may hold, and further for the summary."""
    end = {"lost": "x" * LINE_BYTES_MAX, "by": "y" * LINE_BYTES_MAX, "how": {"not_started": "z" * LINE_BYTES_MAX}}
    post = ended("task-a", {**end, "output": "ä" * LINE_BYTES_MAX}, 7, is_tree_empty=True)
    assert said(post)[1]["why"].startswith("xxx")
    assert len(encode_patch(post.patch or {})) <= 2 * KIB


def test_an_environments_values_are_in_no_record() -> None:
    """Names alone are recorded, sorted, and one that is no text is spelled out."""
    request = replace(REQUEST, environment=["TOKEN", os.fsdecode(b"\xff")])
    assert said(requested(request, 5))[1]["environment"] == ["TOKEN", "\\xff"]


def test_a_request_with_a_key_has_one_id() -> None:
    """So it needs no look-up, and the same key twice is the same stream."""
    assert task_id_of_key("CI 17") == task_id_of_key("CI 17") != task_id_of_key("ci 17")
