"""Waiting for the ends of tasks: of all, of any, or until one fails.

A wait asks the node, which answers at once where the task has ended, and otherwise when its end is stored. So it
doesn't matter whether a wait begins before, at or after the end, nor which node hears it. Nothing here ends a task.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Literal, get_args

import anyio

from turnkeeper.storage.requests import StreamRow

from ..client.control_request import Request
from ..client.node_conversation import NodeConversation, reply_to
from ..protocol import WAIT_TASK
from .starting import SECONDS_MAX, is_seconds
from .state import TaskState

Until = Literal["all", "any", "first_failure"]

UNTIL: Final[tuple[str, ...]] = get_args(Until)


def check_wait(until: str, timeout: object) -> None:
    """Raise ValueError for what nobody can wait for, or no timeout: a number of seconds from 0 on, or None."""
    if until not in UNTIL:
        raise ValueError(f"until is one of {', '.join(UNTIL)}, not {until!r:.100}")
    if timeout is not None:
        check_seconds("a wait's timeout", timeout)


def check_seconds(what: str, seconds: object) -> None:
    """Raise ValueError for what is no time to wait."""
    if not is_seconds(seconds):
        raise ValueError(f"{what} is a number of seconds from 0 up to {SECONDS_MAX:,}, not {seconds!r:.100}")


def has_failed(state: TaskState) -> bool:
    """Say whether a task that is over ended otherwise than with exit code 0, or is lost."""
    return state.code != 0


def state_from_wire(task: str, reply: dict[str, Any]) -> TaskState:
    """Read a task's state from a node's answer."""
    return TaskState.from_row(StreamRow(task, reply["head"], 0, 0, 0, reply["summary"]))


async def collect_ends(
    node: NodeConversation, tasks: Collection[str], ends: dict[str, TaskState], *, until: Until, tree: bool
) -> None:
    """Put the ends of tasks, which are named by their ids, into `ends` as they come, until the wait is met.

    With `tree` a task counts when nothing that it started is left. Cancelled, those are there that had come. Raises
    NotFound or WrongKind for what is no task, and that the store can't be reached.
    """
    waiting = {task: node.requests.ask(WAIT_TASK, task=task, tree=tree) for task in tasks}
    try:
        while waiting:
            for task in [task for task, request in waiting.items() if request.is_answered]:
                ends[task] = end = state_from_wire(task, reply_to(waiting.pop(task)))
                if until == "any" or (until == "first_failure" and has_failed(end)):
                    return
            if waiting:
                await node.wait_answer(*waiting.values())
    finally:
        for request in waiting.values():
            node.requests.abandon(request)


class EndWatch:
    """Says, as often as it is asked, whether a task has ended by now; one question to the node for all of them."""

    def __init__(self, node: NodeConversation, task: str) -> None:
        self._node = node
        self._task = task
        self._request: Request | None = None

    async def __call__(self, seconds: float) -> bool:
        """Wait until it has ended, but no longer than so many seconds, and say whether it has.

        Raises that the store can't be reached; asked again, it waits for the node that comes.
        """
        if self._request is None:
            self._request = self._node.requests.ask(WAIT_TASK, task=self._task, tree=False)
        with anyio.move_on_after(seconds):
            await self._node.wait_answer(self._request)
        if not self._request.is_answered:
            return False
        request = self._request
        if request.error is not None:
            self._request = None
        reply_to(request)
        return True

    def close(self) -> None:
        """Ask no more."""
        if self._request is not None:
            self._node.requests.abandon(self._request)
            self._request = None
