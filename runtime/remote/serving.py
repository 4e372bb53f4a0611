"""Serve an actor of this loop to callers in other processes, at a socket that listens, for as long as it lives.

Each connection is a task with a task for each of its calls, and a full mailbox or a caller that doesn't read holds up
that connection alone. What a caller has in the mailbox is handled though it goes away. For any event loop.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic

import anyio
from anyio.abc import TaskGroup, TaskStatus

from ..actor_ref import ActorEnd
from ..errors import ActorNotStarted, ActorUnknown, MessageTooLarge, error_to_wire
from ..frame_socket import FrameSocket, peer_of
from ..frames import FrameError, encode_frame
from ..inheritance import close_in_children
from ..interrupts import without_interrupts
from ..letters import seal_in_loop
from ..mailbox import MailboxFull
from ..message_frames import encode_message
from . import protocol
from .protocol import Call, CallBack, Goodbye, Stop
from .served import Served, Written

ACCEPT_RETRY_SECONDS = 0.1
"""Pause when a connection can't be accepted, mostly because no descriptor is left."""

_GONE = (OSError, anyio.ClosedResourceError)
"""What a connection that has ended raises."""


class ActorServer(Generic[Written]):
    """Serves the actor of one reference. `release` is called once, when it takes no more callers."""

    def __init__(
        self, ref: Served[Written], listener: socket.socket, version: str, release: Callable[[], None]
    ) -> None:
        """Begin with a socket that listens; whoever makes this has `finish` called when the actor has ended."""
        self.ref = ref
        self.version = version
        self.end: ActorEnd | None = None
        """How the actor has ended."""
        self.ended = anyio.Event()
        self.gone = anyio.Event()
        """Set when the actor has ended, and its last caller has gone."""
        self._listener = listener
        self._release = release
        self._is_over = False

    async def serve(self) -> None:
        """Serve callers until the actor has ended and they were told, or until cancelled."""
        try:
            async with anyio.create_task_group() as visits:
                visits.start_soon(without_interrupts(self._accept), visits)
                await self.ended.wait()
                visits.cancel_scope.deadline = anyio.current_time() + protocol.FAREWELL_SECONDS
        finally:
            self._take_no_more()
            self.gone.set()

    def finish(self, end: ActorEnd) -> None:
        """Say that the actor has ended; called before anybody is told, who then finds the name free."""
        self.end = end
        self._take_no_more()
        self.ended.set()

    def _take_no_more(self) -> None:
        if not self._is_over:
            self._is_over = True
            anyio.notify_closing(self._listener)
            self._release()

    async def _accept(self, visits: TaskGroup) -> None:
        while not self._is_over:
            try:
                await anyio.wait_readable(self._listener)
                connection, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError, anyio.ClosedResourceError):
                continue
            except OSError:
                await anyio.sleep(ACCEPT_RETRY_SECONDS)
            else:
                visits.start_soon(without_interrupts(_Visit(self, connection).live))


