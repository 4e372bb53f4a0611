"""Events as scripts write them: one JSON object a line, `{"type": …, "data": {…}}`, taken exactly or not at all."""

from __future__ import annotations

import json
from typing import Any

INPUT_LINE_BYTES_MAX = 8 * 1024 * 1024
"""The longest line that is looked at. Escapes may make it several times as long as the event that it means."""


class BadLine(ValueError):
    """A line that is no event; the argument says why."""


def parse_event(line: bytes) -> tuple[str, dict[str, Any]]:
    """Read one event's type and data. Raises BadLine.

    Numbers come as they stand: whether an integer is too long, or a number infinite, is for the encoder to find, which
    names the place. So this isn't the fast parser, which would round what it can't hold.
    """
    if len(line) > INPUT_LINE_BYTES_MAX:
        raise BadLine(f"over {INPUT_LINE_BYTES_MAX:,} bytes long")
    try:
        event = json.loads(line, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise BadLine(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise BadLine(f"no JSON at character {error.pos + 1}: {error.msg}") from None
    except RecursionError:
        raise BadLine("nested too deeply") from None
    if not isinstance(event, dict) or event.keys() != {"type", "data"}:
        raise BadLine('no object with the members "type" and "data", and no others')
    if not isinstance(event["type"], str) or not event["type"]:
        raise BadLine("its type is no text, or empty")
    if not isinstance(event["data"], dict):
        raise BadLine("its data is no object")
    return event["type"], event["data"]


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object, of which no member may be lost."""
    made = dict(members)
    if len(made) != len(members):
        names = [name for name, _ in members]
        raise BadLine(f"the member {next(name for name in names if names.count(name) > 1)!r} stands twice")
    return made
