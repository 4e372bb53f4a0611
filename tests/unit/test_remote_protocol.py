"""What servers of actors and their callers say: what may be said is read, and all else is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.runtime.errors import error_to_wire
from turnkeeper.runtime.frames import FrameError
from turnkeeper.runtime.remote import protocol
from turnkeeper.runtime.remote.protocol import Call, CallBack, Ended, Goodbye, Hello, Stop

ERROR = error_to_wire(KeyError("x"))

WORDS = st.sampled_from(
    [*protocol._ANSWERS, "ask", "tell", "stop", "kill", "call back", "goodbye", "ended", "protocol"]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.binary(max_size=3) | st.just(ERROR),
    lambda each: st.lists(each, max_size=6) | st.dictionaries(WORDS | st.integers(), each, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("message", "request_"),
    [
        (["ask", 3, "note", [1, b"x"], {"a": None}], Call(3, True, "note", [1, b"x"], {"a": None})),
        (["tell", 0, "note", [], {}], Call(0, False, "note", [], {})),
        (["stop", 4, 0.5], Stop(4, 0.5)),
        (["stop", 4, None], Stop(4, None)),
        (["kill", 4], Stop(4, None, at_once=True)),
        (["call back", 3], CallBack(3)),
    ],
)
def test_a_callers_request_is_read(message: Any, request_: Any) -> None:
    """Each of them, with what belongs to it."""
    assert protocol.read_request(message) == request_


@pytest.mark.parametrize(
    "message",
    [
        None,
        "ask",
        [],
        ["ask"],
        ["shout", 1, "note", [], {}],
        ["ask", -1, "note", [], {}],
        ["ask", True, "note", [], {}],
        ["ask", "1", "note", [], {}],
        ["ask", 1, b"note", [], {}],
        ["ask", 1, "note", {}, {}],
        ["ask", 1, "note", [], []],
        ["ask", 1, "note", [], {1: 2}],
        ["ask", 1, "note", [], {}, 5],
        ["stop", 1, -1],
        ["stop", 1, float("nan")],
        ["stop", 1, True],
        ["kill", 1, 2],
        ["call back"],
        {"hello": 1},
        {"goodbye": 1},
    ],
)
def test_what_no_caller_says_is_refused(message: Any) -> None:
    """Whatever it is instead."""
    with pytest.raises(FrameError):
        protocol.read_request(message)


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (["waits", 1], ("waits", 1, [])),
        (["reply", 2, {"a": 1}], ("reply", 2, [{"a": 1}])),
        (["error", 2, ERROR], ("error", 2, [ERROR])),
        (["not started", 2, "why"], ("not started", 2, ["why"])),
        (["too large", 2, 10, 5, "frame"], ("too large", 2, [10, 5, "frame"])),
        (["called back", 2, False], ("called back", 2, [False])),
    ],
)
def test_a_servers_answer_is_read(message: Any, answer: Any) -> None:
    """Each of them, with what belongs to it."""
    assert protocol.read_answer(message) == answer


@pytest.mark.parametrize(
    "message",
    [
        None,
        ["reply", 1],
        ["reply", None, 1],
        ["waits", 1, 2],
        ["error", 1, {}],
        ["error", 1, {**ERROR, "class": "KeyError"}],
        ["error", 1, {**ERROR, "class": [["a"], "b"]}],
        ["error", 1, {**ERROR, "args": 5}],
        ["not started", 1, None],
        ["too large", 1, "a", "b", "mailbox"],
        ["called back", 1, "yes"],
        [["reply"], 1, 2],
    ],
)
def test_what_no_server_says_is_refused(message: Any) -> None:
    """Whatever it is instead."""
    with pytest.raises(FrameError):
        protocol.read_answer(message)


def test_a_greeting_says_who_it_is_and_what_can_be_asked() -> None:
    """What one side says first is what the other reads."""
    assert protocol.read_hello(protocol.hello(7, "1.0", frozenset({"note"})), "2.0") == Hello(7, frozenset({"note"}))


def test_another_protocol_is_refused_with_both_versions() -> None:
    """The reason says who is what, and what to do."""
    theirs = {**protocol.hello(7, "9.9"), "protocol": 99, "more": "of that version"}
    with pytest.raises(FrameError) as caught:
        protocol.read_hello(theirs, "1.0")
    assert caught.value.reason == (
        "process 7 is turnkeeper 9.9 (actor protocol 99), "
        f"and this is turnkeeper 1.0 (actor protocol {protocol.PROTOCOL}); use one version"
    )


@pytest.mark.parametrize("message", [None, [], {}, {"protocol": 1}, {"protocol": 1, "pid": "7"}, ["kill", 1]])
def test_what_is_no_greeting_is_refused(message: Any) -> None:
    """Also a call, before any greeting."""
    with pytest.raises(FrameError, match="a greeting is expected first"):
        protocol.read_hello(message, "1.0")


def test_a_goodbye_is_understood_at_any_time() -> None:
    """As a first word, in place of a request, in place of an answer; with an actor's end where that is why."""
    for message, ended in [
        ({"goodbye": "enough"}, None),
        ({"goodbye": "enough", "ended": ["it failed", ERROR, False]}, Ended("it failed", ERROR, False)),
        ({"goodbye": "enough", "ended": ["it was stopped", None, True]}, Ended("it was stopped", None, True)),
        ({"goodbye": "enough", "ended": "somehow"}, None),
    ]:
        for read in (protocol.read_request, protocol.read_answer):
            with pytest.raises(Goodbye) as caught:
                read(message)
            assert (caught.value.reason, caught.value.ended) == ("enough", ended)
        with pytest.raises(Goodbye):
            protocol.read_hello(message, "1.0")


@given(ANYTHING)
def test_any_message_is_read_or_refused(message: Any) -> None:
    """Nothing that a frame can hold raises anything else."""
    for read in (protocol.read_request, protocol.read_answer, lambda each: protocol.read_hello(each, "1.0")):
        try:
            read(message)
        except (FrameError, Goodbye):
            continue
