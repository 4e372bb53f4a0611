"""Tails: the lines of events that others number, from their time on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from turnkeeper.storage.exact_json import encode_data, encode_event
from turnkeeper.storage.limits import LINE_BYTES_MAX

from .folding import INBOX_MESSAGE

_TAIL: Final = b'"time":'
_TYPE: Final = b'"type":'


def event_tail(type: str, data: Mapping[str, Any], time: int, *, bytes_max: int = LINE_BYTES_MAX) -> bytes:
    """Make an event's tail; arguments, and what is raised, are as of `encode_event`."""
    line = encode_event("event", 0, time, type, data, bytes_max=bytes_max)
    return line[line.index(_TAIL) :]


def message_tail(
    type: str, data: Mapping[str, Any], sender: str | None, time: int, *, bytes_max: int = LINE_BYTES_MAX
) -> bytes:
    """Make the tail of a message for an inbox: its own type and data, and who sends it. Raises as `event_tail`."""
    tail = event_tail(type, data, time, bytes_max=bytes_max)
    place = tail.index(_TYPE)
    given, by = tail[place:-2], encode_data(INBOX_MESSAGE, {"sender": sender})
    return b'%b"type":"%b","data":{%b,%b}\n' % (tail[:place], INBOX_MESSAGE.encode(), given, by[1:])
