"""One connection to the process that serves an actor, as its caller has it: what is on its way, and what is answered.

It begins with a greeting and ends once: with the actor, with that process, or with what no server says. Then every
call that waits is told whether it may have been done. It is never used again.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any

import anyio

from ..actor_ref import ActorEnd
from ..errors import ActorNotStarted, ActorUnknown, MessageTooLarge, error_from_wire
from ..frame_socket import FrameSocket, peer_of
from ..frames import FrameError, encode_frame
from ..identity import process_state
from ..inheritance import close_in_children
from ..interrupts import without_interrupts
from ..letters import Letter
from ..mailbox import MailboxFull, MailboxStatistics
from . import protocol
from .protocol import Goodbye


class Conversation:
    """A caller's connection. Whoever makes it runs `live` in a task; any task of that loop may send."""

    def __init__(self, name: str, connection: socket.socket, version: str) -> None:
        """Begin with a connection that may still wait to be accepted; `version` is this side's."""
        close_in_children(connection)
        self.was_greeted = False
        self.was_refused = False
        """Whether it is over because one side said that the other is no partner."""
        self.greeted = anyio.Event()
        """Set once it was, or is over."""
        self.over = anyio.Event()
        self.reason = ""
        """Why it is over."""
        self.end: ActorEnd | None = None
        """How the actor ended, if that is why."""
        self._pid = peer_of(connection)[0]
        self._name = name
        self._version = version
        self._handlers: frozenset[str] = frozenset()
        self._frames = FrameSocket(connection, anyio)
        self._calls: dict[int, Letter] = {}
        self._stops: dict[int, Letter] = {}
        self._called_back: dict[int, str] = {}
        self._waiting: set[int] = set()
        self._senders = 0
        self._room = anyio.Semaphore(protocol.CALLS_MAX, fast_acquire=True)
        self._sending = anyio.Lock(fast_acquire=True)
        self._sent = anyio.Event()
        self._unsent = anyio.Event()
        self._write(protocol.hello(os.getpid(), version))

    async def live(self) -> None:
        """Greet and hear the server until the conversation is over. Cancelled, it is over too."""
        self.reason = "this side ended the connection"
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(without_interrupts(self._send_rest))
                try:
                    await self._hear()
                except FrameError as error:
                    self.was_refused = True
                    self.reason = error.reason
                    self._write({"goodbye": error.reason})
                except Goodbye as goodbye:
                    self._take_goodbye(goodbye)
                except (OSError, anyio.ClosedResourceError):
                    self.reason = f"its process {self._pid} ended, or the connection to it, without a word"
                self._finish()  # before anything else can run, and send
                tasks.cancel_scope.cancel()
        finally:
            self._finish()

    # -- Sending

    async def send(self, number: int, method: str, letter: Letter) -> bool:
        """Send the frame that a letter has, after those before it, when there is room; the letter gets the answer.

        Cancelled, it was not sent. False: it can't be sent here. Raises AttributeError: the actor has no such handler.
        """
        self._senders += 1
        try:
            async with self._sending:
                if not self.greeted.is_set():
                    await self.greeted.wait()
                if self.was_greeted:
                    self._require_handler(method)
                await self._room.acquire()
                try:
                    while self._frames.unsent and not self.over.is_set():
                        self._sent = anyio.Event()
                        await self._sent.wait()
                except BaseException:
                    self._room.release()
                    raise
                return self._send_now(number, letter)
        finally:
            self._senders -= 1

    def send_nowait(self, number: int, method: str, letter: Letter) -> bool:
        """Send a call now, as `send` does. Raises MailboxFull: it, or one before it, would wait."""
        if self.was_greeted:
            self._require_handler(method)
        if self._waiting or self._senders or self._frames.unsent:
            raise MailboxFull
        try:
            self._room.acquire_nowait()
        except anyio.WouldBlock:
            raise MailboxFull from None
        return self._send_now(number, letter)

    async def send_stop(self, number: int, letter: Letter) -> bool:
        """Send the wish to stop, which waits for no room; otherwise as `send`."""
        await self.greeted.wait()
        if self.over.is_set() or len(self._stops) >= protocol.STOPS_MAX:
            return False
        letter.begun = True
        self._stops[number] = letter
        self._send_frame(letter.message)
        return True

    def call_back(self, number: int, reason: str) -> None:
        """Say that nobody waits for a call any more. If it isn't in the mailbox it will not be; its letter tells."""
        if number in self._calls:
            self._called_back[number] = reason
            self._write([protocol.CALL_BACK, number])

    def statistics(self) -> MailboxStatistics:
        """Return what is on its way: calls that aren't answered, their bytes, and who waits for room here or there."""
        size = sum(letter.size for letter in self._calls.values())
        return MailboxStatistics(len(self._calls), size, self._senders + len(self._waiting))

    def _require_handler(self, method: str) -> None:
        if method not in self._handlers:
            known = ", ".join(sorted(self._handlers)) or "none"
            raise AttributeError(f"{self._name} has no handler {method!r}; its handlers: {known}")

    def _send_now(self, number: int, letter: Letter) -> bool:
        """Send a call that has its room, or give that back."""
        try:
            if self.over.is_set():
                raise ConnectionResetError
            if not self._frames.send_nowait(letter.message):
                self._unsent.set()
        except OSError:
            self._room.release()
            return False
        letter.begun = True
        self._calls[number] = letter
        return True

    def _write(self, message: Any) -> None:
        self._send_frame(encode_frame(message))

    def _send_frame(self, frame: bytes) -> None:
        with suppress(OSError):  # it has ended, which whoever hears it notices
            if not self._frames.send_nowait(frame):
                self._unsent.set()

    async def _send_rest(self) -> None:
        with suppress(OSError, anyio.ClosedResourceError):
            while True:
                await self._unsent.wait()
                self._unsent = anyio.Event()
                await self._frames.drain()
                self._sent.set()

    # -- Hearing

    async def _hear(self) -> None:
        with anyio.move_on_after(protocol.GREETING_SECONDS) as waiting:
            self._handlers = protocol.read_hello(await self._receive(), self._version).handlers
            self.was_greeted = True
            self.greeted.set()
        if waiting.cancelled_caught:
            raise FrameError(f"its process {self._pid} doesn't answer ({process_state(self._pid)})")
        while True:
            self._take(*protocol.read_answer(await self._receive()))

    async def _receive(self) -> Any:
        message = await self._frames.receive()
        if message is None:
            raise ConnectionResetError
        return message

    def _take(self, kind: str, number: int, content: list[Any]) -> None:
        if number not in self._calls and number not in self._stops:
            raise FrameError(f"the server answers call {number}, which isn't there")
        if kind == protocol.WAITS:
            self._waiting.add(number)
            return
        if number in self._stops:
            letter = self._stops.pop(number)
        else:
            letter = self._calls.pop(number)
            self._room.release()
        self._waiting.discard(number)
        called_back = self._called_back.pop(number, "nobody waited for it")
        match kind, content:
            case protocol.REPLY, [value]:
                letter.reply(value)
            case protocol.ERROR, [error]:
                letter.fail(error_from_wire(error))
            case protocol.NOT_STARTED, [reason]:
                letter.fail(ActorNotStarted(letter.call, reason))
            case protocol.UNKNOWN, [reason]:
                letter.fail(ActorUnknown(letter.call, reason))
            case protocol.TOO_LARGE, [size, limit, holder]:
                letter.fail(MessageTooLarge(size, limit, holder))
            case protocol.CALLED_BACK, [was_posted]:
                letter.begun = was_posted
                letter.lose(called_back if was_posted else f"{called_back}, mailbox full")

    def _take_goodbye(self, goodbye: Goodbye) -> None:
        self.reason = goodbye.reason
        self.was_refused = goodbye.ended is None
        if goodbye.ended is None:
            return
        reason, error, normal = goodbye.ended
        self.end = ActorEnd(reason, None if error is None else error_from_wire(error), normal)
        for letter in (*self._stops.values(), *self._calls.values()):
            letter.begun = False  # all that was read is answered

    def _finish(self) -> None:
        self.over.set()
        self.greeted.set()
        self._sent.set()
        for letter in (*self._stops.values(), *self._calls.values()):
            letter.lose(self.reason)
        for _ in self._calls:
            self._room.release()
        self._stops.clear()
        self._calls.clear()
        self._waiting.clear()
        self._frames.close()
