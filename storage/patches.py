"""What a patch may say of the members of a summary that storage itself goes by, whoever sends it.

The rest of a summary is its programs' and isn't looked at. A patch that is refused here would otherwise be stored and
end every writer that comes upon it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .errors import InvalidLine
from .requests import Append, Patch

_MAPS = ("owner", "labels")
_TEXTS = ("parent", "key")
_NUMBERS = ("open_turn", "deleted_to")

_OF_THE_FIRST_RUN = ("key", "parent_seq")
"""What a stream has from its beginning or never."""


ABANDONED: Final = "abandoned"
"""How many events a stream had when an owner who hadn't given it back lost it to the next one.

The first such number stands until whoever owns the stream takes it away.
"""


def patch_of_grant(summary: Mapping[str, Any], head: int, owner: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a grant to `owner` changes of the summary of a stream that has `head` events."""
    former = summary.get("owner")
    patch: dict[str, Any] = {"owner": dict(owner)}
    if former is not None and former.get("token") != owner.get("token") and summary.get(ABANDONED) is None:
        patch[ABANDONED] = head
    return patch


def fault_of_patch(request: Append | Patch) -> InvalidLine | None:
    """Say why a request's patch can't be applied, whatever is stored; None if it can."""
    first = head = 0
    is_first = False
    if isinstance(request, Append):
        first, head, is_first = request.first, request.first + request.lines.count(b"\n"), request.create
    why = _why_not(request.patch or {}, is_first, head)
    return None if why is None else InvalidLine(request.stream, first, why)


def _why_not(patch: Mapping[str, Any], is_first: bool, head: int) -> str | None:
    """Say what is wrong. `is_first` is whether it makes its stream, `head` the number of events that this has then."""
    for name, value in patch.items():
        if name in _OF_THE_FIRST_RUN and not is_first:
            return f"{name} can't be given later"
        if name == "keys":
            return "keys come with their lines"
        if value is None:
            continue
        if name in _MAPS and not isinstance(value, Mapping):
            return f"{name} is a map"
        if name in _TEXTS and not isinstance(value, str):
            return f"{name} is a text"
        if name in _NUMBERS and (type(value) is not int or value < 0):
            return f"{name} is a number from 0 on"
        if name == "deleted_to" and value > head:
            return f"it has {head} events, so its first {value} can't be deleted"
    return None
