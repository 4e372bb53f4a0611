"""What runs in a worker process: one actor, on trio, that is asked through a socket from its host.

Launched by worker_process.py, never imported by a host. Standard input is the lifeline: one line of JSON to begin with,
and when it ends, or the host does, the process and its group are killed at once, whatever they are doing. Until the
actor's module is imported, standard error is a file that the host reads if the process dies; then it is the host's own,
and that file gets only the stacks of a crash in C, or of an event loop that is blocked, which is killed for it.

Frames from the host: `["boot", target, arguments, start]`, with descriptors of the host's standard output, standard
error and working directory, then `["call", method, arguments, keywords]` and `["stop", now]`.
To the host: `["ready", nil]` once the module is imported, `["started", handlers]` once the actor is, for each call
`["reply", value]`, `["refused", error]` or `["failed", error]`, and at the end `["ended", error or nil]`. A call is
sent only after the answer to the one before. Behind a call's keywords, and a reply's value, stand the places of large
byte strings, in memory whose descriptor comes with the frame (../large_bytes.py).
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import select
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

import trio
from anyio.lowlevel import checkpoint

from .. import processes
from ..actors import handlers_of
from ..errors import error_to_wire, is_answer
from ..frames import FrameDecoder, encode_frame
from ..large_bytes import ANCILLARY_BYTES, Memory, Parcel, memories_in, put_back, take_out, with_memory
from ..message_frames import encode_message
from ..watchdog import Blockage, Watchdog, is_traced
from .main_module import load, load_failure_to_wire

READ_BYTES = 64 * 1024

EXIT_FAILED = 1
EXIT_TERMINATED = 128 + signal.SIGTERM


def main(start: Mapping[str, Any]) -> None:
    """Be the worker that the line on standard input describes; return never."""
    threading.Thread(target=_end_with_host, args=(_take_lifeline(), start["host"]), daemon=True).start()
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # Not ignored: programs that the actor starts would inherit that.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    for module in start["imports"]:
        importlib.import_module(module)
    trio.run(checkpoint)  # which loads anyio's half for trio, too, while nobody may be waiting yet
    with socket.socket(fileno=start["socket"]) as connection:
        connection.set_inheritable(False)
        decoder = FrameDecoder()
        (_, target, arguments, order), descriptors = _receive_order(connection, decoder)
        own_stderr = _move_into(order, descriptors)
        try:
            make = load(target, order["main"])
        except BaseException as error:
            # An exit too: whatever the module does, its import must not end without a word to the host.
            connection.sendall(encode_frame(["failed", load_failure_to_wire(error)]))
            sys.exit(EXIT_FAILED)
        words = _return_stderr(own_stderr)
        faulthandler.enable(words)
        connection.sendall(encode_frame(["ready", None]))
        watchdog = order["blocked_seconds"] and Watchdog(order["blocked_seconds"], partial(_end_blocked, words))
        exit_code = trio.run(_Worker(connection, decoder, watchdog).run, make, arguments)
    sys.exit(exit_code)


def _take_lifeline() -> int:
    """Move the lifeline away from standard input, where programs that the actor starts would share it."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return lifeline


def _end_with_host(lifeline: int, host: int) -> None:
    try:
        # The pidfd beside the pipe: a child forked by the host keeps the other end of the pipe open.
        pidfd = processes.open_pidfd(host)
        if pidfd is not None and os.getppid() == host:
            host_is_gone = select.poll()
            host_is_gone.register(lifeline, 0)  # its end is always told
            host_is_gone.register(pidfd, select.POLLIN)
            host_is_gone.poll()
    finally:
        # Even if it can't be watched: no worker may outlive its host.
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _receive_order(connection: socket.socket, decoder: FrameDecoder) -> tuple[Any, list[int]]:
    """Wait for the first frame, and for the descriptors that come with it; end where the host wants no actor."""
    descriptors: list[int] = []
    while True:
        content, received, _, _ = socket.recv_fds(connection, READ_BYTES, 3, socket.MSG_CMSG_CLOEXEC)
        descriptors += received
        if not content:
            sys.exit(EXIT_FAILED)
        if messages := decoder.feed(content):
            return messages[0], descriptors


def _move_into(order: Mapping[str, Any], descriptors: list[int]) -> int:
    """Be as if the host had started this process just now, but for standard error, which is returned."""
    stdout, stderr, directory = descriptors
    os.dup2(stdout, 1, inheritable=True)
    os.close(stdout)
    os.fchdir(directory)
    os.close(directory)
    os.environb.clear()
    os.environb.update(order["environment"])
    sys.path[:] = [os.fsdecode(each) for each in order["path"]]
    sys.argv = [os.fsdecode(each) for each in order["argv"]]
    return stderr


def _return_stderr(own: int) -> int:
    """Give the host's standard error back, and to it what was said meanwhile; return the file for last words, empty."""
    sys.stderr.flush()
    words = os.dup(2)
    said = os.pread(2, os.fstat(2).st_size, 0)
    os.dup2(own, 2, inheritable=True)
    os.close(own)
    if said:
        with suppress(OSError):  # nobody reads the host's, or its disk is full
            os.write(2, said)
    os.ftruncate(words, 0)
    os.lseek(words, 0, os.SEEK_SET)
    return words


def _end_blocked(words: int, blockage: Blockage) -> None:
    if not is_traced():
        os.write(words, f"{blockage}\n{blockage.stacks}".encode(errors="backslashreplace"))
        os.killpg(os.getpgrp(), signal.SIGKILL)