class _Visit(Generic[Written]):
    """One caller's connection."""

    def __init__(self, server: ActorServer[Written], connection: socket.socket) -> None:
        close_in_children(connection)
        self._server = server
        self._ref = server.ref
        self._connection = connection
        self._frames = FrameSocket(connection, anyio)
        self._sending = anyio.Lock()
        self._calls: dict[int, anyio.CancelScope] = {}
        self._held_bytes = 0
        self._last_posted = anyio.Event()
        self._last_posted.set()
        self._answers = 0
        self._change = anyio.Event()

    async def live(self) -> None:
        """Answer the caller until it goes away, says what can't be said, or the actor has ended."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(without_interrupts(self._leave_with_actor), tasks.cancel_scope)
                try:
                    await self._listen(tasks)
                except FrameError as error:
                    await self._say_goodbye({"goodbye": error.reason})
                except (Goodbye, *_GONE):
                    pass
                tasks.cancel_scope.cancel()
        finally:
            self._frames.close()

    async def _listen(self, tasks: TaskGroup) -> None:
        user = peer_of(self._connection)[1]
        if user != os.geteuid():
            raise FrameError(f"this actor is user {os.geteuid()}'s, and you are user {user}")
        await self._send(protocol.hello(os.getpid(), self._server.version, self._ref.handlers))
        with anyio.move_on_after(protocol.GREETING_SECONDS) as waiting:
            protocol.read_hello(await self._frames.receive(), self._server.version)
        if waiting.cancelled_caught:
            raise FrameError(f"no greeting came within {protocol.GREETING_SECONDS:g} s")
        while (message := await self._frames.receive()) is not None:
            request = protocol.read_request(message)
            if isinstance(request, CallBack):
                if request.number in self._calls:
                    self._calls[request.number].cancel()
                continue
            await self._admit(request, tasks)
            while self._held_bytes > protocol.HELD_BYTES_MAX or self._frames.unsent:
                await self._wait_change()

    async def _admit(self, request: Call | Stop, tasks: TaskGroup) -> None:
        if request.number in self._calls:
            raise FrameError(f"call {request.number} is there already")
        # Who has all its calls on their way can still say stop.
        most = protocol.CALLS_MAX if isinstance(request, Call) else protocol.CALLS_MAX + protocol.STOPS_MAX
        if len(self._calls) >= most:
            raise FrameError(f"there are more than {protocol.CALLS_MAX:,} calls at once")
        scope = self._calls[request.number] = anyio.CancelScope()
        if isinstance(request, Stop):
            await tasks.start(without_interrupts(self._stop), request)
            return
        size = _size_of(request)
        self._held_bytes += size
        letter = self._post_now(request)
        before = self._last_posted
        if letter is None:
            self._last_posted = anyio.Event()
        tasks.start_soon(without_interrupts(self._see_through), request, size, scope, letter, before, self._last_posted)

    async def _see_through(
        self,
        call: Call,
        size: int,
        scope: anyio.CancelScope,
        letter: Written | None,
        before: anyio.Event,
        posted: anyio.Event,
    ) -> None:
        """Post a call, if it isn't, when the one before it is in the mailbox or will not be; and answer it."""
        answer: list[Any]
        try:
            with scope:
                try:
                    if letter is None:
                        await before.wait()
                        letter = await self._post(call)
                finally:
                    posted.set()
                answer = [protocol.REPLY, call.number, await letter.wait() if call.wanted else None]
        except Exception as error:
            answer = _answer_for(call.number, error)
        finally:
            if letter is not None:
                letter.wanted = False
        if scope.cancelled_caught:
            answer = [protocol.CALLED_BACK, call.number, letter is not None]
        await self._answer(answer, size)

    def _post_now(self, call: Call) -> Written | None:
        """Put a call into the mailbox if it can be, and no other waits for room."""
        if not self._last_posted.is_set():
            return None
        try:
            with _mistakes_told(call):
                letter = self._write(call)
                self._ref.post_nowait(letter)
        except (ActorNotStarted, MailboxFull, MessageTooLarge):
            return None
        return letter

    async def _post(self, call: Call) -> Written:
        """Put a call into the mailbox. Raises ActorNotStarted, MessageTooLarge."""
        with _mistakes_told(call):
            letter = self._write(call)
            with suppress(MailboxFull, ActorNotStarted):  # waiting, it is said how the actor ended, too
                self._ref.post_nowait(letter)
                return letter
            await self._send([protocol.WAITS, call.number])
            await self._ref.post(letter)
            return letter

    def _write(self, call: Call) -> Written:
        letter = self._ref.write(call.method, tuple(call.arguments), call.keywords)
        letter.wanted = call.wanted
        return letter

    async def _stop(self, request: Stop, *, task_status: TaskStatus[None]) -> None:
        # Until it waits for the first time this task goes on, and then the mailbox is closed for all that comes behind.
        task_status.started()
        try:
            await (self._ref.kill() if request.at_once else self._ref.stop(request.seconds))
            answer = [protocol.REPLY, request.number, None]
        except Exception as error:
            answer = _answer_for(request.number, error)
        await self._answer(answer)

    async def _answer(self, answer: list[Any], size: int = 0) -> None:
        # Before it is sent: who has it may call again.
        del self._calls[answer[1]]
        self._answers += 1
        await self._send(answer)
        self._answers -= 1
        self._held_bytes -= size
        self._note_change()

    async def _leave_with_actor(self, everything: anyio.CancelScope) -> None:
        """When the actor has ended and everybody here was answered, say so and end the connection."""
        await self._server.ended.wait()
        end = self._server.end
        assert end is not None
        while self._calls or self._answers:
            await self._wait_change()
        error = None if end.error is None else error_to_wire(end.error)
        await self._say_goodbye({"goodbye": end.reason, "ended": [end.reason, error, end.normal]})
        everything.cancel()

    async def _wait_change(self) -> None:
        await self._change.wait()

    def _note_change(self) -> None:
        self._change.set()
        self._change = anyio.Event()

    async def _say_goodbye(self, goodbye: dict[str, Any]) -> None:
        with anyio.move_on_after(protocol.FAREWELL_SECONDS):
            await self._send(goodbye)

    async def _send(self, message: Any) -> None:
        """Send a message behind those that others send here. A caller that has gone is noticed where it is heard."""
        async with self._sending:
            # Only now: what waits here for a slow caller is no frame yet.
            frame = _encode(message)
            with suppress(*_GONE):
                if not self._frames.send_nowait(frame):
                    await self._frames.drain()
        self._note_change()


@contextmanager
def _mistakes_told(call: Call) -> Iterator[None]:
    """Make of a caller's mistake, that it should have noticed itself, an answer to it."""
    try:
        yield
    except (AttributeError, TypeError) as error:
        raise ActorNotStarted(call.method, str(error)) from error


def _size_of(call: Call) -> int:
    try:
        return seal_in_loop(call.method, tuple(call.arguments), call.keywords).size
    except RecursionError:
        raise FrameError("arguments are nested too deep") from None


def _encode(message: Any) -> bytes:
    try:
        return encode_message(message, reply=2) if isinstance(message, list) else encode_frame(message)
    except (TypeError, MessageTooLarge) as error:
        # The call was handled; what can't cross is its reply.
        return encode_frame([protocol.ERROR, message[1], error_to_wire(error)])


def _answer_for(number: int, error: Exception) -> list[Any]:
    if isinstance(error, ActorNotStarted):
        return [protocol.NOT_STARTED, number, error.reason]
    if isinstance(error, ActorUnknown):
        return [protocol.UNKNOWN, number, error.reason]
    if isinstance(error, MessageTooLarge):
        return [protocol.TOO_LARGE, number, error.size, error.limit, error.holder]
    return [protocol.ERROR, number, error_to_wire(error)]
