"""Events of a Claude Code session's records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..content import message_of, text_of
from ..dialect import Json, opaque_type, short
from ..drafts import ImportedEvent
from ..exchange import TOOL_FAILED, At, Exchange, is_call_id
from ..prints import Prints, RecordKeys, fingerprint
from ..records import Record
from ..report import ImportReport
from ..times import Clock
from ..usage import UsageCount
from .records import FORMAT, INTERRUPTION, agent_of, content_of, is_prompt, is_result, session_of

_MAPPED_OF_MESSAGE = ("id", "type", "role", "model", "content", "usage")


class ClaudeCodeReader:
    """Makes events of one session's records."""

    def __init__(self, session: str | None, agent: str | None, gaps: dict[int, str], report: ImportReport) -> None:
        self._identity = (session, agent)
        self._is_child = agent is not None
        self._gaps = gaps
        self._report = report
        self._keys = RecordKeys(FORMAT)
        self._clock = Clock()
        self._exchange = Exchange(FORMAT)
        self._said = Prints()
        self._usage = UsageCount()
        self._last_line = 0

    def events(self, record: Record, line: int) -> Iterator[ImportedEvent]:
        identity = (session_of(record.value), agent_of(record.value))
        if identity[0] is not None and identity != self._identity:
            return  # two sessions' records on one line, whose newline was lost
        before = At(self._clock.last, line)
        at = At(self._clock.read(record.value.get("timestamp")), line)
        self._last_line = line
        key = self._keys.key(record.raw, record.value.get("uuid"))
        is_new = False
        if key is not None:
            for event in self._events(record.value, key, at, before):
                is_new = True
                yield event
        if not is_new:
            self._report.skipped += 1

    def close(self) -> Iterator[ImportedEvent]:
        yield from self._exchange.end(At(self._clock.last, self._last_line))

    def _events(self, value: Json, key: str, at: At, before: At) -> Iterator[ImportedEvent]:
        kind, content = value.get("type"), content_of(value)
        if kind == "assistant" and content is not None:
            yield from self._assistant(value, content, key, at)
        elif kind == "user" and content is not None:
            yield from self._user(value, content, key, at, before)
        elif kind not in ("user", "assistant") or not self._was_said(value):
            yield ImportedEvent(opaque_type(FORMAT, kind), value, at.time_ms, key, at.line)

    def _user(self, value: Json, content: str | list[Any], key: str, at: At, before: At) -> Iterator[ImportedEvent]:
        if self._was_said(value):
            return
        results = [each for each in content if is_result(each)] if isinstance(content, list) else []
        extras = self._extras(value, at.line)
        for result in results:
            error = TOOL_FAILED if result.get("is_error") is True else None
            for event in self._exchange.result(result["tool_use_id"], result.get("content"), error, at):
                yield event.with_more(extras)
                extras = {}
        rest = [each for each in content if not is_result(each)] if results else content
        if not rest and results:
            return
        if is_prompt(value, content, is_child=self._is_child):
            yield from self._exchange.begin(key, at, before)
        flags = {"meta": True} if value.get("isMeta") is True or value.get("isCompactSummary") is True else {}
        yield ImportedEvent("user/message", message_of(rest) | flags | extras, at.time_ms, key, at.line)
        if text_of(rest).startswith(INTERRUPTION) and not self._is_sidechain(value):
            yield from self._exchange.end(at, "aborted")

    def _assistant(self, value: Json, content: str | list[Any], key: str, at: At) -> Iterator[ImportedEvent]:
        message = value["message"]
        id = message.get("id") if isinstance(message.get("id"), str) else None
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if id is None:
            if self._was_said(value):
                return
            new, usage = blocks, message.get("usage")
        else:
            # Two equal blocks of one record are both meant; only what an earlier record said is a repetition.
            prints = [fingerprint({"message": id, "block": each}) for each in blocks]
            new = [each for each, print_ in zip(blocks, prints, strict=True) if print_ not in self._said]
            for each in prints:
                self._said.add(each)
            usage = self._usage.uncounted(id, message.get("usage"))
            if blocks and not new and not usage:
                return
        calls: list[ImportedEvent] = []
        shown = []
        aside = self._aside(value)
        for block in new:
            started = [event.with_more(aside) for event in self._call(block, at)]
            calls += started
            shown.append({"type": "tool_use", "id": block["id"]} if started else block)
        named = {"message_id": id, "model": short(message.get("model")) or None, "usage": usage}
        data = message_of(shown) | {name: each for name, each in named.items() if each is not None and each != {}}
        yield ImportedEvent("assistant/message", data | self._extras(value, at.line), at.time_ms, key, at.line)
        yield from calls

    def _call(self, block: Any, at: At) -> Iterator[ImportedEvent]:
        if isinstance(block, dict) and block.get("type") == "tool_use" and is_call_id(block.get("id")):
            arguments = block.get("input")
            yield from self._exchange.call(
                block["id"],
                short(block.get("name")) or "unknown",
                arguments if isinstance(arguments, dict) else {"input": arguments},
                at,
            )

    def _was_said(self, value: Json) -> bool:
        """Say whether an earlier record was equal but for its id."""
        return not self._said.add(fingerprint({name: each for name, each in value.items() if name != "uuid"}))

    def _is_sidechain(self, value: Json) -> bool:
        return value.get("isSidechain") is True and not self._is_child

    def _aside(self, value: Json) -> Json:
        """Return what marks an event as a sub-agent's, in the middle of another's session."""
        return {"sidechain": True} if self._is_sidechain(value) else {}

    def _extras(self, value: Json, line: int) -> Json:
        """Return what goes beside the content of a record's first event."""
        extras = self._aside(value)
        if line in self._gaps:
            extras["gap"] = self._gaps[line]
        source = {name: each for name, each in value.items() if name not in ("type", "message")}
        message = value["message"]
        rest = {name: each for name, each in message.items() if name not in _MAPPED_OF_MESSAGE}
        if "role" in message and message["role"] != value["type"]:
            rest["role"] = message["role"]
        return extras | {"source": source | ({"message": rest} if rest else {})}
