"""Join a store: reach its node, or start one, and be counted as its client. On anyio, for any host's loop.

The opening loop is the same for the first opening, for coming back after the node died and for taking over. Only the
node's hello counts, and only `attached` makes a client: whatever breaks before that is tried again until the patience
is over. A node that was started here is this process's child and is reaped here, or by a daemon thread when it goes on
for others.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, get_args

import anyio

from turnkeeper.runtime.frame_socket import FrameSocket, peer_of
from turnkeeper.runtime.frames import FrameError
from turnkeeper.runtime.identity import own_identity
from turnkeeper.runtime.processes import ChildProcess, describe_exit, died_by_signal, read_line
from turnkeeper.storage.errors import StorageError, StoreMissing, StoreRefused
from turnkeeper.storage.lock import store_is_held
from turnkeeper.storage.store import BackendName, Durability, describe, require_backend

from .. import launch, protocol
from ..directory import StoreDirectory
from ..protocol import NODE_LOG, NODE_SOCKET, PATIENCE_SECONDS, WRITER_SOCKET, check_hello, error_from_wire
from .conversation import hear_hello
from .opening_loop import OpeningLoop, Pause, StartCandidate

_BROKEN = (OSError, FrameError, anyio.ClosedResourceError)
"""What a connection that ended, or a wait that took too long, raises."""

_LAST_WORDS_MAX = 500


class Attachment:
    """A place among a node's clients, held by a connection.

    `hello` is the newest that the node said of itself, `wanted` the newest that it said of the latest values that
    somebody listens to, if it did.
    """

    def __init__(self, directory: StoreDirectory, frames: FrameSocket, hello: dict[str, Any]) -> None:
        self.directory = directory
        self.hello = hello
        self.wanted: dict[str, Any] | None = None
        self.child: ChildProcess | None = None
        self._frames = frames
        self._sending = anyio.Lock()
        self._heard = time.monotonic()

    async def attach(self, name: str, *, serves: bool, token: str | None) -> None:
        """Ask to be counted; the answer is one of what `receive` returns. Raises OSError.

        With a `token`, tasks that are started with the same one are this process's.
        """
        message: dict[str, Any] = {"op": protocol.ATTACH, "name": name, "serves": serves}
        if token is not None:
            message |= {"token": token, "owner": own_identity().as_map()}
        await self._frames.send(message)

    async def receive(self) -> dict[str, Any] | None:
        """Wait for the next thing that the node says, mostly its state; None when it has ended. Cancelling is harmless.

        Raises a StorageError when the node says why it can't serve the store any more.
        """
        try:
            message = await self._frames.receive()
        except _BROKEN:
            return None
        if not isinstance(message, dict):
            return None
        if message.get("op") == protocol.ERROR:
            raise error_from_wire(message)
        if message.get("op") == protocol.STATE:
            self.hello = message
            self._heard = time.monotonic()
        elif message.get("op") == protocol.WANTED:
            self.wanted = message
        return message

    async def send(self, frames: bytes) -> None:
        """Send encoded frames, as fast as the node takes them; any task may. Raises OSError when it has ended."""
        async with self._sending:
            if not self._frames.send_nowait(frames):
                await self._frames.drain()

    async def reach_writer(self, patience: float = PATIENCE_SECONDS) -> tuple[FrameSocket, dict[str, Any]]:
        """Connect to the writer and return the connection and its hello.

        A writer that isn't there now is waited for: the listening socket is the node's. The patience, in seconds,
        begins anew with each thing that `receive` hears meanwhile. Cancelling gives the connection up.

        Raises:
            OSError: The connection broke before the hello; try again while the node lives, after a pause.
            NodeNotAnswering: Nothing was heard for too long.
            VersionMismatch: The writer speaks another protocol.
        """
        frames = FrameSocket(self.directory.connect(WRITER_SOCKET), anyio)
        begun = time.monotonic()
        try:
            while (left := max(begun, self._heard) + patience - time.monotonic()) > 0:
                with anyio.move_on_after(left):
                    return frames, await hear_hello(frames)
            raise self.directory.not_answering(self.hello.get("writer"))
        except BaseException:
            frames.close()
            raise

    async def rebuild(self, told: Callable[[int, int], None]) -> dict[str, Any]:
        """Have the index built anew from the journal, and return the writer's report; appends wait meanwhile.

        `told` is called with bytes done and bytes in all. Nobody else may receive meanwhile. Cancelled, it goes on.
        Raises ConnectionResetError if the node ended, and the StorageError for which the store can't be opened.
        """
        await self._frames.send({"op": protocol.REBUILD})
        while (message := await self.receive()) is not None:
            if message.get("op") == protocol.REBUILT:
                report: dict[str, Any] = message["report"]
                return report
            if message.get("progress"):
                told(*message["progress"])
        raise ConnectionResetError("the node ended while the index was built")

    async def leave(self) -> None:
        """Say goodbye; when this was the last client, wait for the node's end. Closes the attachment.

        It may take as long as the node takes to end: bound it by a deadline. Cancelled, it is closed all the same.
        """
        try:
            await self._frames.send({"op": protocol.BYE})
            while (message := await self._frames.receive()) is not None:
                if message.get("op") == protocol.STAYING:
                    break
            else:
                if self.child is not None:
                    await self.child.wait()
        except _BROKEN:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Give the place up; a node that is this process's child is reaped, now or when it ends. Again is no error."""
        self._frames.close()
        self.directory.close()
        child, self.child = self.child, None
        if child is not None:
            child.leave()


