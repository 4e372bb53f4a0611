"""Events short enough for the store: one that is too long is shortened if that keeps its meaning, or left out.

Either way it is reported. Calls, results and messages are never left out: calls stay paired, usage stays counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnkeeper.storage.exact_json import encode_data

from ..folding import TOOL_FINISHED, TOOL_LATE_RESULT, TOOL_STARTED
from .drafts import ImportedEvent
from .report import ImportReport

TOOL_OUTPUT_LEFT_OUT = "TOOL_OUTPUT_LEFT_OUT"
"""The error of a call whose result came, but is too long for an event."""

_MIB = 1024 * 1024
_FRAME_BYTES = 256  # of an event's line: ids, numbers and the names of its members, all but type and data
_GROWTH_MAX = 3  # an event's data over the bytes of its record, at most: its text may stand in it twice
_MEMBER_CHARACTERS_MAX = 200


class Fitting:
    """Fits the events of one file."""

    def __init__(self, path: Path, event_bytes_max: int, report: ImportReport) -> None:
        self._path = path
        self._event_bytes_max = event_bytes_max
        self._report = report

    def fitted(self, event: ImportedEvent, record_bytes: int) -> Iterator[ImportedEvent]:
        """Yield the event, a shorter one in its place, or nothing."""
        if record_bytes * _GROWTH_MAX + _FRAME_BYTES < self._event_bytes_max:
            yield event
            return
        length = _length(event)
        if length <= self._event_bytes_max:
            yield event
            return
        limit = self._event_bytes_max
        too_long = f"line of {length} bytes is over the limit of {_told(limit)}"
        for shorter, without in _shorter(event):
            if _length(shorter) <= limit:
                self._report.add_problem(self._path, event.line, f"{too_long}; {event.type} kept without {without}")
                yield shorter
                return
        self._report.add_problem(self._path, event.line, f"{too_long}; {event.type} left out")


def _told(limit: int) -> str:
    """Name the limit as people know it: who stores the events may need a little room of it."""
    return f"{limit / _MIB:.2g} MiB" if limit > _MIB // 2 else f"{limit} bytes"


def _length(event: ImportedEvent) -> int:
    otherwise = len(event.otherwise.type) if event.otherwise else 0
    return len(encode_data(event.type, event.data)) + max(len(event.type), otherwise) + _FRAME_BYTES


def _shorter(event: ImportedEvent) -> Iterator[tuple[ImportedEvent, str]]:
    """Yield shorter forms, the one that leaves out least first, each with the name of what it leaves out."""
    data = event.data
    if "source" in data:
        source = {name: each for name, each in data["source"].items() if _is_short(each)}
        data = {**data, "source": source}
        yield _having(event, data), "its record's other members"
    if event.type in (TOOL_FINISHED, TOOL_LATE_RESULT):
        yield _having(event, {**data, "output": None, "error": TOOL_OUTPUT_LEFT_OUT}), "its output"
    if event.type == TOOL_STARTED:
        yield _having(event, {**data, "arguments": {}}), "its arguments"
    if event.type.endswith("/message"):
        without = {name: each for name, each in data.items() if name != "content"}
        yield _having(event, {**without, "text": ""}), "its content"


def _having(event: ImportedEvent, data: dict[str, Any]) -> ImportedEvent:
    otherwise = replace(event.otherwise, data=data) if event.otherwise else None
    return replace(event, data=data, otherwise=otherwise)


def _is_short(value: Any) -> bool:
    return (
        value is None
        or isinstance(value, int | float)
        or (isinstance(value, str) and len(value) <= _MEMBER_CHARACTERS_MAX)
    )