class _Worker:
    """The actor's life in this process."""

    def __init__(self, connection: socket.socket, decoder: FrameDecoder, watchdog: Watchdog | None) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._memories: deque[Memory] = deque()
        self._decoder = decoder
        self._entering, self._work = trio.CancelScope(), trio.CancelScope()
        self._watchdog = watchdog
        self._entered = trio.Event()
        self._calls: deque[list[Any]] = deque()
        self._stopped = False
        # While the actor is idle its own task listens: being woken by another one would cost each call a turn of the
        # loop. While it is busy that other one does, at a descriptor of its own, since only one task can wait for each.
        self._aside = os.dup(connection.fileno())
        self._busy = trio.Event()
        self._busy.set()
        self._exit_code = 0

    async def run(self, make: Callable[..., Any], arguments: list[Any]) -> int:
        """Live until the host says stop, the actor fails or somebody says SIGTERM; return the exit code."""
        async with trio.open_nursery() as nursery:
            # It heeds signals before the first call, which may come, and block, before another task's turn.
            await nursery.start(self._heed_terminate, nursery.cancel_scope)
            nursery.start_soon(self._listen_while_busy)
            nursery.start_soon(self._watch_loop)
            await self._live(make, arguments)
            nursery.cancel_scope.cancel()
        os.close(self._aside)  # it would keep the connection open until Python has ended, which takes its time
        return self._exit_code

    async def _live(self, make: Callable[..., Any], arguments: list[Any]) -> None:
        failure: Exception | None = None
        untold: Exception | None = None
        try:
            actor = make(*arguments)
            handlers = handlers_of(type(actor))
            # The scope for entering stands around the whole life: what an actor enters may be scopes that stay open.
            with self._entering:
                async with AsyncExitStack() as stack:
                    if hasattr(actor, "__aenter__"):
                        await stack.enter_async_context(actor)
                    self._entered.set()
                    if self._watchdog is not None:
                        # Here and not in the task that beats: the first call may come, and block, before its turn.
                        self._watchdog.begin()
                    await self._send(encode_frame(["started", sorted(handlers)]))
                    failure = await self._handle_calls(actor)
                    if failure is not None:
                        raise failure
        except Exception as error:
            self._exit_code = EXIT_FAILED
            if error is not failure:
                untold = error
        await self._send(encode_frame(["ended", untold and error_to_wire(untold)]))

    async def _handle_calls(self, actor: Any) -> Exception | None:
        """Handle calls until the host says stop, or a handler fails; return its error, which the host was told."""
        with self._work:
            while (call := await self._next_call()) is not None:
                method, arguments, keywords, *places = call
                try:
                    if places:
                        put_back(arguments, keywords, places, self._memories)
                    slim = take_out([await getattr(actor, method)(*arguments, **keywords)], {})
                    frame = encode_message(["reply", *slim.arguments, *slim.places], reply=1)
                    answer = Parcel(frame, slim.copied())
                except Exception as error:
                    refused = is_answer(error)
                    await self._send(encode_frame(["refused" if refused else "failed", error_to_wire(error)]))
                    if not refused:
                        return error
                else:
                    await self._send(*answer)
        return None

    async def _next_call(self) -> list[Any] | None:
        """Wait until the host says what is to be done next. None: to stop."""
        self._busy = trio.Event()
        try:
            while not self._calls and not self._stopped:
                await trio.lowlevel.wait_readable(self._connection)
                await self._receive()
        finally:
            self._busy.set()
        return self._calls.popleft() if self._calls else None

    async def _listen_while_busy(self) -> None:
        while True:
            while not self._busy.is_set():  # which is another event with each call
                await self._busy.wait()
            await trio.lowlevel.wait_readable(self._aside)
            if self._busy.is_set():
                await self._receive()

    async def _receive(self) -> None:
        """Take what the host has said. When it says nothing more it is gone, and that is the lifeline's affair."""
        try:
            content, ancillary, _, _ = self._connection.recvmsg(READ_BYTES, ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            content, ancillary = b"", []
        if not content:
            await trio.sleep_forever()
        self._memories += memories_in(ancillary)
        for kind, *rest in self._decoder.feed(content):
            if kind == "call":
                self._calls.append(rest)
            else:
                self._stop(*rest)

    def _stop(self, now: bool) -> None:
        self._stopped = True
        if now:
            (self._work if self._entered.is_set() else self._entering).cancel()

    async def _send(self, frame: bytes, memory: Memory | None = None) -> None:
        rest = memoryview(frame)
        while rest:
            try:
                if memory is None:
                    sent = self._connection.send(rest)
                else:
                    sent = self._connection.sendmsg([rest], with_memory(memory))
            except BlockingIOError:
                # Half a frame would make the next one unreadable. The host reads as long as it lives.
                with trio.CancelScope(shield=True):
                    await trio.lowlevel.wait_writable(self._connection)
            else:
                rest, memory = rest[sent:], None

    async def _watch_loop(self) -> None:
        # Not before: a constructor that blocks is loading something, for which there is no time of its own.
        await self._entered.wait()
        if self._watchdog is not None:
            await self._watchdog.beat(trio.sleep)

    async def _heed_terminate(
        self, everything: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            task_status.started()
            async for _ in signals:
                self._exit_code = EXIT_TERMINATED
                everything.cancel()
