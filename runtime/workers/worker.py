"""Actors in worker processes of their own: started, asked, stopped and reaped from the host's loop.

A worker is a fresh Python in a process session of its own (worker_process.py), with multiprocessing's way of importing
the program's main module, which is done only if the actor's class is defined there. It is ready within a time or there
is an error, with what it last said. It ends with the actor, with the task group, or at once when the host dies;
worker_main.py is its side. One call at a time is with the worker; the rest waits in the mailbox here, and so is
certainly not started when the worker dies.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import anyio
from anyio.abc import TaskGroup, TaskStatus

from ..actor_ref import READY_SECONDS, SHUTDOWN_SECONDS
from ..actors import handlers_of
from ..errors import WorkerDied, WorkerStartError, error_from_wire
from ..frames import FrameDecoder, FrameError, encode_frame
from ..interrupts import without_interrupts
from ..large_bytes import ANCILLARY_BYTES, Memory, Parcel, memories_in, put_back, take_out, with_memory
from ..letters import Arguments, Keywords, Letter, LetterLost, LetterRefused, Sealed
from ..mailbox import BYTES_MAX, MESSAGES_MAX, Mailbox
from ..mailbox_ref import Life, MailboxRef
from ..message_frames import encode_message
from ..processes import describe_exit
from ..watchdog import PROCESS_BLOCKED_SECONDS, check_blocked_seconds
from .main_module import load_failure_from_wire, main_module_of, require_guarded_main
from .worker_news import ANSWERS, ENDED, REFUSED, REPLY, STARTED, read_news, read_readiness
from .worker_process import SpareWorker, WorkerProcess, import_path, launch, surroundings

LAST_NEWS_SECONDS = 0.5
"""How long to listen to a worker that has ended."""

READ_BYTES = 64 * 1024


async def spawn_in_process(
    task_group: TaskGroup,
    actor: type | str,
    *arguments: Any,
    name: str | None = None,
    messages_max: int = MESSAGES_MAX,
    bytes_max: int = BYTES_MAX,
    shutdown_seconds: float | None = SHUTDOWN_SECONDS,
    ready_seconds: float = READY_SECONDS,
    blocked_seconds: float | None = PROCESS_BLOCKED_SECONDS,
    spare: SpareWorker | None = None,
) -> MailboxRef:
    """Make an actor in a new worker process; return once it is ready.

    `actor` is a class that can be imported, or its "module:name", which the host then need not import. Arguments, of
    messages too, and replies are plain values and cross as copies. Byte strings of 1 MiB and more that are an argument
    of a message, or a reply, are copied once, and arrive as read-only memoryviews of what both processes share.

    The process lives in the task group until the actor ends. It is the `spare` one, if given, which is then refilled.
    Cancelled before the actor is ready, nothing is left. One whose event loop doesn't turn for `blocked_seconds` is
    killed, and its end tells where it was. None is never.

    Raises:
        WorkerStartError: The process did not come up, or could not import the class, within `ready_seconds`.
        UnguardedMain: This process is itself only importing the program's main module.
        ActorError: The class's constructor or its `__aenter__` failed. Registered errors arrive as what they are.
        TypeError: An argument can't cross, or `actor` is no class, or one without a handler.
        MessageTooLarge: The arguments are more than a frame holds.
    """
    require_guarded_main()
    maker: object = actor
    if not isinstance(maker, str | type):
        raise TypeError(f"an actor in a process is made by a class or its 'module:name', and not by {actor!r}")
    if isinstance(actor, type):
        handlers_of(actor)
    target = actor if isinstance(actor, str) else f"{actor.__module__}:{actor.__qualname__}"
    check_blocked_seconds(blocked_seconds)
    order = _start_order(target, arguments, blocked_seconds)
    mailbox = Mailbox[Letter](messages_max=messages_max, bytes_max=bytes_max)
    ref = MailboxRef(name or target.rpartition(":")[2], mailbox, shutdown_seconds)
    try:
        await task_group.start(
            without_interrupts(_live_in_process), Life(ref), order, ready_seconds, spare, name=ref.name
        )
    finally:
        if spare is not None:
            spare.refill()  # only now: its start would slow this one's
    return ref


class _StartOrder(NamedTuple):
    """What a new worker is to be, and the frame that tells it."""

    target: str
    boot: bytes


def _start_order(target: str, arguments: Arguments, blocked_seconds: float | None) -> _StartOrder:
    start = {
        "main": main_module_of(target),
        "path": [os.fsencode(each) for each in import_path()],
        "argv": [os.fsencode(each) for each in sys.argv],
        "environment": dict(os.environb),
        "blocked_seconds": blocked_seconds,
    }
    return _StartOrder(target, encode_message(["boot", target, arguments, start], arguments=2))


def seal_for_process(method: str, arguments: Arguments, keywords: Keywords) -> Sealed:
    """Make what asks a worker, a frame and memory for large byte strings; the mailbox counts the bytes of both."""
    slim = take_out(arguments, keywords)
    frame = encode_message(["call", method, slim.arguments, slim.keywords, *slim.places], arguments=2, keywords=3)
    return Sealed(Parcel(frame, slim.copied()), len(frame) + slim.size)


async def _live_in_process(
    life: Life, order: _StartOrder, ready_seconds: float, spare: SpareWorker | None, *, task_status: TaskStatus[None]
) -> None:
    worker = await _Worker.start(order, ready_seconds, spare)
    worker.when_lost = life.take_no_more
    started, in_order = False, False
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(without_interrupts(worker.listen))
            group.start_soon(without_interrupts(worker.heed_kill), life.kill_wished)
            try:
                with life.scope:
                    handlers = await worker.wait_started()
                    life.begin(handlers, seal_for_process, without_interrupts(worker.send_ahead))
                    task_status.started()
                    started = True
                    failure = await life.handle_letters(worker.call)
                    in_order = failure is None
            except LetterLost:
                pass
            finally:
                await worker.end(life.seconds_left(), now=not in_order)
    except BaseException:
        life.finish("it was cancelled")
        if worker.leaving_error is not None:
            raise worker.leaving_error from None
        raise
    finally:
        worker.close()
    if not started:
        raise worker.leaving_error or WorkerStartError(order.target, f"{worker.exit} before its actor was ready")
    if worker.leaving_error is not None:
        life.end_with(worker.leaving_error, failure)
    elif failure is not None:
        life.finish(f"it failed: {failure}", failure)
    else:
        is_normal = worker.ended_normally or life.kill_wished.is_set()
        life.finish(worker.how_it_ended(), worker.death(), normal=is_normal)


class _Worker:
    """One worker process, as its host has it."""

    def __init__(self, process: WorkerProcess) -> None:
        self.leaving_error: Exception | None = None
        """What the actor raised while it entered or left, if it did."""
        self.when_lost: Callable[[], None] | None = None
        """Called once the worker says nothing more."""
        self._process = process
        self._child = process.child
        self._connection = process.connection
        self._decoder = FrameDecoder()
        self._unsent: deque[_Unsent] = deque()
        self._memories: deque[Memory] = deque()
        self._answers: deque[list[Any]] = deque()
        self._asked: Letter | None = None
        self._due = frozenset({STARTED})
        self._nonsense = ""
        self._news = anyio.Event()
        self._listening, self._heeding = anyio.CancelScope(shield=True), anyio.CancelScope(shield=True)
        self._heard_all = anyio.Event()
        self._ended_unasked = False
        self._words = ""

    @classmethod
    async def start(cls, order: _StartOrder, ready_seconds: float, spare: SpareWorker | None) -> _Worker:
        """Boot a process and wait until it has imported the target. Cancelled or failing, nothing of it is left.

        Raises:
            WorkerStartError: It could not be started, ended or failed before it was ready, or took too long.
        """
        try:
            process = launch() if spare is None else await spare.take()
            try:
                with anyio.move_on_after(ready_seconds):
                    worker = cls(process)
                    await worker._boot(order)
                    return worker
                raise WorkerStartError(order.target, f"was not ready within {ready_seconds:g} s", process.last_words())
            except BaseException:
                await process.kill()
                raise
        except OSError as error:
            raise WorkerStartError(order.target, f"can't be started: {error}") from error

    @property
    def exit(self) -> str:
        """How the process ended."""
        exit = describe_exit(self._child.returncode)
        return f"{exit}: {self._nonsense}" if self._nonsense else exit

    @property
    def ended_normally(self) -> bool:
        """Whether it was told to end, or ended by itself with exit code 0."""
        return not self._ended_unasked or self._child.returncode == 0

    def how_it_ended(self) -> str:
        """Say how a worker ended whose actor did not fail."""
        process = f"its worker process {self._child.pid} {self.exit}"
        if self._ended_unasked:
            return f"{process}: {self._words.splitlines()[0]}" if self._words else process
        return "it was stopped" if self._child.returncode == 0 else f"it was stopped; {process}"

    def death(self) -> WorkerDied | None:
        """Give what it left as its last words, if it died and did."""
        return WorkerDied(self.how_it_ended(), self._words) if self._words else None

    async def listen(self) -> None:
        """Take what the worker says until it says nothing more, or what no worker says, which ends it.

        Shielded: it ends with `end`.
        """
        with self._listening, contextlib.suppress(OSError):
            try:
                while messages := await self._receive():
                    self._take(messages)
            except FrameError as error:
                self._nonsense = error.reason
                self._child.send_signal(signal.SIGKILL)
        self._heard_all.set()
        self._news.set()
        if self.when_lost is not None:
            self.when_lost()

    async def heed_kill(self, wished: anyio.Event) -> None:
        """Kill the process once that is wished, whatever is being waited for. Shielded: it ends with `end`."""
        with self._heeding:
            await wished.wait()
            self._child.send_signal(signal.SIGKILL)

    async def wait_started(self) -> frozenset[str]:
        """Wait until the actor is ready and return its handlers.

        Raises:
            LetterLost: The process ended instead.
        """
        _, handlers = await self._wait_answer()
        return frozenset(handlers)

    def send_ahead(self, letter: Letter) -> None:
        """Send of a letter what goes at once, when the worker has nothing else to do; `call` will do the rest."""
        try:
            self._begin(letter)
            self._send_now()
        except BlockingIOError:
            pass
        except OSError:  # the worker has ended, which its silence says
            letter.begun = False

    async def call(self, letter: Letter) -> Any:
        """Have the worker handle a letter and return the reply.

        Raises:
            LetterLost: The worker has ended, or ended meanwhile.
            LetterRefused: The handler raised a registered error.
            ActorError: The handler failed.
        """
        if self._heard_all.is_set():
            raise LetterLost
        with contextlib.suppress(OSError):  # it has ended, which its silence says
            if letter is not self._asked:
                self._begin(letter)
            await self._send_rest()
        kind, content = await self._wait_answer()
        if kind == REPLY:
            return content
        error = error_from_wire(content)
        raise LetterRefused(error) if kind == REFUSED else error

    async def end(self, seconds: float, *, now: bool) -> None:
        """Tell the worker to stop, see it end within the time or by signals, and hear what it still said. Shielded."""
        self._ended_unasked = self._heard_all.is_set()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(seconds):
                with contextlib.suppress(OSError):  # it has ended, or is about to
                    await self._send(encode_frame(["stop", now]))
                await self._child.wait()
            await self._child.end(shutdown_seconds=0)
            # A process that the actor forked, in a group of its own, may hold the connection open.
            with anyio.move_on_after(LAST_NEWS_SECONDS):
                await self._heard_all.wait()
        if self._ended_unasked:
            self._words = self._process.last_words()
        self._listening.cancel()
        self._heeding.cancel()

    def close(self) -> None:
        """Give up what belongs to a process that has ended."""
        self._process.close()

    async def _boot(self, order: _StartOrder) -> None:
        with surroundings() as descriptors, contextlib.suppress(OSError):  # it has ended, which its silence says
            sent = socket.send_fds(self._connection, [memoryview(order.boot)[:READ_BYTES]], descriptors)
            await self._send(order.boot[sent:])
        try:
            messages = await self._receive()
            failure = read_readiness(messages[0]) if messages else None
            self._take(messages[1:])
        except FrameError as error:
            raise WorkerStartError(order.target, f"can't be started: {error.reason}") from error
        if not messages:
            await self._child.wait()
            raise WorkerStartError(order.target, f"{self.exit} before it was ready", self._process.last_words())
        if failure is not None:
            raise load_failure_from_wire(order.target, failure)

    def _take(self, messages: list[Any]) -> None:
        """Take what the worker has said. Raises FrameError: It is not what is due."""
        for kind, content, places in map(read_news, messages):
            if kind == ENDED:
                self.leaving_error = None if content is None else error_from_wire(content)
                continue
            if kind not in self._due:
                raise FrameError(f"it said {kind!r}, which nobody asked for")
            self._due = frozenset()
            values = [content]
            if places:
                put_back(values, {}, places, self._memories)
            if kind == REPLY and self._asked is not None:
                self._asked.reply(*values)  # here already, so that who asked needn't wait for the actor's task, too
            self._answers.append([kind, *values])
        self._news.set()

    async def _wait_answer(self) -> list[Any]:
        while not self._answers:
            if self._heard_all.is_set():
                raise LetterLost
            self._news = anyio.Event()
            await self._news.wait()
        return self._answers.popleft()

    async def _receive(self) -> list[Any]:
        """Return what the worker said next; nothing means that it says nothing more."""
        while True:
            await anyio.wait_readable(self._connection)
            try:
                content, ancillary, _, _ = self._connection.recvmsg(
                    READ_BYTES, ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                continue
            except ConnectionResetError:
                return []
            self._memories += memories_in(ancillary)
            messages = self._decoder.feed(content)
            if messages or not content:
                return messages

    def _begin(self, letter: Letter) -> None:
        letter.begun, self._asked, self._due = True, letter, ANSWERS
        self._unsent.append(_Unsent(memoryview(letter.message.frame), letter.message.memory))

    async def _send(self, frame: bytes) -> None:
        """Send a frame behind what a cancelled send has left. Cancelled, the rest is sent with the next one."""
        self._unsent.append(_Unsent(memoryview(frame), None))
        await self._send_rest()

    async def _send_rest(self) -> None:
        while self._unsent:
            try:
                self._send_now()
            except BlockingIOError:
                await anyio.wait_writable(self._connection)

    def _send_now(self) -> None:
        """Send what goes at once. Raises BlockingIOError: that isn't all."""
        while self._unsent:
            self._unsent[0].send_some(self._connection)
            if not self._unsent[0].rest:
                self._unsent.popleft()


@dataclass(slots=True)
class _Unsent:
    """What is left to be sent of a frame, and the memory that goes with its first piece."""

    rest: memoryview
    memory: Memory | None

    def send_some(self, connection: socket.socket) -> None:
        """Send as much as goes now. Raises BlockingIOError: That is nothing."""
        piece = self.rest[:READ_BYTES]
        if self.memory is None:
            sent = connection.send(piece)
        else:
            sent = connection.sendmsg([piece], with_memory(self.memory))
            self.memory = None
        self.rest = self.rest[sent:]
