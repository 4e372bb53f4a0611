"""What a reference has to offer for its actor to be served: letters that somebody else writes, posts and waits for."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from ..actor_ref import ActorEnd
from ..letters import Arguments, Keywords


class Answerable(Protocol):
    """A message on its way; `wanted` says that somebody waits for the answer."""

    wanted: bool

    async def wait(self) -> Any:
        """Wait for the answer; return or raise it."""


Written = TypeVar("Written", bound=Answerable)


class Served(Protocol[Written]):
    """The reference; each kind has letters of its own."""

    name: str

    @property
    def handlers(self) -> frozenset[str]:
        """What the actor can be asked."""

    def write(self, method: str, arguments: Arguments, keywords: Keywords) -> Written:
        """Make a message that the actor can take. Raises AttributeError, TypeError and MessageTooLarge as `ask`."""

    async def post(self, letter: Written) -> None:
        """Put a message into the mailbox, as `tell` does."""

    def post_nowait(self, letter: Written) -> None:
        """Put a message into the mailbox, as `tell_nowait` does."""

    async def stop(self, shutdown_seconds: float | None = None) -> ActorEnd:
        """Stop the actor."""

    async def kill(self) -> ActorEnd:
        """Kill it."""
