"""What clients may send to the writer: anything; what comes out is a request with the right types, or a FrameError."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.actors.names import NAME_CHARACTERS_MAX
from turnkeeper.actors.writer.requests import (
    RECORDS_BYTES_MAX,
    RECORDS_MAX,
    Change,
    Listening,
    Sending,
    appends_from_wire,
    change_from_wire,
    listening_from_wire,
    number_of,
    opening_from_wire,
    recording_from_wire,
    sending_from_wire,
)
from turnkeeper.runtime.frames import FrameError
from turnkeeper.storage.format import encode_patch
from turnkeeper.storage.requests import Append, Post

OWNER = {"boot": "b", "pid": 1, "start": 2, "host": "h", "token": "t"}
OPENING = {"op": "open", "id": 1, "wanted": "w", "owner": OWNER, "create": {"id": "new-1", "key": "k"}}
SENDING = {"op": "send", "to": "w", "tail": b"line", "key": "k", "blobs": ["d"], "author": ["s", 1]}
LISTENING = {"op": "listen", "session": "s", "epoch": 1, "next": 7}
APPEND: list[Any] = ["s", 1, 0, b"line\n", {"id": "s", "labels": {"a": [1, 2.5, None, True]}}, "key", True]

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4),
    max_leaves=8,
)


def test_requests_are_read_field_by_field() -> None:
    """An append becomes the journal's, an opening keeps nothing but what it needs."""
    assert appends_from_wire([APPEND]) == [Append(*APPEND)]
    opening = opening_from_wire({**OPENING, "owner": {**OWNER, "more": "x" * 10_000}, "takeover": True})
    assert (opening.wanted, opening.owner, opening.takeover) == ("w", OWNER, True)
    assert opening.header == {"id": "new-1", "key": "k"}
    assert sending_from_wire(SENDING) == Sending("w", b"line", "k", ["d"], ("s", 1))
    assert sending_from_wire({**SENDING, "author": None}).author is None
    assert listening_from_wire(LISTENING) == Listening("s", 1, 7)


@given(st.lists(st.integers(0, 6), max_size=2), plain)
def test_an_append_with_anything_in_any_field_is_an_append_or_a_frame_error(places: list[int], value: Any) -> None:
    """What is let through has the types that the journal relies on, and a patch that JSON can hold."""
    entry: list[Any] = list(APPEND)
    for place in places:
        entry[place] = value
    try:
        (append,) = appends_from_wire([entry])
    except FrameError:
        return
    assert (type(append.stream), type(append.epoch), type(append.first)) == (str, int, int)
    assert (type(append.lines), type(append.create)) == (bytes, bool)
    assert append.key is None or 0 < len(append.key) <= NAME_CHARACTERS_MAX
    assert append.patch is None or encode_patch(append.patch)


@given(plain)
def test_anything_in_place_of_appends_is_a_frame_error_or_no_appends(value: Any) -> None:
    """An empty frame is none either."""
    try:
        assert appends_from_wire(value) == []
    except FrameError:
        assert value != []


@given(st.sampled_from(["wanted", "owner", "create", "takeover"]), plain)
def test_an_opening_with_anything_in_any_field_is_an_opening_or_a_frame_error(name: str, value: Any) -> None:
    """What is let through can be looked up, granted and reserved."""
    try:
        opening = opening_from_wire({**OPENING, name: value})
    except FrameError:
        return
    assert opening.wanted
    assert opening.owner.keys() == OWNER.keys()
    assert opening.header is None or opening.header["id"]


def test_a_change_is_read_field_by_field() -> None:
    """What isn't said stays as it is."""
    assert change_from_wire({"wanted": "w"}) == Change("w", None, {}, None)
    asked = {"wanted": "w", "title": "", "labels": {"a": "b", "c": None}, "deleted": False, "more": 1}
    assert change_from_wire(asked) == Change("w", "", {"a": "b", "c": None}, False)


@given(st.sampled_from(["wanted", "title", "labels", "deleted"]), plain)
def test_a_change_with_anything_in_any_field_is_a_change_or_a_frame_error(name: str, value: Any) -> None:
    """What is let through can be looked up, and makes a patch that JSON can hold."""
    try:
        change = change_from_wire({"wanted": "w", "title": "t", "labels": {"a": "b"}, "deleted": True, name: value})
    except FrameError:
        return
    assert change.wanted
    assert change.deleted in (None, True, False)
    assert encode_patch({"title": change.title, "labels": change.labels})


