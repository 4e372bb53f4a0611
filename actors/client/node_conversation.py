"""The talk with the store's node about tasks: requests driven over an attachment, for as long as that lasts.

One for each client; it outlives the nodes. What the node says is received by whoever holds the attachment, and handed
on. On anyio, for any loop; for the loop that made it alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio

from .control_request import Request
from .node_requests import NodeRequests

if TYPE_CHECKING:
    from .joining import Attachment


class NodeConversation:
    """Asks the node, whichever process that is. Make it in the loop in which it is to talk."""

    def __init__(self) -> None:
        self.requests = NodeRequests()
        self._new_event: Callable[[], anyio.Event] = type(anyio.Event())

    async def ask(self, op: str, **what: Any) -> dict[str, Any]:
        """Ask the node something and wait for the answer; what is asked has to mean the same when it is asked twice.

        Cancelled, what was asked may have been done, or be done yet. Raises the error that the answer is, or that the
        store can't be reached.
        """
        request = self.requests.ask(op, **what)
        try:
            await self.wait_answer(request)
        finally:
            self.requests.abandon(request)
        return reply_to(request)

    async def wait_answer(self, *requests: Request) -> None:
        """Wait until one of these requests is answered. Cancelling ends the wait, and abandons nothing."""
        event = self._new_event()
        for request in requests:
            request.wake = event.set
        if not any(request.is_answered for request in requests):
            await event.wait()

    async def talk(self, attachment: Attachment) -> None:
        """Send what is asked until the connection has ended, which whoever hears the node notices too."""
        requests = self.requests
        try:
            with suppress(OSError):
                while True:
                    wanted = self._new_event()
                    requests.wake = wanted.set
                    if output := requests.next_output():
                        await attachment.send(output)
                    else:
                        await wanted.wait()
        finally:
            requests.wake = None
            requests.lost()


def reply_to(request: Request) -> dict[str, Any]:
    """Give the reply to an answered request. Raises the error that it is instead."""
    if request.error is not None:
        raise request.error
    assert request.reply is not None
    return request.reply
