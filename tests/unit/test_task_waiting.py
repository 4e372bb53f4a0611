"""Unit: waits for tasks, with a node that is driven by hand: when each is met, what it gives, and what it leaves."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from turnkeeper.actors.client.node_conversation import NodeConversation
from turnkeeper.actors.errors import NodeNotAnswering, NotFound
from turnkeeper.actors.protocol import error_to_wire
from turnkeeper.actors.tasks.state import TaskState
from turnkeeper.actors.tasks.waiting import (
    EndWatch,
    Until,
    check_seconds,
    check_wait,
    collect_ends,
    has_failed,
    state_from_wire,
)
from turnkeeper.runtime.frames import FrameDecoder

pytestmark = pytest.mark.anyio

A, B, C = "task-a", "task-b", "task-c"


class Node:
    """Answers a conversation's questions when the test says so."""

    def __init__(self) -> None:
        self.conversation = NodeConversation()
        self.asked: dict[str, int] = {}
        self.forgotten: list[int] = []

    def hear(self) -> None:
        """Take what was sent."""
        for message in FrameDecoder().feed(self.conversation.requests.next_output()):
            if message["op"] == "forget":
                self.forgotten += message["ids"]
            else:
                self.asked[message["task"]] = message["id"]

    def say(self, task: str, **summary: Any) -> None:
        """Say that a task has ended."""
        answer = {"re": self.asked[task], "head": 3, "summary": {"kind": "task", "state": "ended", **summary}}
        self.conversation.requests.receive(answer)

    def refuse(self, task: str, error: Exception) -> None:
        """Answer with an error."""
        assert isinstance(error, NotFound)
        self.conversation.requests.receive({"re": self.asked[task], **error_to_wire(error)})


class Wait:
    """A wait for three tasks, in a task of its own."""

    def __init__(self, node: Node, until: Until = "all", *, tree: bool = False) -> None:
        self.node = node
        self.ends: dict[str, TaskState] = {}
        self.has_ended = False
        self._until: Until = until
        self._tree = tree

    async def run(self) -> None:
        """Wait."""
        node = self.node.conversation
        await collect_ends(node, (A, B, C), self.ends, until=self._until, tree=self._tree)
        self.has_ended = True

    async def settle(self) -> None:
        """Let it come to where it waits."""
        await anyio.wait_all_tasks_blocked()
        self.node.hear()


async def test_all_are_waited_for_in_any_order() -> None:
    """It is met with the last end; each gives its state."""
    wait = Wait(node := Node())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait.run)
        await wait.settle()
        for task, code in ((C, 3), (A, 0)):
            node.say(task, how={"code": code}, by="itself")
            await wait.settle()
            assert not wait.has_ended
        node.say(B, how={"signal": 9}, by="unknown")
    assert {task: state.how for task, state in wait.ends.items()} == {A: {"code": 0}, B: {"signal": 9}, C: {"code": 3}}
    assert node.forgotten == []


@pytest.mark.parametrize(
    ("until", "ends", "met_by"),
    [
        ("any", [(B, {"how": {"code": 0}})], B),
        ("first_failure", [(A, {"how": {"code": 0}}), (B, {"how": {"code": 1}})], B),
        ("first_failure", [(B, {"how": {"signal": 15}})], B),
        ("first_failure", [(C, {"state": "lost", "why": "its shim was killed"})], C),
        ("first_failure", [(C, {"how": {"not_started": "no such file"}})], C),
    ],
)
async def test_one_end_may_be_enough(until: Until, ends: list[tuple[str, dict[str, Any]]], met_by: str) -> None:
    """The node is told that nobody waits for the others any more."""
    wait = Wait(node := Node(), until)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait.run)
        for task, end in ends:
            await wait.settle()
            assert not wait.has_ended
            node.say(task, **end)
    node.hear()
    assert list(wait.ends) == [task for task, _ in ends]
    assert next(reversed(wait.ends)) == met_by
    assert set(node.forgotten) == {node.asked[task] for task in (A, B, C) if task not in wait.ends}


async def test_without_a_failure_all_are_waited_for() -> None:
    """A first failure that doesn't come is met by the last good end."""
    wait = Wait(node := Node(), "first_failure")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait.run)
        for task in (A, B, C):
            await wait.settle()
            assert not wait.has_ended
            node.say(task, how={"code": 0})
    assert wait.has_ended


