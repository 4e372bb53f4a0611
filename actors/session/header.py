"""What is known of a session beside its log: the header that its creator gives it, and what anybody may change of that.

Checked before anything is asked of the store, by name: texts that would steer a terminal or a list, labels that are
none, and more than a header has room for.
"""

from __future__ import annotations

import os
import time
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

import anyio.to_thread

from turnkeeper.storage.errors import InvalidValue, TooLarge
from turnkeeper.storage.exact_json import encode_data
from turnkeeper.storage.limits import PATCH_BYTES_MAX

from ..ids import new_session_id
from ..names import check_key
from ..protocol import HEADER_DEPTH_MAX

HEADER_BYTES_MAX: Final = PATCH_BYTES_MAX - 1024
"""A session's header as its creator gives it; what is left of a patch is for owner and first turn."""

LABEL_BYTES_MAX: Final = 1024
"""One label, its name and its value."""

_HEADER: Final = "session's header"
_SHOWN_CHARACTERS: Final = 40


def new_header(**given: Any) -> dict[str, Any]:
    """Make the header of a new session of what is given; what is empty is left out.

    Raises:
        InvalidValue: A member that can't be kept, or isn't to be. TooLarge: All of them, or one label.
    """
    if given.get("key") is not None:
        check_key(given["key"], _HEADER)
    header = {"id": new_session_id(), "kind": "session", "created": time.time_ns() // 1_000_000}
    header |= {name: value for name, value in given.items() if value}
    check_header(header)
    return header


def check_header(header: Mapping[str, Any]) -> None:
    """Check a session's header. Raises as `new_header`."""
    check_title(header.get("title") or "")
    check_labels(header.get("labels") or {})
    size = len(encode_data(_HEADER, dict(header)))
    if size > HEADER_BYTES_MAX:
        raise TooLarge("a session's header (key, cwd, title, labels …)", size, HEADER_BYTES_MAX)
    for name, value in header.items():
        if _levels(value) >= HEADER_DEPTH_MAX:
            raise InvalidValue(0, _HEADER, f"$.{name}", f"nested deeper than {HEADER_DEPTH_MAX - 1} levels")


def _levels(value: object) -> int:
    """Count how deep lists and maps are nested in a value, which has no cycles."""
    levels, inner = 0, [value]
    while inner := [each for each in inner if isinstance(each, Mapping | list | tuple)]:
        inner = [each for part in inner for each in (part.values() if isinstance(part, Mapping) else part)]
        levels += 1
    return levels


def check_changes(title: str | None, labels: Mapping[str, str | None]) -> None:
    """Check a new title, if there is one, and labels, of which those with None go. Raises as `new_header`."""
    values = {name: "" if value is None else value for name, value in labels.items()}
    check_header({"title": "" if title is None else title, "labels": values})


def check_title(title: object) -> None:
    """Check a title: one line of text, of characters that show. Raises InvalidValue."""
    if not isinstance(title, str):
        raise InvalidValue(0, _HEADER, "$.title", "a title is a text")
    _check_shown(title, "$.title")


def check_labels(labels: object) -> None:
    """Check labels: names and their values, all of them short texts. Raises InvalidValue, TooLarge."""
    if not isinstance(labels, Mapping):
        raise InvalidValue(0, _HEADER, "$.labels", "labels are a map of names to values")
    for name, value in labels.items():
        if not isinstance(name, str) or not name:
            raise InvalidValue(0, _HEADER, "$.labels", "a label's name is a text, and not an empty one")
        place = f"$.labels.{name[:_SHOWN_CHARACTERS]}"
        if not isinstance(value, str):
            raise InvalidValue(0, _HEADER, ascii(place)[1:-1], "a label's value is a text")
        size = len(name.encode(errors="replace")) + len(value.encode(errors="replace"))
        if size > LABEL_BYTES_MAX:
            raise TooLarge(f"the label {name[:_SHOWN_CHARACTERS]!r} of a session", size, LABEL_BYTES_MAX)
        _check_shown(name, ascii(place)[1:-1])


async def other_spelling(cwd: str | None) -> str | None:
    """Give the path that a directory really has, if that is another than the one it is spelled as; in a thread."""
    if not cwd or not os.path.isabs(cwd) or "\0" in cwd:
        return None
    real = await anyio.to_thread.run_sync(os.path.realpath, cwd)
    return real if real != cwd else None


def _check_shown(text: str, path: str) -> None:
    for place, character in enumerate(text):
        if unicodedata.category(character) == "Cc":
            raise InvalidValue(0, _HEADER, path, f"a control character (U+{ord(character):04X}) at place {place}")
