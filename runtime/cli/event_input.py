"""Events and messages as scripts write them, in JSON, taken exactly or not at all.

Numbers come as they stand: whether an integer is too long, or a number infinite, is for the encoder to find, which
names the place. So this isn't the fast parser, which would round what it can't hold.
"""

from __future__ import annotations

import json
from typing import Any

INPUT_BYTES_MAX = 8 * 1024 * 1024
"""The longest line, or message, that is looked at. Escapes may make it several times as long as what it means."""


class BadInput(ValueError):
    """What is no event, or no message's data; the argument says why."""


def parse_event(line: bytes) -> tuple[str, dict[str, Any]]:
    """Read one event's type and data, `{"type": …, "data": {…}}`. Raises BadInput."""
    event = _decoded(line)
    if not isinstance(event, dict) or event.keys() != {"type", "data"}:
        raise BadInput('no object with the members "type" and "data", and no others')
    if not isinstance(event["type"], str) or not event["type"]:
        raise BadInput("its type is no text, or empty")
    if not isinstance(event["data"], dict):
        raise BadInput("its data is no object")
    return event["type"], event["data"]


def parse_data(content: bytes) -> dict[str, Any]:
    """Read a message's data, one object. Raises BadInput."""
    if not content.strip():
        raise BadInput("empty, and a message's data is a JSON object, if only {}")
    data = _decoded(content)
    if not isinstance(data, dict):
        raise BadInput("no JSON object")
    return data


def _decoded(content: bytes) -> Any:
    if len(content) > INPUT_BYTES_MAX:
        raise BadInput(f"over {INPUT_BYTES_MAX:,} bytes long")
    try:
        return json.loads(content, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise BadInput(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"no JSON at character {error.pos + 1}: {error.msg}") from None
    except RecursionError:
        raise BadInput("nested too deeply") from None


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object, of which no member may be lost."""
    made = dict(members)
    if len(made) != len(members):
        names = [name for name, _ in members]
        raise BadInput(f"the member {next(name for name in names if names.count(name) > 1)!r} stands twice")
    return made
