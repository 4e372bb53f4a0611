"""The process supervisor of a store, whichever incarnation it is now, and what the node asks of it.

One life of it is one incarnation, which adopts what the one before it left, as that of a new node does; whether and
when there is another one is decided by the node's tree. Only the recorder outlives it: what an incarnation that failed
had given it is stored before the next one looks what there is. Who asks waits for an incarnation, and is answered by
the next one if it fails meanwhile: what is asked means the same when it is asked twice.

The first request loads it, which costs a node without tasks nothing. Part of the node, on trio.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from turnkeeper.runtime.frames import FrameError
from turnkeeper.storage.errors import StorageError

from ...node_log import log
from ..switchboard import Switchboard
from .owners import Owner

if TYPE_CHECKING:
    from .recorder import Recorder
    from .supervisor import Supervisor

ADOPTION_SECONDS = 1.0
"""How long is waited until it is known what an earlier node left."""

Answer = TypeVar("Answer")


class SupervisorKeeper:
    """The supervisor of the store's tasks.

    `is_attached` says whether a token has a connection to the node; `changed` is called when the node may be needed no
    more, and `end` when it can't go on, with the reason. `descriptors` is how many files a task may have open.
    """

    def __init__(
        self,
        switchboard: Switchboard,
        is_attached: Callable[[str], bool],
        changed: Callable[[], None],
        end: Callable[[str], None],
        *,
        descriptors: int,
    ) -> None:
        self.wanted = trio.Event()
        """Set once there has to be one."""
        self._switchboard = switchboard
        self._is_attached = is_attached
        self._changed = changed
        self._end = end
        self._descriptors = descriptors
        self._recorder: Recorder | None = None
        self._incarnation: Incarnation | None = None
        self._came = trio.Event()

    async def live(self, *, started: Callable[[], None]) -> None:
        """Be one incarnation, until cancelled. A child of the node's tree.

        Returns when nothing can be recorded any more, and the node has to end.

        Raises:
            Exception: What it failed with, which is in node.log.
        """
        started()  # adopting takes as long as it takes
        try:
            incarnation = self._incarnation = Incarnation(self._make())
            self._came.set()
            self._came = trio.Event()
            refusal = await incarnation.live()
        except Exception as error:
            log(f"the process supervisor failed:\n{''.join(traceback.format_exception(error)).rstrip()}")
            raise
        finally:
            self._incarnation = None
        if refusal is not None:
            self._end(str(refusal))

    def _make(self) -> Supervisor:
        from .recorder import Recorder
        from .supervisor import Supervisor

        self._recorder = self._recorder or Recorder()
        return Supervisor(
            self._recorder, self._switchboard, self._is_attached, self._changed, descriptors=self._descriptors
        )

    # -- What the node asks; nothing of this waits for an incarnation

    @property
    def present(self) -> Supervisor | None:
        """The one that is up now."""
        return None if self._incarnation is None else self._incarnation.supervisor

    @property
    def holds_node(self) -> bool:
        """Say whether the node has to stay though nobody is attached."""
        if not self.wanted.is_set():
            return False
        return self.present is None or self.present.holds_node

    def owner_left(self, owner: Owner) -> None:
        """Take note that a connection of a runtime has ended without a word. The next one finds out by itself."""
        if self.present is not None:
            self.present.owner_left(owner)

    # -- What waits

    async def wait_adopted(self) -> None:
        """Wait until what an earlier node left is known, but not for ever."""
        with trio.move_on_after(ADOPTION_SECONDS):
            await self._ask(lambda supervisor: supervisor.wait_adopted())

    async def end_owned(self, token: str) -> None:
        """Stop the tasks that a runtime owns, and wait until that is recorded, or can't be done."""

        async def end(supervisor: Supervisor) -> None:
            with trio.move_on_after(ADOPTION_SECONDS):
                await supervisor.wait_adopted()
            await supervisor.end_owned(token)

        await self._ask(end)

    def request(self, owner: Owner, message: Mapping[str, Any]) -> Callable[[], Awaitable[dict[str, Any]]]:
        """Read what a client asks, and give what answers it. Raises FrameError for what is no request."""
        from .requests import request_from_wire

        request = request_from_wire(message)
        self.wanted.set()
        return partial(self._ask, lambda supervisor: supervisor.answer(owner, request))

    async def _ask(self, call: Callable[[Supervisor], Awaitable[Answer]]) -> Answer:
        while True:
            while self._incarnation is None:
                await self._came.wait()
            with suppress(IncarnationEnded):
                return await self._incarnation.call(call)


class IncarnationEnded(Exception):
    """A process supervisor ended before it had answered."""


class Incarnation:
    """One life of the process supervisor. It fails with whatever fails in it, also while it answers."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self._ended = trio.Event()
        self._scope = trio.CancelScope()
        self._callers: set[trio.CancelScope] = set()
        self._failure: Exception | None = None

    async def live(self) -> StorageError | None:
        """Supervise until cancelled; return earlier, with the reason, when nothing can be recorded any more.

        Raises:
            Exception: What it failed with.
        """
        refusal: StorageError | None = None
        try:
            with self._scope:
                refusal = await self.supervisor.run()
        finally:
            self._ended.set()
            for caller in self._callers:
                caller.cancel()
        if self._failure is not None:
            raise self._failure
        return refusal

    async def call(self, call: Callable[[Supervisor], Awaitable[Answer]]) -> Answer:
        """Return what it answers. What is no refusal is its own failure.

        Raises:
            IncarnationEnded: It has ended meanwhile. StorageError, FrameError: The refusal.
        """
        with trio.CancelScope() as caller:
            self._callers.add(caller)
            try:
                return await call(self.supervisor)
            except (StorageError, FrameError):
                raise
            except Exception as error:
                self._failure = self._failure or error
                self._scope.cancel()
            finally:
                self._callers.discard(caller)
        await self._ended.wait()
        raise IncarnationEnded
