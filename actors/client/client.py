"""The client of one store in one process: finds its writer and its node, and finds them again when they have died.

Its tasks run in the background of the host's body, and raise nothing. A connection that broke is never used again: the
writer's is made anew while the node stays, the node's by the opening loop. While none stands, appends go on into the
buffer; that the store can't be reached is told to who waits for it, and trying goes on until the client is closed.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol

import anyio

from turnkeeper.runtime.frame_socket import FrameSocket
from turnkeeper.runtime.frames import FrameError
from turnkeeper.runtime.identity import own_identity, process_state
from turnkeeper.runtime.interrupts import without_interrupts
from turnkeeper.storage.errors import BlobMissing, NotFound, SessionBusy, StorageError, StoreRefused
from turnkeeper.storage.store import BackendName, Durability

from ..background import Background
from ..errors import ForkedProcess, NodeNotAnswering, SessionClosed, copy_of
from ..ids import new_token
from ..names import check_wanted
from ..protocol import CHANGE, OPEN, PATIENCE_SECONDS, STATISTICS, WATCH
from ..vocabulary import Vocabulary
from .blobs import Blobs
from .bus import PUBLISH_SECONDS, Bus, Listener
from .control_request import Request
from .conversation import Conversation
from .joining import Attachment, join
from .link import Link
from .node_conversation import NodeConversation
from .owned_stream import OwnedStream
from .reads import StoreReads

RETRY_SECONDS_FIRST = 0.01
RETRY_SECONDS_MAX = 2.0
"""Pauses between two attempts that failed, each of which has had a patience of its own: doubled, up to the greatest."""

LEAVE_SECONDS = 5.0
"""How long leaving waits for the node's end, if nothing else is said."""


class OpenSession(Protocol):
    """What a client knows of a session that is open through it."""

    async def aclose(self) -> None:
        """Close it."""


