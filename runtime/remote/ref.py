"""The reference of an actor that another process serves under a name.

It means whoever serves that name: each call goes over the connection that stands, or over a new one. A call goes to one
incarnation at most: what was sent and not answered is never sent again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from itertools import count
from typing import Any

import anyio
from anyio.abc import TaskGroup

from ..actor_ref import SHUTDOWN_SECONDS, ActorEnd, ActorRef
from ..errors import ActorNotStarted, ActorUnknown
from ..frame_socket import peer_of
from ..frames import encode_frame
from ..interrupts import without_interrupts
from ..letters import Arguments, Keywords, Letter
from ..mailbox import MailboxStatistics
from ..message_frames import encode_message
from . import protocol
from .conversation import Conversation

CERTAINTY_SECONDS = 0.5
"""How much longer than its time an ask may take, to hear whether what was asked is in the actor's mailbox."""

STOP_PATIENCE_SECONDS = 5.0
"""How much longer than an actor may take to end its stop waits for the news."""

ATTEMPTS = 2
"""Connections that a call is tried on: one that stood may turn out to have ended."""

_NOTHING = MailboxStatistics(messages=0, bytes=0, senders_waiting=0)


class RemoteRef(ActorRef):
    """How tasks of this loop reach the actor of a name in another process.

    What differs from an actor of one's own: arguments and replies are plain values and cross as copies. An ask may take
    half a second more than its time, to be sure whether it was begun. A tell that is cancelled while it waits is called
    back, and was told all the same if it was in the mailbox by then; one whose connection ends is ActorUnknown; the
    first `tell_nowait` of a connection can't check the handler's name. `statistics` are of what this process has on its
    way. `stop` and `wait_ended` are about the incarnation that serves the name now, and a connection that is lost
    counts as its end.
    """

    def __init__(
        self,
        name: str,
        task_group: TaskGroup,
        connect: Callable[[], socket.socket],
        version: str,
        check: Callable[[], None],
    ) -> None:
        """Make a reference whose connections live in the task group.

        `connect` gives one to the process that serves the name now, or raises OSError; `check` raises why this
        reference can't be used any more.
        """
        super().__init__(name)
        self._tasks = task_group
        self._connect = connect
        self._version = version
        self._check = check
        self._conversation: Conversation | None = None
        self._numbers = count()

    async def ask(
        self,
        method: str,
        /,
        *arguments: Any,
        timeout: float | None = None,  # noqa: ASYNC109
        **keywords: Any,
    ) -> Any:
        number, letter = self._write(protocol.ASK, method, arguments, keywords)
        sent: Conversation | None = None
        late = f"no answer within {timeout:g} s" if timeout is not None else ""
        try:
            with anyio.move_on_after(timeout):
                sent = await self._send(letter, number, method)
                return await letter.wait()
            if sent is None:
                raise ActorNotStarted(letter.call, f"{late}, not sent yet")
            sent.call_back(number, late)
            with anyio.move_on_after(CERTAINTY_SECONDS):
                return await letter.wait()
            raise ActorUnknown(letter.call, late)
        except anyio.get_cancelled_exc_class():
            if sent is not None:
                sent.call_back(number, "its asker was cancelled")
            raise

    async def tell(self, method: str, /, *arguments: Any, **keywords: Any) -> None:
        number, letter = self._write(protocol.TELL, method, arguments, keywords)
        sent = await self._send(letter, number, method)
        try:
            await letter.wait()
        except anyio.get_cancelled_exc_class():
            sent.call_back(number, "its teller was cancelled")
            raise

    def tell_nowait(self, method: str, /, *arguments: Any, **keywords: Any) -> None:
        number, letter = self._write(protocol.TELL, method, arguments, keywords)
        for _ in range(ATTEMPTS):
            conversation = self._reach(letter.call)
            if conversation.send_nowait(number, method, letter):
                return
            self._conversation = None
        raise ActorNotStarted(letter.call, "its process ended a moment ago")

    async def stop(self, shutdown_seconds: float | None = None) -> ActorEnd:
        seconds = SHUTDOWN_SECONDS if shutdown_seconds is None else shutdown_seconds
        return await self._stop(seconds, protocol.STOP, shutdown_seconds)

    async def kill(self) -> ActorEnd:
        return await self._stop(0, protocol.KILL)

    async def _stop(self, seconds: float, kind: str, *content: Any) -> ActorEnd:
        """Have it end, and wait until that has happened or should have. Shielded."""
        number = next(self._numbers)
        frame = encode_frame([kind, number, *content])
        letter = Letter(f"{self.name}.{kind}", frame, len(frame))
        patience = seconds + STOP_PATIENCE_SECONDS
        with anyio.CancelScope(shield=True), anyio.move_on_after(patience):
            try:
                conversation = await self._send(letter, number, None)
            except ActorNotStarted as gone:
                return self.end or ActorEnd(gone.reason)
            try:
                await letter.wait()
            finally:
                await conversation.over.wait()
            return conversation.end or ActorEnd(conversation.reason)
        raise ActorUnknown(letter.call, f"no answer within {patience:g} s")

    async def wait_ended(self) -> ActorEnd:
        try:
            conversation = self._reach(self.name)
        except ActorNotStarted as gone:
            return self.end or ActorEnd(gone.reason)
        await conversation.over.wait()
        return conversation.end or ActorEnd(conversation.reason)

    @property
    def end(self) -> ActorEnd | None:
        conversation = self._conversation
        return conversation.end if conversation is not None else None

    def statistics(self) -> MailboxStatistics:
        return self._conversation.statistics() if self._conversation is not None else _NOTHING

    def _write(self, kind: str, method: str, arguments: Arguments, keywords: Keywords) -> tuple[int, Letter]:
        self._check()
        number = next(self._numbers)
        frame = encode_message([kind, number, method, arguments, keywords], arguments=3, keywords=4)
        return number, Letter(f"{self.name}.{method}", frame, len(frame))

    async def _send(self, letter: Letter, number: int, method: str | None) -> Conversation:
        """Send a call, or without a method a stop, to whoever serves the name. Cancelled, it was not sent.

        Raises:
            ActorNotStarted: Nobody does. AttributeError: That one has no such handler.
        """
        reason = ""
        for _ in range(ATTEMPTS):
            conversation = self._reach(letter.call)
            if method is None:
                sent = await conversation.send_stop(number, letter)
            else:
                sent = await conversation.send(number, method, letter)
            if sent:
                return conversation
            # The other side has closed it, and what it said before comes now.
            await conversation.over.wait()
            reason = conversation.reason
            if conversation.was_refused:
                break
        raise ActorNotStarted(letter.call, reason)

    def _reach(self, call: str) -> Conversation:
        """Give the conversation that stands, or begin one."""
        self._check()
        former = self._conversation
        if former is not None and not former.over.is_set():
            return former
        try:
            connection = self._connect()
        except OSError as error:
            ended = former.end if former is not None else None
            raise ActorNotStarted(call, ended.reason if ended else _why_not_reached(error)) from None
        user = peer_of(connection)[1]
        if user != os.geteuid():
            connection.close()
            raise ActorNotStarted(call, f"it is served by user {user}, and this is user {os.geteuid()}")
        conversation = self._conversation = Conversation(self.name, connection, self._version)
        self._tasks.start_soon(without_interrupts(conversation.live), name=f"caller of {self.name}")
        return conversation


def _why_not_reached(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no actor of this name is there"
    if isinstance(error, ConnectionRefusedError):
        return "no actor of this name is there; the process of the last one has ended"
    if isinstance(error, BlockingIOError):
        return "too many wait to be heard by its process"
    return f"it can't be reached ({error.strerror or error})"
