"""One worker process, as its host has it: booted, asked one thing at a time, heard, and ended with its last words."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import anyio

from ..errors import WorkerDied, WorkerStartError, error_from_wire
from ..frames import FrameDecoder, FrameError, encode_frame
from ..large_bytes import ANCILLARY_BYTES, Memory, memories_in, put_back, with_memory
from ..letters import Letter, LetterLost, LetterRefused
from ..processes import describe_exit
from .main_module import load_failure_from_wire
from .worker_news import ANSWERS, ENDED, REFUSED, REPLY, STARTED, read_news, read_readiness
from .worker_process import SpareWorker, WorkerProcess, launch, surroundings

LAST_NEWS_SECONDS = 0.5
"""How long to listen to a worker that has ended."""

READ_BYTES = 64 * 1024


class StartOrder(NamedTuple):
    """What a new worker is to be, and the frame that tells it."""

    target: str
    boot: bytes


class HostedWorker:
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
    async def start(cls, order: StartOrder, ready_seconds: float, spare: SpareWorker | None) -> HostedWorker:
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

    async def _boot(self, order: StartOrder) -> None:
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
