"""Messages on their way through an actor's mailbox, and how they end.

Whoever sends a letter may wait for its answer: a value, an error, or that there will be none, with the difference
between what certainly didn't begin and what may have been done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import anyio

from .errors import ActorNotStarted, ActorUnknown

VALUE_BYTES = 16
"""What each value of a message counts for in a mailbox, beside its text or bytes."""

Arguments: TypeAlias = tuple[Any, ...]
Keywords: TypeAlias = dict[str, Any]


class Sealed(NamedTuple):
    """A message in the form in which its actor takes it, and what it counts for in the mailbox, in bytes."""

    message: Any
    size: int


class Letter:
    """One message on its way through a mailbox, with the place for its answer."""

    def __init__(self, call: str, message: Any, size: int) -> None:
        self.call = call
        self.message = message
        self.size = size
        self.begun = False
        """Whether the actor may have seen it. Set before it can."""
        self.wanted = False
        """Whether somebody waits for the answer."""
        self.answered = False
        """Whether there is an answer. The first one counts."""
        self._answer_known: anyio.Event | None = None
        self._reply: Any = None
        self._error: Exception | None = None

    def reply(self, value: Any) -> None:
        """Answer with a value."""
        self._answer(value, None)

    def fail(self, error: Exception) -> None:
        """Answer with an exception."""
        self._answer(None, error)

    def lose(self, reason: str, cause: Exception | None = None) -> None:
        """Answer that there will be no answer; `cause` is what ended the actor while it was at it."""
        error = ActorUnknown(self.call, reason) if self.begun else ActorNotStarted(self.call, reason)
        error.__cause__ = cause
        self.fail(error)

    async def wait(self) -> Any:
        """Wait for the answer; return or raise it."""
        if not self.answered:
            # Made only here: nobody waits for tells, and an event is a good part of what a letter costs.
            if self._answer_known is None:
                self._answer_known = anyio.Event()
            await self._answer_known.wait()
        if self._error is not None:
            raise self._error
        return self._reply

    def _answer(self, value: Any, error: Exception | None) -> None:
        if not self.answered:
            self._reply, self._error, self.answered = value, error, True
            if self._answer_known is not None:
                self._answer_known.set()


class LetterLost(Exception):
    """Raised instead of handling a letter: whoever should do it will never answer."""


class LetterRefused(Exception):
    """Raised by handling a letter: the actor answers with this error, and lives on."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def seal_in_loop(method: str, arguments: Arguments, keywords: Keywords) -> Sealed:
    """Leave a message as it is, and weigh it."""
    return Sealed((method, arguments, keywords), _weight(arguments) + _weight(keywords))


def _weight(value: Any) -> int:
    if isinstance(value, str | bytes | bytearray | memoryview):
        return len(value) + VALUE_BYTES
    if isinstance(value, Mapping):
        return VALUE_BYTES + sum(_weight(key) + _weight(content) for key, content in value.items())
    if isinstance(value, list | tuple):
        return VALUE_BYTES + sum(map(_weight, value))
    return VALUE_BYTES