async def test_a_cancelled_wait_keeps_the_ends_that_had_come() -> None:
    """And leaves no question behind."""
    wait = Wait(node := Node())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait.run)
        await wait.settle()
        node.say(A, how={"code": 0})
        await wait.settle()
        tasks.cancel_scope.cancel()
    node.hear()
    assert list(wait.ends) == [A]
    assert sorted(node.forgotten) == sorted([node.asked[B], node.asked[C]])
    node.say(B, how={"code": 0})


async def test_an_error_ends_the_wait_and_its_questions() -> None:
    """It comes out as it is, and in no group of ours."""
    wait = Wait(node := Node())
    errors: list[Exception] = []

    async def run() -> None:
        try:
            await wait.run()
        except NotFound as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await wait.settle()
        node.refuse(B, NotFound(B))
    node.hear()
    assert [str(error) for error in errors] == [str(NotFound(B))]
    assert sorted(node.forgotten) == sorted([node.asked[A], node.asked[C]])


async def test_nothing_to_wait_for_is_no_wait() -> None:
    """It asks nobody, whatever it is until."""
    node = Node()
    for until in ("all", "any", "first_failure"):
        await collect_ends(node.conversation, (), {}, until=until, tree=False)
    assert node.conversation.requests.next_output() == b""


async def test_a_watch_asks_once_however_often_it_is_asked() -> None:
    """It says no until the end has come, and yes from then on."""
    node = Node()
    watch = EndWatch(node.conversation, A)
    assert [await watch(0) for _ in range(3)] == [False, False, False]
    node.hear()
    assert node.asked == {A: 1}
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            assert await watch(30)

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        node.say(A, how={"code": 0})
    assert await watch(0)


async def test_a_watch_goes_on_after_an_error() -> None:
    """What the node couldn't be asked is asked anew."""
    node = Node()
    watch = EndWatch(node.conversation, A)
    assert not await watch(0)
    node.hear()
    node.conversation.requests.fail(NodeNotAnswering(7, "stopped"))
    with pytest.raises(NodeNotAnswering):
        await watch(30)
    assert not await watch(0)
    node.hear()
    node.say(A, how={"code": 0})
    assert await watch(30)


async def test_a_closed_watch_leaves_no_question() -> None:
    """One that never asked has nothing to close."""
    node = Node()
    EndWatch(node.conversation, B).close()
    watch = EndWatch(node.conversation, A)
    await watch(0)
    node.hear()
    watch.close()
    node.hear()
    assert node.forgotten == [1]


async def test_a_cancelled_question_is_taken_back() -> None:
    """The node is told, so that it needn't keep an answer for nobody."""
    node = Node()
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            await node.conversation.ask("wait_task", task=A)

        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        node.hear()
        tasks.cancel_scope.cancel()
    node.hear()
    assert node.forgotten == [1]


@pytest.mark.parametrize("seconds", [-1, float("nan"), True, "5", 10**12])
def test_what_is_no_timeout_is_refused(seconds: Any) -> None:
    """Nothing is asked then."""
    with pytest.raises(ValueError, match=r"a wait's timeout is a number of seconds from 0 up to"):
        check_wait("all", seconds)
    with pytest.raises(ValueError, match=r"a grace is a number of seconds"):
        check_seconds("a grace", seconds)


def test_no_timeout_and_one_of_nothing_are_good() -> None:
    """None waits as long as it takes, 0 not at all."""
    for seconds in (None, 0, 0.0, 5):
        check_wait("any", seconds)
    with pytest.raises(ValueError, match="until is one of all, any, first_failure, not 'some'"):
        check_wait("some", None)


@pytest.mark.parametrize(
    ("summary", "failed"),
    [
        ({"state": "ended", "how": {"code": 0}}, False),
        ({"state": "ended", "how": {"code": 1}}, True),
        ({"state": "ended", "how": {"signal": 15}, "by": "stop"}, True),
        ({"state": "lost"}, True),
    ],
)
def test_a_failure_is_whatever_isnt_exit_code_zero(summary: dict[str, Any], failed: bool) -> None:
    """A lost one failed, too: nobody saw it end well."""
    assert has_failed(state_from_wire(A, {"head": 1, "summary": summary})) is failed
