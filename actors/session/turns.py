"""The bodies of a session: a turn and a tool call, each an `async with` whose end closes what it began.

What the body raised passes unchanged; a failure of the ending itself becomes a note of it. The ends wait in the
session's shield.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..folding import TOOL_OUTCOME_UNKNOWN, TURN_START, Effect, Reason, text_of
from ..leaving import note_or_raise

if TYPE_CHECKING:
    from .session import Session


class Turn:
    """One turn of a session, as an `async with`; see `Session.turn`."""

    def __init__(self, session: Session, data: dict[str, Any]) -> None:
        self._session = session
        self._given = data
        self._seq = -1

    async def __aenter__(self) -> None:
        number = self._session._state.turns + 1
        self._seq = await self._session.append(TURN_START, {"turn": number} | self._given | {"turn": number})

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        reason: Reason = "completed" if error is None else "error" if isinstance(error, Exception) else "aborted"
        try:
            await self._session._end_turn(self._seq, reason, error if reason == "error" else None)
        except Exception as failure:
            note_or_raise(error, failure)


class ToolCall:
    """One tool call of a session, as an `async with`; see `Session.tool`."""

    def __init__(self, session: Session, id: str, name: str, arguments: Any, effect: Effect) -> None:
        self.id = id
        self.name = name
        self._session = session
        self._arguments = arguments
        self._effect: Effect = effect

    async def finish(self, output: Any, *, error: str | None = None) -> None:
        """Append the call's result. Durable with the next flush, the turn's end at the latest."""
        await self._session.tool_finished(self.id, output, error=error)

    async def __aenter__(self) -> ToolCall:
        await self._session.tool_started(self.id, self.name, self._arguments, effect=self._effect)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.id not in self._session._state.calls:
            return
        try:
            await self._session._end_call(self.id, _error_of(error))
        except Exception as failure:
            note_or_raise(error, failure)


def _error_of(error: BaseException | None) -> str | None:
    """Say what a call's result has as its error, by how the body ended."""
    if isinstance(error, Exception):
        return f"{type(error).__name__}: {text_of(error)}"
    return None if error is None else TOOL_OUTCOME_UNKNOWN
