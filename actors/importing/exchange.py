"""Calls paired with results and exchanges with their ends, while one session's records are read in order.

Everything follows from what stood before in the file, so the events of a file's beginning are the beginning of the
file's events: a file that has grown adds, and contradicts nothing. Only what the end of the file leaves open is
presumed, by `close`; its keys are those of the real thing, should a longer file bring it (see `drafts`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeGuard

from ..folding import (
    TOOL_FINISHED,
    TOOL_LATE_RESULT,
    TOOL_OUTCOME_UNKNOWN,
    TOOL_STARTED,
    TURN_END,
    TURN_START,
    unanswered,
)
from .drafts import ImportedEvent
from .prints import Prints, fingerprint

TOOL_FAILED = "TOOL_FAILED"
"""The error of a call whose result says that it failed; the output says how."""

_CALL_ID_CHARACTERS_MAX = 256


class At(NamedTuple):
    """When and where in the file something happened."""

    time_ms: int | None
    line: int


def is_call_id(value: object) -> TypeGuard[str]:
    """Say whether a value can name a call."""
    return isinstance(value, str) and 0 < len(value) <= _CALL_ID_CHARACTERS_MAX


class Exchange:
    """The open exchange of a session, if there is one, and all of its calls.

    `format` begins every key. What was called and answered is remembered for the whole session, in a number each.
    """

    def __init__(self, format: str) -> None:
        self._format = format
        self._turn: str | None = None
        self._turns = 0
        self._open_calls: dict[str, None] = {}
        self._calls = Prints()
        self._results = Prints()

    @property
    def is_open(self) -> bool:
        """Whether an exchange has begun and not ended."""
        return self._turn is not None

    def begin(self, key: str, at: At, before: At) -> Iterator[ImportedEvent]:
        """Begin an exchange with the record of this key; what was open ends at the moment `before` it."""
        yield from self.end(before)
        self._turn = key
        self._turns += 1
        yield ImportedEvent(TURN_START, {"turn": self._turns}, at.time_ms, f"{self._format}/turn:{key}", at.line)

    def end(self, at: At, reason: str | None = None, error: dict[str, Any] | None = None) -> Iterator[ImportedEvent]:
        """Close open calls as unknown, then the exchange.

        Without a reason it is `completed`, or `interrupted` if a call was open.
        """
        reason = reason or ("interrupted" if self._open_calls else "completed")
        for call in self._open_calls:
            data = unanswered(call, TOOL_OUTCOME_UNKNOWN)
            yield ImportedEvent(TOOL_FINISHED, data, at.time_ms, self._result_key(call), at.line)
        self._open_calls.clear()
        if self._turn is not None:
            end = {"turn": self._turns, "reason": reason} | ({"error": error} if error else {})
            yield ImportedEvent(TURN_END, end, at.time_ms, f"{self._format}/turn-end:{self._turn}", at.line)
            self._turn = None

    def call(self, call: str, name: str, arguments: dict[str, Any], at: At) -> Iterator[ImportedEvent]:
        """Start a call; nothing if the session has one of this id."""
        if not self._calls.add(hash(call)):
            return
        self._open_calls[call] = None
        # Nobody wrote down what a repetition would do, so nothing may be assumed: "once".
        data = {"id": call, "name": name, "arguments": arguments, "effect": "once"}
        yield ImportedEvent(TOOL_STARTED, data, at.time_ms, f"{self._format}/call:{call}", at.line)

    def result(self, call: str, output: Any, error: str | None, at: At) -> Iterator[ImportedEvent]:
        """Finish a call. A result of no open call is kept as `tool/late-result`, the repetition of one is nothing."""
        data = {"id": call, "output": output} | ({"error": error} if error else {})
        content = fingerprint(data)
        if not self._results.add(content):
            return
        late_key = f"{self._format}/late-result:{content:016x}:{call}"
        late = ImportedEvent(TOOL_LATE_RESULT, data, at.time_ms, late_key, at.line)
        if call in self._open_calls:
            del self._open_calls[call]
            yield ImportedEvent(TOOL_FINISHED, data, at.time_ms, self._result_key(call), at.line, late)
        else:
            yield late

    def _result_key(self, call: str) -> str:
        return f"{self._format}/result:{call}"
