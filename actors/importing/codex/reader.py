"""Events of a Codex session's records."""

from __future__ import annotations

from collections.abc import Iterator

from ..content import message_of
from ..dialect import Json, opaque_type, short
from ..drafts import ImportedEvent
from ..exchange import TOOL_FAILED, At, Exchange, is_call_id
from ..prints import Prints, RecordKeys, fingerprint
from ..records import Record
from ..report import ImportReport
from ..times import Clock
from .records import (
    CALL_NAMES,
    CALLS,
    FORMAT,
    OUTPUTS,
    Item,
    arguments_of,
    is_prompt,
    item_of,
    source_of,
)

_TURN_STARTS = {"task_started", "turn_started"}
_TURN_ENDS = {"task_complete", "turn_complete"}
_BROKEN_OFF = "interrupted"
"""How an exchange ended that was declared to begin and never to end."""


class CodexReader:
    """Makes events of the session's records. `forked` is the time of the fork, None if it is none."""

    def __init__(self, forked: int | None, report: ImportReport) -> None:
        self._forked = forked
        self._report = report
        self._keys = RecordKeys(FORMAT)
        self._clock = Clock()
        self._exchange = Exchange(FORMAT)
        self._items = Prints()
        self._model: str | None = None
        self._last_line = 0
        self._is_declared = False
        self._is_answered = False

    def events(self, record: Record, line: int) -> Iterator[ImportedEvent]:
        before = At(self._clock.last, line)
        at = At(self._clock.read(record.value.get("timestamp")), line)
        self._last_line = line
        key = self._keys.key(record.raw, None)
        item = item_of(record.value)
        if key is None or self._is_repeated(item):
            self._report.skipped += 1
            return
        yield from self._starts(item, key, at, before)
        yield from self._content(record.value, item, key, at)
        yield from self._ends(item, at)

    def close(self) -> Iterator[ImportedEvent]:
        # Without declarations nobody can tell.
        reason = _BROKEN_OFF if self._is_declared else None
        yield from self._exchange.end(At(self._clock.last, self._last_line), reason)

    def _is_repeated(self, item: Item) -> bool:
        payload = item.payload
        if item.kind != "response_item" or payload is None:
            return False
        if not any(isinstance(payload.get(name), str) for name in ("id", "call_id")):
            return False
        return not self._items.add(fingerprint({name: each for name, each in payload.items() if name != "timestamp"}))

    def _starts(self, item: Item, key: str, at: At, before: At) -> Iterator[ImportedEvent]:
        """Begin an exchange where the record says so."""
        is_open, is_unanswered = self._exchange.is_open, not self._is_answered
        if item.kind == "event_msg" and item.word in _TURN_STARTS:
            if is_open and self._is_declared:
                yield from self._exchange.end(before, _BROKEN_OFF)
                is_open = False
            if not (is_open and is_unanswered):  # else its prompt has begun it already
                yield from self._exchange.begin(key, at, before)
            self._is_declared, self._is_answered = True, False
            return
        is_said = is_prompt(item) or (item.kind == "event_msg" and item.word == "user_message")
        # While an exchange is declared to go on, what a person says only steers it.
        if is_said and not (is_open and (self._is_declared or is_unanswered)):
            yield from self._exchange.begin(key, at, before)
            self._is_declared, self._is_answered = False, False

    def _ends(self, item: Item, at: At) -> Iterator[ImportedEvent]:
        """End the exchange where the record says so."""
        if item.kind != "event_msg" or item.payload is None or not self._exchange.is_open:
            return
        if item.word in _TURN_ENDS:
            error = item.payload.get("error")
            if isinstance(error, dict):
                said = {"type": short(error.get("codex_error_info")), "message": short(error.get("message"))}
                yield from self._exchange.end(at, "error", said)
            else:
                yield from self._exchange.end(at, "completed")
        elif item.word == "turn_aborted":
            yield from self._exchange.end(at, "aborted")

    def _content(self, value: Json, item: Item, key: str, at: At) -> Iterator[ImportedEvent]:
        payload = item.payload or {}
        if item.kind == "turn_context":
            self._model = short(payload.get("model")) or None
        events: list[ImportedEvent] = []
        if item.kind == "response_item":
            self._is_answered = self._is_answered or payload.get("role") not in ("user", "developer", "system")
            if item.word == "message" and payload.get("role") in ("user", "assistant"):
                events = self._message(value, payload, key, at)
            elif item.word in CALLS:
                events = self._call(value, payload, item.word, at)
            elif item.word in OUTPUTS:
                events = self._output(value, payload, item.word, at)
        yield from events or [ImportedEvent(opaque_type(FORMAT, item.word), value, at.time_ms, key, at.line)]

    def _message(self, value: Json, payload: Json, key: str, at: At) -> list[ImportedEvent]:
        content = payload.get("content")
        if not isinstance(content, str | list):
            return []
        role = payload["role"]
        data = message_of(content)
        if role == "assistant":
            named = {"message_id": short(payload.get("id")), "model": self._model}
            data |= {name: each for name, each in named.items() if each}
        elif not is_prompt(Item("response_item", payload)):
            data["meta"] = True
        if self._forked is not None and at.time_ms is not None and at.time_ms < self._forked:
            data["replayed"] = True
        data["source"] = source_of(value, payload, ("content", "role") + (("id",) if role == "assistant" else ()))
        return [ImportedEvent(f"{role}/message", data, at.time_ms, key, at.line)]

    def _call(self, value: Json, payload: Json, word: str, at: At) -> list[ImportedEvent]:
        call = payload.get("call_id")
        if not is_call_id(call):
            return []
        field = CALLS[word]
        name = CALL_NAMES.get(word) or short(payload.get("name")) or "unknown"
        source = source_of(value, payload, ("call_id", "name", field))
        events = self._exchange.call(call, name, arguments_of(payload.get(field)), at)
        return [each.with_more({"source": source}) for each in events]

    def _output(self, value: Json, payload: Json, word: str, at: At) -> list[ImportedEvent]:
        call = payload.get("call_id")
        if not is_call_id(call):
            return []
        field = OUTPUTS[word]
        output = payload.get(field)
        error = TOOL_FAILED if isinstance(output, dict) and output.get("success") is False else None
        source = source_of(value, payload, ("call_id", field))
        return [each.with_more({"source": source}) for each in self._exchange.result(call, output, error, at)]