class Client:
    """One process's client of one store; make it with `Client.open`, end it with `aclose`.

    For the loop that opened it alone. In a forked child everything that was opened through it raises ForkedProcess.
    """

    def __init__(self, path: str, attachment: Attachment, token: str) -> None:
        self.link = Link()
        self._conversation = Conversation(self.link)
        self.bus = Bus()
        self.bus.wake_listeners = self._wake_followers
        self.node = NodeConversation()
        self.has_tasks_to_end = False
        self.reads = StoreReads(path)
        self.blobs = Blobs(path)
        self.vocabulary = Vocabulary()
        self.link.put_blob_again = self._put_blob_again
        self.link.blobs_named = self.blobs.forget
        self.new_event = self._conversation.new_event
        self.sessions: weakref.WeakSet[OpenSession] = weakref.WeakSet()
        self.path = path
        self._token = token
        self._attachment = attachment
        self._store_id = attachment.hello.get("store")
        self._background = Background()
        self._given_up: set[str] = set()
        self._begun = anyio.Event()
        self._failure: Exception | None = None
        self._next_position = 0
        self._position_change: anyio.Event | None = None
        self._is_watching = False
        self._space: anyio.Event | None = None

    @classmethod
    async def open(
        cls,
        path: str,
        scope: anyio.CancelScope,
        *,
        durability: Durability | None = None,
        backend: BackendName | None = None,
    ) -> Client:
        """Attach to the node of the store at `path`, starting one if there is none, and greet its writer.

        Makes a missing store, though not its parents. `scope` is the caller's, around all that the client starts; it
        becomes a shield if the opening fails, or is cancelled. Raises what `join` raises, as it stands.
        """
        token = new_token()
        client = cls(path, await join(path, create=True, durability=durability, backend=backend, token=token), token)
        await client._background.open()
        client._start(client._serve)
        client._start(client._watch_time)
        _living.add(client)
        try:
            await client._begun.wait()
            if client._failure is not None:
                raise client._failure
        except BaseException:
            # Not a shield of its own: what the client has started would outlive that, and can't be left within it.
            scope.shield = True
            await client.aclose()
            raise
        return client

    async def aclose(self, seconds: float = LEAVE_SECONDS) -> None:
        """Say goodbye to the node, and wait so long for its end if this was its last client. Nothing is flushed here.

        From now on everything that was opened through this client raises SessionClosed.
        """
        _living.discard(self)
        await self._background.aclose()
        self.end(SessionClosed("the store"))
        if self._position_change is not None:
            self._position_change.set()
        await self.reads.aclose()
        with anyio.move_on_after(seconds):
            await self._attachment.leave()

    async def release_all(self) -> None:
        """Give up every stream that is still open, and wait until that is stored."""
        streams = [stream for stream in self.link.streams if stream.refusal is None]
        requests = [self.link.release(stream) for stream in streams if not stream.leaving]
        for stream in streams:
            await self.wait_until(stream, lambda stream=stream: stream.is_settled)  # type: ignore[misc]
        for request in filter(None, requests):
            await self.answered(request)

    # -- What sessions and followers ask for

    def stream_open_here(self, name: str) -> OwnedStream | None:
        """Give the stream of the session that is open through this client and has this id or key, stored or not."""
        return next((stream for stream in self.link.streams if name in stream.names), None)

    async def open_stream(
        self,
        wanted: str,
        *,
        create: dict[str, Any] | None = None,
        takeover: bool = False,
        known: Sequence[str] | None = None,
    ) -> tuple[OwnedStream, dict[str, Any]]:
        """Ask for the ownership of a stream; give it and the writer's answer.

        With `create`, a header, an unknown stream is reserved. `known` are the critical types that are, those of the
        vocabulary if nothing is said. Cancelled, what may still be granted is released. Raises NotFound, Ambiguous,
        SessionBusy, Exists, Corrupt, CriticalTypes, or that the store can't be reached; TypeError for what is no name.
        """
        check_wanted(wanted)
        types = self.vocabulary.known if known is None else list(known)
        token = new_token()
        while True:
            owner = {**own_identity().as_map(), "token": token}
            header = None if create is None else {**create, "owner": owner}
            message = {"op": OPEN, "wanted": wanted, "owner": owner, "takeover": takeover, "create": header}
            message["known"] = types
            request = self.link.ask(message, for_caller=True)
            try:
                reply = await self.answered(request)
            except SessionBusy as busy:
                token = busy.owner.get("token", "")
                if token not in self._given_up:
                    raise
                # Its owner is an opening of ours that was given up before its answer: whoever has its token goes on.
            except BaseException:
                self._given_up.add(token)
                raise
            else:
                return self.link.own_opened(request), reply

    async def change(self, wanted: str, **change: Any) -> tuple[str, int]:
        """Ask the writer to change what anybody may change of a session; give its id and head. Durable when it returns.

        Raises NotFound, Ambiguous, WrongKind, SessionBusy, TooLarge, or that the store can't be reached.
        """
        check_wanted(wanted)
        message = {"op": CHANGE, "wanted": wanted, **change}
        reply = await self.answered(self.link.ask(message, for_caller=True))
        return reply["stream"], reply["head"]

    async def answered(self, request: Request) -> dict[str, Any]:
        """Wait for the answer to a request and return it, or raise the error that it is."""
        return await self._conversation.answered(request)

    async def wait_change(self, stream: OwnedStream) -> None:
        """Wait until the writer has answered something about the stream."""
        if stream.wake is None:
            stream.changed = self.new_event()
            stream.wake = stream.changed.set
        await stream.changed.wait()

    async def wait_until(self, stream: OwnedStream, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds for a stream. Raises a refusal, or the first failure to store that comes."""
        seen = stream.failures
        stream.waiting += 1
        try:
            while not condition():
                if stream.refusal is not None or stream.failures != seen:
                    stream.raise_failure()
                await self.wait_change(stream)
        finally:
            stream.waiting -= 1

    async def wait_space(self) -> None:
        """Wait until bytes in the buffer have been acknowledged."""
        if self._space is None or self.link.wake_space is None:
            self._space = self.new_event()
            self.link.wake_space = self._space.set
        await self._space.wait()

    async def last_position(self, id: str) -> int:
        """Look up the position of a stream's last event; 0 if it has none."""
        try:
            return (await self.reads.call(lambda reader: reader.row(id))).position
        except NotFound:
            return 0

    async def wait_position(self, after: int, listener: Listener | None = None) -> None:
        """Wait until an event with a position above `after` is durable, or a value has come to the listener.

        Raises SessionClosed when the client is closed.
        """
        while self._next_position <= after + 1 and not (listener is not None and listener.has_news):
            self.check()
            if self._position_change is None:
                self._position_change = self.new_event()
            if not self._is_watching:
                self._is_watching = True
                self._start(self._watch_position)
            await self._position_change.wait()

    async def next_position(self) -> int:
        """Ask the writer for the position that the next event will have."""
        position: int = (await self.answered(self.link.ask({"op": STATISTICS}, for_caller=True)))["position"]
        return position

    def check(self) -> None:
        """Raise why this client can't be used any more, if it can't: closed, or inherited by a forked child."""
        if self.link.refusal is not None:
            raise copy_of(self.link.refusal)

    def end(self, refusal: Exception, *, wake: bool = True) -> None:
        """Make everything that was opened through this client raise `refusal` from now on; see `Link.end`."""
        self.link.end(refusal, wake=wake)
        self.node.requests.end(refusal, wake=wake)

    # -- The tasks

    def _start(self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        self._background.tasks.start_soon(without_interrupts(self._run), function, *args)

    async def _run(self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Run a task. Its failure is a mistake of ours: it ends not the host's body but what that asks from now on."""
        try:
            await function(*args)
        except Exception as failure:
            self._failure = failure
            while isinstance(self._failure, ExceptionGroup):
                self._failure = self._failure.exceptions[0]
            self.end(self._failure)
            self._begun.set()

    async def _serve(self) -> None:
        """Be a client of the store's node, whichever process that is, for as long as this client lives.

        Behind a node that couldn't serve the store there is a pause: the next one may say the same, and has to start.
        """
        pause = RETRY_SECONDS_FIRST
        while True:
            attachment = self._attachment
            self.bus.join()
            if attachment.wanted is not None:
                self.bus.receive(attachment.wanted)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(without_interrupts(self._use_writer), attachment)
                tasks.start_soon(without_interrupts(self._use_bus), attachment)
                tasks.start_soon(without_interrupts(self.node.talk), attachment)
                refused = await self._listen(attachment)
                tasks.cancel_scope.cancel()
            attachment.close()
            if refused:
                await anyio.sleep(pause)
            pause = min(2 * pause, RETRY_SECONDS_MAX) if refused else RETRY_SECONDS_FIRST
            if not await self._join_again():
                return

    def _put_blob_again(self, stream: OwnedStream, missing: BlobMissing) -> None:
        self._start(self._restore_blob, stream, missing)

    async def _restore_blob(self, stream: OwnedStream, missing: BlobMissing) -> None:
        """Put a blob again that the writer misses, if its content is still at hand."""
        failure: StorageError | None = None
        try:
            if not await self.blobs.restore(missing.digest):
                failure = missing
        except StorageError as error:
            failure = error
        self.link.blob_settled(stream, failure)

    async def _listen(self, attachment: Attachment) -> bool:
        """Hear what the node says until it has ended, and say whether it ended because it can't serve the store."""
        try:
            while (message := await attachment.receive()) is not None:
                self.bus.receive(message)
                self.node.requests.receive(message)
        except StorageError as error:
            self._fail(error)
            return True
        except FrameError:
            pass  # what can't be read is as good as an ended connection
        return False

    async def _use_bus(self, attachment: Attachment) -> None:
        """Publish latest values and listen to others' through the node, for as long as it lives."""
        bus = self.bus
        with suppress(OSError):  # the node has ended, which whoever hears it notices too
            while True:
                news = self.new_event()
                bus.wake = news.set
                if output := bus.next_output():
                    await attachment.send(output)
                    await anyio.sleep(PUBLISH_SECONDS)
                else:
                    await news.wait()

    async def _use_writer(self, attachment: Attachment) -> None:
        """Talk to the node's writer, whichever process that is, for as long as the node lives."""
        while True:
            writer, hello = await self._reach_writer(attachment)
            self.reads.serve(hello["index"])
            self._begun.set()
            await self._conversation.talk(writer)

    async def _reach_writer(self, attachment: Attachment) -> tuple[FrameSocket, dict[str, Any]]:
        """Find the node's writer, however long that takes. What fails is told to who waits, and tried again."""
        pause = RETRY_SECONDS_FIRST
        patience_ends = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return await attachment.reach_writer()
            except StorageError as error:
                self._fail(error)
            except (OSError, FrameError):
                if time.monotonic() > patience_ends:
                    pid = attachment.hello.get("writer")
                    self._fail(NodeNotAnswering(pid, "its socket refuses" if pid is None else process_state(pid)))
            await anyio.sleep(pause)
            pause = min(2 * pause, RETRY_SECONDS_MAX)

    async def _join_again(self) -> bool:
        """Find the store's node again. What fails is told to who waits, and tried again after a pause.

        Returns False, having ended every stream, when another store is there now.
        """
        pause = RETRY_SECONDS_FIRST
        while True:
            try:
                self._attachment = await join(self.path, create=False, first=False, token=self._token)
            except (StorageError, OSError) as error:
                self._fail(error)
                await anyio.sleep(pause)
                pause = min(2 * pause, RETRY_SECONDS_MAX)
                continue
            if self._attachment.hello.get("store") == self._store_id:
                return True
            self.end(StoreRefused(self.path, "another store is here now; open it again to use it"))
            return False

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._begun.set()
        self.link.fail(error)
        self.node.requests.fail(error)

    async def _watch_time(self) -> None:
        """Flush what has waited for a whole window, and send again what was refused."""
        link = self.link
        while True:
            if link.alarm is None:
                wanted = self.new_event()
                link.wake_alarm = wanted.set
                await wanted.wait()
            else:
                await anyio.sleep(max(0.0, link.alarm - time.monotonic()))
                link.tick()

    async def _watch_position(self) -> None:
        """Ask the writer for news as long as somebody waits for them."""
        while self._position_change is not None:
            reply = await self.answered(self.link.ask({"op": WATCH, "after": self._next_position}))
            self._next_position = reply["position"]
            self._wake_followers()
        self._is_watching = False

    def _wake_followers(self) -> None:
        change, self._position_change = self._position_change, None
        if change is not None:
            change.set()


def _refuse_in_child() -> None:
    """End in a forked child what its parent has open: the connection, its numbers and its answers are the parent's."""
    for client in list(_living):
        client.end(ForkedProcess(os.getppid()), wake=False)
    _living.clear()


_living: weakref.WeakSet[Client] = weakref.WeakSet()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_in_child)
