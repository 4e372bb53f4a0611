"""The talk with the store's writer: a link driven over a connection, for as long as that lasts.

Whoever has a link makes one conversation for it, and hands it each connection in turn; what a broken one left
unanswered goes out again over the next. On anyio, for any loop; for the loop that made it alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from turnkeeper.runtime.frame_socket import FrameSocket
from turnkeeper.runtime.frames import FrameError
from turnkeeper.runtime.interrupts import without_interrupts

from ..protocol import check_hello
from .control_request import Request
from .link import Link


async def hear_hello(writer: FrameSocket) -> dict[str, Any]:
    """Wait for the writer's greeting. Cancelling it loses nothing: hear again.

    Raises OSError if it has ended, FrameError, and what `check_hello` raises.
    """
    hello = await writer.receive()
    if hello is None:
        raise ConnectionResetError("the writer ended before its hello")
    return check_hello(hello)


class Conversation:
    """Drives `link`. Make it in the loop in which it is to talk."""

    def __init__(self, link: Link) -> None:
        self._link = link
        # The loop's own class: asking anyio for the loop each time costs more than making the event.
        self.new_event: Callable[[], anyio.Event] = type(anyio.Event())

    async def talk(self, writer: FrameSocket) -> None:
        """Send and receive over a connection that was greeted, until it has ended, and close it."""
        receive = self._link.receive
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(without_interrupts(self._send), writer)
                with suppress(OSError, FrameError):
                    while messages := await writer.receive_all():
                        for message in messages:
                            receive(message)
                        # Who was woken goes first, and doesn't wait for what it takes to wait for more.
                        await checkpoint()
                tasks.cancel_scope.cancel()
        finally:
            writer.close()
            self._link.lost()

    async def answered(self, request: Request) -> dict[str, Any]:
        """Wait for the answer to a request and return it, or raise the error that it is."""
        if not request.is_answered:
            event = self.new_event()
            request.wake = event.set
            try:
                await event.wait()
            except BaseException:
                self._link.abandon(request)
                raise
        if request.error is not None:
            raise request.error
        assert request.reply is not None
        return request.reply

    async def _send(self, writer: FrameSocket) -> None:
        """Send what the link has until the connection breaks, mostly all that one turn of the loop brings in one frame.

        What goes at once is sent from within the call that brings it.
        """
        link = self._link
        wanted = self.new_event()

        def wake() -> None:
            if link.goes_at_once and not writer.unsent:
                with suppress(OSError):  # the connection broke, which whoever reads from it hears too
                    if writer.send_nowait(link.next_output()):
                        return
            wanted.set()

        link.wake = wake
        try:
            while True:
                if writer.unsent:
                    await writer.drain()
                elif output := link.next_output():
                    writer.send_nowait(output)
                else:
                    wanted = self.new_event()
                    await wanted.wait()
        except OSError:
            pass
        finally:
            link.wake = None