async def join(
    path: str,
    *,
    create: bool,
    durability: Durability | None = None,
    backend: BackendName | None = None,
    patience: float = PATIENCE_SECONDS,
    first: bool = True,
    name: str | None = None,
    serves: bool = False,
    token: str | None = None,
) -> Attachment:
    """Become a client of the node of the store at `path`, absolute, and return when the store is served.

    With `create` a missing store is made, though not its parents. `durability` and `backend` are what a new store
    gets, and what one that is there must have; None takes what comes. `patience` is in seconds and begins anew whenever
    the node says that it is opening the store. Not `first` is who comes back: it lets others go first. `name` is what
    `status` shows. Who only `serves` keeps the node alive, but is no reason to refuse a `stop`. `token` is a runtime's,
    the same whenever it comes back, and owns the tasks that it starts. Cancelling leaves nothing but a node that ends
    when nobody comes.

    Raises:
        StoreMissing, StoreRefused, NewerFormat: There can be no such store here, with the reason.
        VersionMismatch: The node speaks another protocol.
        NodeNotAnswering: Nobody answered before the patience was over, or nobody stayed alive.
        StorageError: The store's own error, where it can't be opened.
    """
    if durability not in (None, *get_args(Durability)):
        raise StoreRefused(path, f"can't have durability {durability!r}; {' or '.join(get_args(Durability))} it is")
    loop = OpeningLoop(first=first, patience=patience, clock=time.monotonic, chance=random.random)
    name = name or os.path.basename(sys.argv[0]) or "python"
    require_backend(path, backend)
    start = partial(launch.start_candidate, path, create=create, durability=durability, backend=backend)
    return await _Joining(
        path, create, start, loop, partial(Attachment.attach, name=name, serves=serves, token=token)
    ).run()


