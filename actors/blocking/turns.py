"""Turns and tool calls for plain programs."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ..session.turns import ToolCall, Turn
from .loop import Loop


class BlockingTurn:
    """`Turn`, as a `with`."""

    def __init__(self, loop: Loop, turn: Turn) -> None:
        self._loop = loop
        self._turn = turn

    def __enter__(self) -> None:
        self._loop.call(self._turn.__aenter__)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.leave(self._turn, kind, error, traceback)


class BlockingToolCall:
    """`ToolCall`, as a `with`."""

    def __init__(self, loop: Loop, call: ToolCall) -> None:
        self.id = call.id
        self.name = call.name
        self._loop = loop
        self._call = call

    def finish(self, output: Any, *, error: str | None = None) -> None:
        """Do as `ToolCall.finish`."""
        self._loop.call(self._call.finish, output, error=error)

    def __enter__(self) -> BlockingToolCall:
        self._loop.call(self._call.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.leave(self._call, kind, error, traceback)
