"""What others hold of an actor: the reference, the same wherever the actor lives.

This is the face alone. An actor of this loop, or of a worker process that this loop started, has its mailbox in this
loop (mailbox_ref.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from .mailbox import MailboxStatistics

READY_SECONDS = 10.0
"""How long whatever is started may take to be ready, if nothing else is said."""

SHUTDOWN_SECONDS = 3.0
"""How long an actor that is stopped may take to handle what it has and to leave, if nothing else is said. With the two
seconds that a process has after SIGTERM, all is over in five."""


@dataclass(frozen=True, slots=True)
class ActorEnd:
    """How an actor ended: in one line, and the error if it failed.

    The end is `normal` if somebody stopped it, or its process ended by itself with exit code 0.
    """

    reason: str
    error: Exception | None = None
    normal: bool = False


@dataclass(frozen=True, slots=True)
class Down:
    """What a monitor tells: that `name` has ended, how, and the error if it failed."""

    name: str
    reason: str
    error: Exception | None = None


class ActorRef(ABC):
    """How others in this loop reach one actor. `name` is what errors call it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<ActorRef {self.name}: {self.end.reason if self.end else 'alive'}>"

    # A timeout of the caller's own scope could not tell what was not started from what may have been done.
    @abstractmethod
    async def ask(
        self,
        method: str,
        /,
        *arguments: Any,
        timeout: float | None = None,  # noqa: ASYNC109
        **keywords: Any,
    ) -> Any:
        """Have the actor's handler run with these arguments, after all it was sent before, and return what it returns.

        Waits for room in the mailbox and then for the reply, at most `timeout` seconds for both. Cancelled, only the
        wait ends: a message that is in the mailbox stays there and will be handled.

        Raises:
            ActorNotStarted: The actor has ended, is being stopped, or ended before its turn; or the time was over
                while the mailbox was full. Nothing was done.
            ActorUnknown: The actor or its process ended while it was at it, or the time is over: it may have been done.
            ActorError: The handler failed. Registered errors (errors.py) arrive as what they are.
            AttributeError: The actor has no such handler.
            TypeError: An argument can't cross to the actor's process.
            MessageTooLarge: It could never be in the mailbox, or cross to the actor's process.
        """

    @abstractmethod
    async def tell(self, method: str, /, *arguments: Any, **keywords: Any) -> None:
        """Have the actor's handler run with these arguments some time; wait only for room in the mailbox.

        Cancelled while it waits, nothing was told. Raises ActorNotStarted, AttributeError, TypeError and
        MessageTooLarge as `ask` does.
        """

    @abstractmethod
    def tell_nowait(self, method: str, /, *arguments: Any, **keywords: Any) -> None:
        """Tell without waiting.

        Raises:
            MailboxFull: There is no room now; nothing was told. Otherwise as `tell` does.
        """

    @abstractmethod
    async def stop(self, shutdown_seconds: float | None = None) -> ActorEnd:
        """End the actor in order and return how it ended; if it has ended already, only return that.

        It takes no more messages, handles those that it has, and leaves, within `shutdown_seconds`, its own if nothing
        is said; then it is cancelled, and a process that does not heed that is killed. Shielded from cancellation.

        Raises:
            Exception: The error of a tell, or of the actor's `__aexit__`, that nobody was told of.
        """

    async def kill(self) -> ActorEnd:
        """End the actor at once and return how it ended: it is cancelled, and its process gets SIGKILL.

        What it has not handled is not handled. Shielded, and raises as `stop`.
        """
        return await self.stop(0)

    @abstractmethod
    async def wait_ended(self) -> ActorEnd:
        """Wait until the actor has ended and return how. Cancelling only ends the wait."""

    async def monitor(self) -> Down:
        """Wait until the actor has ended and tell it: once for each call, also if it ended long before."""
        end = await self.wait_ended()
        return Down(self.name, end.reason, end.error)

    @property
    @abstractmethod
    def end(self) -> ActorEnd | None:
        """How the actor ended; None while it lives."""

    @property
    def takes_messages(self) -> bool:
        """Whether it has not ended, and isn't known to be ending."""
        return self.end is None

    @abstractmethod
    def statistics(self) -> MailboxStatistics:
        """Return what its mailbox holds now."""