class _Joining:
    """One run of the opening loop."""

    def __init__(
        self,
        path: str,
        create: bool,
        start: Callable[[], subprocess.Popen[bytes]],
        loop: OpeningLoop,
        attach: Callable[[Attachment], Awaitable[None]],
    ) -> None:
        self._path = path
        self._create = create
        self._start = start
        self._loop = loop
        self._attach = attach
        self._child: ChildProcess | None = None
        self._serving_pid: int | None = None

    async def run(self) -> Attachment:
        if not self._create:
            describe(self._path)
        try:
            while True:
                attachment = await self._attempt()
                if attachment is not None:
                    return attachment
                self._look_after_child()
                step = self._loop.next_step(is_held=store_is_held(self._path))
                if isinstance(step, Pause):
                    await anyio.sleep(step.seconds)
                elif isinstance(step, StartCandidate):
                    await self._start_candidate()
                else:
                    raise self._out_of_patience()
        finally:
            if self._child is not None:
                self._child.leave()

    # -- One attempt

    async def _attempt(self) -> Attachment | None:
        """Try to become a client of whoever listens; None if that failed in a way that may pass."""
        try:
            directory = StoreDirectory(self._path)
        except StoreMissing:
            return None
        try:
            connection = directory.connect(NODE_SOCKET)
        except OSError:
            directory.close()
            return None
        self._loop.see_others()
        self._serving_pid = peer_of(connection)[0]
        frames = FrameSocket(connection, anyio)
        try:
            attachment = Attachment(directory, frames, await self._hear_hello(frames))
            await self._attach(attachment)
            await self._wait_until_served(attachment)
        except BaseException as error:
            frames.close()
            directory.close()
            if isinstance(error, _BROKEN):
                return None
            raise
        attachment.child, self._child = self._child, None
        return attachment

    async def _hear_hello(self, frames: FrameSocket) -> dict[str, Any]:
        with anyio.fail_after(self._loop.remaining()):
            hello = await frames.receive()
        if hello is None:
            raise ConnectionResetError("the node ended before its hello")
        return check_hello(hello)

    async def _wait_until_served(self, attachment: Attachment) -> None:
        """Wait until this is a client and the writer serves; as long as the node says that it is opening the store."""
        attached = False
        while not attached or attachment.hello["state"] != protocol.SERVING:
            if attachment.hello["state"] == protocol.ENDING:
                raise ConnectionResetError("the node is ending")
            if attachment.hello["state"] == protocol.OPENING:
                self._loop.hear()
            with anyio.fail_after(self._loop.remaining()):
                message = await attachment.receive()
            if message is None:
                raise ConnectionResetError("the node ended")
            attached = attached or message.get("op") == protocol.ATTACHED

    # -- The candidate

    async def _start_candidate(self) -> None:
        """Start a process that may become the node, and hear its word. Raises the error that it says."""
        child = ChildProcess(self._start())
        try:
            with anyio.move_on_after(self._loop.remaining()):
                assert child.stdout is not None
                word, last_words = await _hear_word(child.stdout)
                if word == "ready":
                    if self._child is not None:
                        self._child.leave()
                    self._child = child
                    return
                code = await child.wait()
                if word.startswith("error "):
                    raise error_from_wire(json.loads(word.removeprefix("error ")))
                if word != "busy" and code and died_by_signal(code) is None:
                    raise StoreRefused(self._path, f"its node {describe_exit(code)}: {last_words}")
        finally:
            if child is not self._child:
                child.leave()

    def _look_after_child(self) -> None:
        """Reap the node that was started here, if it has ended. Raises StoreRefused if it fell ill by itself."""
        if self._child is not None and self._child.poll():
            code = self._child.returncode
            self._child.close()
            self._child = None
            if code and died_by_signal(code) is None:
                raise StoreRefused(self._path, f"its node {describe_exit(code)}; {NODE_LOG} there says why")

    def _out_of_patience(self) -> StorageError:
        try:
            directory = StoreDirectory(self._path)
        except StorageError as unusable:
            return unusable
        error = directory.not_answering(self._serving_pid)
        directory.close()
        return error


async def _hear_word(pipe: int) -> tuple[str, str]:
    """Read what a candidate says until it has said its word; return that, empty if it died before, and the rest."""
    os.set_blocking(pipe, False)
    said = b""
    while True:
        content = await read_line(pipe)
        said += content
        for line in said.decode(errors="replace").splitlines():
            if line in ("ready", "busy") or line.startswith("error {"):
                return line, ""
        if not content.endswith(b"\n"):
            return "", " ".join(said.decode(errors="replace").split())[-_LAST_WORDS_MAX:]