@given(st.sampled_from(["to", "tail", "key", "blobs", "author"]), plain)
def test_a_message_with_anything_in_any_field_is_one_or_a_frame_error(name: str, value: Any) -> None:
    """What is let through can be looked up and posted."""
    try:
        sending = sending_from_wire({**SENDING, name: value})
    except FrameError:
        return
    assert sending.to
    assert type(sending.tail) is bytes
    assert 0 < len(sending.key) <= NAME_CHARACTERS_MAX
    assert all(type(each) is str for each in sending.blobs)
    assert sending.author is None or (type(sending.author[0]), type(sending.author[1])) == (str, int)


@given(st.sampled_from(["session", "epoch", "next"]), plain)
def test_a_wish_to_listen_with_anything_in_any_field_is_one_or_a_frame_error(name: str, value: Any) -> None:
    """What is let through can be looked up and compared."""
    try:
        listening = listening_from_wire({**LISTENING, name: value})
    except FrameError:
        return
    assert listening.session
    assert (type(listening.epoch), type(listening.next)) == (int, int)
    assert min(listening.epoch, listening.next) >= 0


@pytest.mark.parametrize("message", [{}, {"id": None}, {"id": True}, {"id": "1"}, {"id": 1.0}], ids=repr)
def test_a_request_without_a_number_is_a_frame_error(message: dict[str, Any]) -> None:
    """It couldn't be answered."""
    with pytest.raises(FrameError):
        number_of(message)


POST = {"stream": "task-a", "tail": b"tail", "key": "task/ended", "header": {"kind": "task"}, "patch": {"by": "stop"}}
NOTICE = {"to": "otter", "tail": b"tail", "key": "task-a/ended"}
RECORDING = {"op": "record", "id": 1, "posts": [POST], "notices": [NOTICE]}


def test_records_of_tasks_are_read_field_by_field() -> None:
    """Posts and notices become the journal's and the inboxes'; what else stands there is left out."""
    recording = recording_from_wire({**RECORDING, "posts": [{**POST, "author": ["s", 1]}]})
    assert recording.posts == [Post("task-a", b"tail", "task/ended", {"kind": "task"}, {"by": "stop"})]
    assert recording.notices == [Sending("otter", b"tail", "task-a/ended", [], None)]
    assert recording.size == 8
    assert recording_from_wire({**RECORDING, "posts": []}).posts == []
    assert recording_from_wire({**RECORDING, "posts": [{**POST, "patch": None}]}).posts[0].patch is None


@given(st.sampled_from([*POST, *NOTICE]), plain)
def test_records_with_anything_in_any_field_are_records_or_a_frame_error(name: str, value: Any) -> None:
    """What is let through has the types that the journal relies on."""
    try:
        recording = recording_from_wire(
            {**RECORDING, "posts": [{**POST, name: value}], "notices": [{**NOTICE, name: value}]}
        )
    except FrameError:
        return
    (post,), (notice,) = recording.posts, recording.notices
    assert (type(post.tail), type(post.key)) == (type(notice.tail), type(notice.key)) == (bytes, str)
    assert encode_patch(post.header)
    assert post.patch is None or encode_patch(post.patch)


@given(plain)
def test_no_records_at_all_are_a_frame_error(value: Any) -> None:
    """Anything in the place of the lists, or of one of their members."""
    for message in (
        {"posts": value, "notices": []},
        {"posts": [], "notices": [value]},
        {"posts": [value], "notices": []},
    ):
        with pytest.raises(FrameError):
            recording_from_wire(message)


def test_records_that_one_batch_may_not_hold_are_a_frame_error() -> None:
    """Too many, too large together, or several of one task, whose patches would add up."""
    posts = [{**POST, "stream": f"task-{number}"} for number in range(RECORDS_MAX + 1)]
    assert len(recording_from_wire({"posts": posts[1:], "notices": []}).posts) == RECORDS_MAX
    large = [{**each, "tail": b"x" * (RECORDS_BYTES_MAX // 2 + 1)} for each in posts[:2]]
    for refused in (posts, [POST, POST], large):
        with pytest.raises(FrameError):
            recording_from_wire({"posts": refused, "notices": []})
