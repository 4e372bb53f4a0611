"""A reference to a supervised actor, which outlives its incarnations.

A message goes to the incarnation that is up. Between two, `ask` and `tell` wait for the next one, and `tell_nowait`
raises ActorNotStarted. What an incarnation certainly did not begin before it ended, `ask` asks of the next one, within
its timeout; what it may have begun is never delivered again: that ends with ActorUnknown, or with the handler's error.
A `tell` that waits in the mailbox of an incarnation that ends goes with it; ask for what must not be missed.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import anyio

from ..actor_ref import ActorEnd, ActorRef, Down
from ..errors import ActorNotStarted
from ..mailbox import MailboxStatistics


class Gone(Exception):
    """There is no incarnation, and there will be none unless somebody asks the supervisor for it."""

    def __init__(self, end: ActorEnd) -> None:
        super().__init__(end.reason)
        self.end = end


class Incarnations(Protocol):
    """What a reference needs of its supervisor; `path` names a child, or goes down the tree."""

    def present(self, path: tuple[str, ...]) -> ActorRef | None:
        """Give the incarnation that is up now."""

    async def wait_present(self, path: tuple[str, ...], but_not: ActorRef | None) -> ActorRef:
        """Wait for one that is up, for another one than `but_not`. Raises Gone."""

    def gone(self, path: tuple[str, ...]) -> ActorEnd | None:
        """Say how the last one ended, if there will be no other; None if there is one, or will be."""

    async def monitor(self, name: str, *below: str) -> Down:
        """Wait until the present one has ended."""

    async def stop_below(self, path: tuple[str, ...], shutdown_seconds: float | None) -> ActorEnd:
        """Stop it for good."""


class SupervisedRef(ActorRef):
    """A reference to one child of a supervisor. Stopping it is stopping the child, which then stays down."""

    def __init__(self, supervisor: Incarnations, path: tuple[str, ...]) -> None:
        super().__init__(path[-1])
        self._supervisor = supervisor
        self._path = path

    async def ask(
        self,
        method: str,
        /,
        *arguments: Any,
        timeout: float | None = None,  # noqa: ASYNC109
        **keywords: Any,
    ) -> Any:
        deadline = math.inf if timeout is None else anyio.current_time() + timeout
        ended: ActorRef | None = None
        while True:
            with anyio.CancelScope(deadline=deadline) as scope:
                present = await self._wait_present(method, ended)
            if scope.cancelled_caught:
                raise ActorNotStarted(self._call(method), f"no incarnation of it was up within {timeout:g} s")
            left = None if timeout is None else max(0.0, round(deadline - anyio.current_time(), 3))
            try:
                return await present.ask(method, *arguments, timeout=left, **keywords)
            except ActorNotStarted:
                if present.takes_messages:
                    raise
                ended = present

    async def tell(self, method: str, /, *arguments: Any, **keywords: Any) -> None:
        ended: ActorRef | None = None
        while True:
            present = await self._wait_present(method, ended)
            try:
                return await present.tell(method, *arguments, **keywords)
            except ActorNotStarted:
                ended = present

    def tell_nowait(self, method: str, /, *arguments: Any, **keywords: Any) -> None:
        present = self._supervisor.present(self._path)
        if present is None:
            end = self.end
            raise ActorNotStarted(self._call(method), "it is not up now" if end is None else end.reason)
        present.tell_nowait(method, *arguments, **keywords)

    async def stop(self, shutdown_seconds: float | None = None) -> ActorEnd:
        return await self._supervisor.stop_below(self._path, shutdown_seconds)

    async def wait_ended(self) -> ActorEnd:
        """Wait until it has ended for good: stopped, finished, or with its supervisor."""
        ended: ActorRef | None = None
        while True:
            try:
                ended = await self._supervisor.wait_present(self._path, ended)
            except Gone as gone:
                last = self._supervisor.present(self._path)
                return gone.end if last is None else await last.wait_ended()
            await ended.wait_ended()

    async def monitor(self) -> Down:
        """Wait until the incarnation that is up now has ended and tell it; between two, how the last one did."""
        return await self._supervisor.monitor(*self._path)

    @property
    def end(self) -> ActorEnd | None:
        """How it ended for good; None while it lives or is to be started again."""
        return self._supervisor.gone(self._path)

    @property
    def takes_messages(self) -> bool:
        present = self._supervisor.present(self._path)
        return present is not None and present.takes_messages

    def statistics(self) -> MailboxStatistics:
        present = self._supervisor.present(self._path)
        return MailboxStatistics(0, 0, 0) if present is None else present.statistics()

    async def _wait_present(self, method: str, ended: ActorRef | None) -> ActorRef:
        try:
            return await self._supervisor.wait_present(self._path, ended)
        except Gone as gone:
            raise ActorNotStarted(self._call(method), gone.end.reason) from None

    def _call(self, method: str) -> str:
        return f"{self.name}.{method}"
