"""What a worker says to its host, read with every field checked: a frame's value in, news or a FrameError out. Pure."""

from __future__ import annotations

import reprlib
from typing import Any, Final, NamedTuple

from ..errors import is_error
from ..frames import FrameError
from ..large_bytes import Place

STARTED, REPLY, REFUSED, FAILED, ENDED = "started", "reply", "refused", "failed", "ended"

ANSWERS: Final = frozenset({REPLY, REFUSED, FAILED})
"""What a call is answered with, exactly once."""


class News(NamedTuple):
    """The kind, what belongs to it, and the places of large byte strings in that."""

    kind: str
    content: Any
    places: list[Place]


def read_news(message: Any) -> News:
    """Read what a worker says once it is ready. Raises FrameError for anything else."""
    match message:
        case ["reply", value, *places] if all(map(_is_place, places)):
            return News(REPLY, value, places)
        case ["refused" | "failed" as kind, error] if is_error(error):
            return News(kind, error, [])
        case ["started", [*handlers]] if all(isinstance(each, str) for each in handlers):
            return News(STARTED, handlers, [])
        case ["ended", error] if error is None or is_error(error):
            return News(ENDED, error, [])
    raise _nonsense(message)


def read_readiness(message: Any) -> dict[str, Any] | None:
    """Read a worker's first word: None if it is ready, or why it couldn't import its actor. Raises FrameError."""
    match message:
        case ["ready", None]:
            return None
        case ["failed", {"unguarded": bool()} as failure] if is_error(failure):
            why: dict[str, Any] = failure
            return why
    raise _nonsense(message)


def _is_place(value: Any) -> bool:
    match value:
        case [0, int(), int()]:
            return True
    return False


def _nonsense(message: Any) -> FrameError:
    return FrameError(f"it said what no worker says: {reprlib.repr(message)}")
