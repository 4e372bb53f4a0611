"""What is asked of the writer or the node, as it waits for its answer. It knows neither, nor who waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Request:
    """A control request until it is answered: then `reply` or `error` is set, and `wake` is called.

    One that is `for_caller` also ends when the store can't be reached; any other waits as long as that takes.
    """

    __slots__ = ("error", "for_caller", "message", "reply", "wake")

    def __init__(self, message: dict[str, Any], *, for_caller: bool) -> None:
        self.message = message
        self.for_caller = for_caller
        self.reply: dict[str, Any] | None = None
        self.error: Exception | None = None
        self.wake: Callable[[], object] | None = None

    @property
    def is_answered(self) -> bool:
        """Say whether the answer is there, good or bad."""
        return self.reply is not None or self.error is not None

    def answer(self, reply: dict[str, Any] | None, error: Exception | None, *, wake: bool = True) -> None:
        """Take the answer and wake who waits for it."""
        self.reply, self.error = reply, error
        if wake and self.wake is not None:
            self.wake()
