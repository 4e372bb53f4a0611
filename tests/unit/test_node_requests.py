"""Unit: what a client asks its node, driven by hand: what goes out, whose an answer is, what a new node hears."""

from __future__ import annotations

from typing import Any

import pytest

from turnkeeper.actors.client.node_requests import NodeRequests
from turnkeeper.actors.errors import NodeNotAnswering, SessionClosed
from turnkeeper.actors.protocol import error_to_wire
from turnkeeper.runtime.frames import FRAME_BYTES_MAX, FrameDecoder, FrameError
from turnkeeper.storage.errors import NotFound


def sent(requests: NodeRequests) -> list[Any]:
    """Take what is to be sent now."""
    return FrameDecoder().feed(requests.next_output())


def test_requests_are_numbered_and_go_out_in_the_order_in_which_they_were_asked() -> None:
    """Each goes once; who drives is told that there is something to send."""
    requests, woken = NodeRequests(), []
    requests.wake = lambda: woken.append(True)
    requests.ask("wait_task", task="task-a", tree=False)
    requests.ask("live_tasks", session=None)
    assert sent(requests) == [
        {"op": "wait_task", "id": 1, "task": "task-a", "tree": False},
        {"op": "live_tasks", "id": 2, "session": None},
    ]
    assert sent(requests) == []
    assert len(woken) == 2


def test_answers_find_their_request_in_any_order() -> None:
    """Good ones and errors alike; what has no number is somebody else's."""
    requests = NodeRequests()
    first, second = requests.ask("wait_task"), requests.ask("wait_task")
    woken: list[int] = []
    first.wake, second.wake = lambda: woken.append(1), lambda: woken.append(2)
    requests.receive({"op": "state", "state": "serving"})
    requests.receive({"re": 2, "head": 3})
    assert (second.reply, first.is_answered, woken) == ({"re": 2, "head": 3}, False, [2])
    requests.receive({"re": 1, **error_to_wire(NotFound("task-a"))})
    assert isinstance(first.error, NotFound)
    assert (first.error.wanted, first.reply, woken) == ("task-a", None, [2, 1])


def test_all_that_is_unanswered_is_asked_again_of_the_next_node() -> None:
    """In the same order and with the same numbers; what was answered before isn't."""
    requests = NodeRequests()
    for task in ("a", "b", "c"):
        requests.ask("wait_task", task=task)
    assert len(sent(requests)) == 3
    requests.receive({"re": 2})
    requests.lost()
    assert [each["task"] for each in sent(requests)] == ["a", "c"]
    requests.lost()
    requests.ask("wait_task", task="d")
    assert [(each["id"], each["task"]) for each in sent(requests)] == [(1, "a"), (3, "c"), (4, "d")]


def test_the_node_is_told_of_those_that_nobody_waits_for_any_more() -> None:
    """One that it hasn't heard of yet never reaches it; a late answer to one that was abandoned is nothing."""
    requests = NodeRequests()
    heard = requests.ask("wait_task", task="a")
    sent(requests)
    unheard = requests.ask("wait_task", task="b")
    woken: list[bool] = []
    requests.wake = lambda: woken.append(True)
    requests.abandon(heard)
    requests.abandon(heard)
    requests.abandon(unheard)
    assert sent(requests) == [{"op": "forget", "ids": [1]}]
    assert woken == [True]
    requests.receive({"re": 1})
    assert not heard.is_answered
    requests.lost()
    assert sent(requests) == []


def test_a_new_node_isnt_told_to_forget_what_it_never_heard() -> None:
    """The numbers are the connection's, and end with it."""
    requests = NodeRequests()
    request = requests.ask("wait_task")
    sent(requests)
    requests.abandon(request)
    requests.lost()
    assert sent(requests) == []


def test_who_waits_is_told_that_the_store_cant_be_reached() -> None:
    """What was asked may have been done: it isn't asked again by itself, and later requests are asked as ever."""
    requests = NodeRequests()
    request, woken = requests.ask("start_task"), []
    request.wake = lambda: woken.append(True)
    sent(requests)
    error = NodeNotAnswering(7, "stopped")
    requests.fail(error)
    assert (request.error, woken) == (error, [True])
    requests.lost()
    requests.ask("wait_task")
    assert [each["op"] for each in sent(requests)] == ["wait_task"]


def test_after_the_end_everything_is_refused() -> None:
    """What waits is answered with the reason, and so is what is asked from then on; nothing goes out."""
    requests = NodeRequests()
    request, woken = requests.ask("wait_task"), []
    request.wake = lambda: woken.append(True)
    refusal = SessionClosed("the store")
    requests.end(refusal)
    later = requests.ask("wait_task")
    assert (request.error, later.error, woken) == (refusal, refusal, [True])
    assert sent(requests) == []


def test_a_forked_child_wakes_nobody() -> None:
    """Who waits is the parent's; here only what is asked from now on is refused."""
    requests = NodeRequests()
    request, woken = requests.ask("wait_task"), []
    request.wake = lambda: woken.append(True)
    requests.end(SessionClosed("the store"), wake=False)
    assert woken == []
    assert requests.ask("wait_task").is_answered


@pytest.mark.parametrize("number", [0, 2, -1, "1", None, True, 1.0])
def test_an_answer_to_what_was_never_asked_is_no_protocol(number: object) -> None:
    """The connection is of no more use, as with everything that can't be read."""
    requests = NodeRequests()
    requests.ask("wait_task")
    sent(requests)
    with pytest.raises(FrameError, match="nobody asked"):
        requests.receive({"re": number})


def test_what_no_frame_holds_is_refused_at_once() -> None:
    """The caller hears of it, and nothing else is disturbed: it took no number."""
    requests = NodeRequests()
    with pytest.raises(FrameError, match="over the limit"):
        requests.ask("start_task", argv=[b"x" * FRAME_BYTES_MAX])
    with pytest.raises(TypeError, match="can't cross"):
        requests.ask("start_task", argv=[object()])
    requests.ask("wait_task")
    assert sent(requests) == [{"op": "wait_task", "id": 1}]
