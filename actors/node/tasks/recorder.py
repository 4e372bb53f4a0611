"""The node's way to the writer: records of tasks go there, and are durable when they have come back.

A recorder outlives any number of writers, and may be run again: what isn't answered is sent again to the next one, and
as each record is stored once for its key, twice is once. It waits as long as that takes: a task that has ended ends in
the journal, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import TaskStatus

from turnkeeper.runtime.frame_socket import FrameSocket
from turnkeeper.runtime.frames import FrameError
from turnkeeper.storage.errors import StorageError
from turnkeeper.storage.requests import Appended, Post

from ...client.control_request import Request
from ...client.conversation import Conversation, hear_hello
from ...client.link import Link
from ...client.reads import StoreReads
from ...directory import StoreDirectory
from ...protocol import RECORD, WRITER_SOCKET, error_from_wire
from ...tasks.records import Notice
from ...writer.requests import RECORDS_MAX

RETRY_SECONDS = 0.01
RETRY_SECONDS_MAX = 0.5
"""Pauses between attempts to reach a writer: doubled, up to the greatest."""


class Recorder:
    """Records what becomes of the tasks of the store at `path`; in the node that is where it is.

    `reads` reads the store, once `run` has started. Make it in the loop that runs it.
    """

    def __init__(self, path: str = ".") -> None:
        self.reads = StoreReads(path)
        self._path = path
        self._link = Link()
        self._conversation = Conversation(self._link)
        self._unsettled: set[Request] = set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Talk to whichever process is the writer, until cancelled. Started when the first one has greeted.

        Raises StorageError when a writer refuses to talk.
        """
        directory = StoreDirectory(self._path)
        pause = RETRY_SECONDS
        has_started = False
        try:
            while True:
                try:
                    writer, hello = await _reach_writer(directory)
                except (OSError, FrameError):
                    await anyio.sleep(pause)
                    pause = min(2 * pause, RETRY_SECONDS_MAX)
                    continue
                pause = RETRY_SECONDS
                self.reads.serve(hello["index"])
                if not has_started:
                    has_started = True
                    task_status.started()
                await self._conversation.talk(writer)
        finally:
            directory.close()
            with anyio.CancelScope(shield=True):
                await self.reads.aclose()

    async def record(self, posts: Sequence[Post], notices: Sequence[Notice] = ()) -> list[Appended | StorageError]:
        """Store posts of different tasks, and notices, in one commit; give one result for each, the posts' first.

        No crash leaves a part of them. What is refused, as a notice for a session that was deleted, leaves the rest
        alone. Waits as long as there is no writer. Cancelled, they may be stored or not; to record the same again is no
        harm. Raises ValueError for none, or more than `RECORDS_MAX` together, or several of one task.
        """
        if not 0 < len(posts) + len(notices) <= RECORDS_MAX or len({post.stream for post in posts}) < len(posts):
            raise ValueError(f"what is stored together are from 1 to {RECORDS_MAX} records, of different tasks")
        message = {
            "op": RECORD,
            "posts": [
                {"stream": post.stream, "tail": post.tail, "key": post.key, "header": post.header, "patch": post.patch}
                for post in posts
            ],
            "notices": [notice._asdict() for notice in notices],
        }
        request = self._link.ask(message)
        self._unsettled.add(request)
        try:
            reply = await self._conversation.answered(request)
        finally:
            if request.is_answered:
                self._unsettled.discard(request)
            else:
                request.wake = lambda: self._unsettled.discard(request)
        return [*_results(reply["results"]), *_results(reply["notices"])]

    async def settle(self) -> None:
        """Wait until all that was given before is stored or refused, also what nobody waits for any more."""
        for request in list(self._unsettled):
            with suppress(StorageError):
                await self._conversation.answered(request)
            self._unsettled.discard(request)


async def _reach_writer(directory: StoreDirectory) -> tuple[FrameSocket, dict[str, Any]]:
    """Connect, and wait for the hello as long as that takes: the listening socket is the node's. Raises OSError."""
    writer = FrameSocket(directory.connect(WRITER_SOCKET), anyio)
    try:
        return writer, await hear_hello(writer)
    except BaseException:
        writer.close()
        raise


def _results(wire: Iterable[Any]) -> list[Appended | StorageError]:
    return [error_from_wire(each) if isinstance(each, dict) else Appended(*each) for each in wire]
