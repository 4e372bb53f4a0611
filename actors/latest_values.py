"""Latest values: of each thing only the newest counts, so what waits for a slow reader is bounded and never stale.

Used on both sides of the bus. A value belongs to a *topic*, a stream's id, and has a *type*, an event's; topics are
wanted by name, or all of them, which is None. Nothing here is stored anywhere, or has a position.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from turnkeeper.runtime.frames import FrameError

Topics: TypeAlias = frozenset[str] | None
"""The topics that somebody wants; None is all of them, now and later."""

Name: TypeAlias = tuple[str, str]
"""What a value is the latest of: its topic and its type."""

NOTHING: Final[frozenset[str]] = frozenset()

VALUES_MAX: Final = 1024
"""Values that wait for one reader. Where there are more, the oldest ones are dropped: newer ones of them will come."""

VALUE_BYTES_MAX: Final = 64 * 1024
"""One value's frame. A larger one isn't published."""

TOPICS_MAX: Final = 1000
"""Topics that are wanted by name; who wants more wants all."""

Value = TypeVar("Value")


class LatestValues(Generic[Value]):
    """The newest value of each name until it is taken, in the order in which they came."""

    def __init__(self) -> None:
        self._values: dict[Name, Value] = {}

    def __len__(self) -> int:
        return len(self._values)

    def put(self, name: Name, value: Value) -> None:
        """Keep a value in place of its predecessor."""
        self._values.pop(name, None)
        self._values[name] = value
        if len(self._values) > VALUES_MAX:
            del self._values[next(iter(self._values))]

    def get(self, name: Name) -> Value | None:
        """Give the value of a name, None if there is none."""
        return self._values.get(name)

    def items(self) -> list[tuple[Name, Value]]:
        """Give what is there, the oldest first."""
        return list(self._values.items())

    def take(self, name: Name, value: Value) -> bool:
        """Remove a value and say True, if it is still the latest of its name."""
        if self._values.get(name) is not value:
            return False
        del self._values[name]
        return True

    def take_all(self) -> list[Value]:
        """Remove all, the oldest first."""
        values = list(self._values.values())
        self._values.clear()
        return values


def includes(topics: Topics, topic: str) -> bool:
    """Say whether a topic is among these."""
    return topics is None or topic in topics


def united(wanted: Iterable[Topics]) -> Topics:
    """Give the topics that at least one of several readers wants."""
    names: set[str] = set()
    for topics in wanted:
        if topics is None:
            return None
        names |= topics
    return frozenset(names) if len(names) <= TOPICS_MAX else None


def topics_to_wire(topics: Topics) -> list[str] | None:
    """Give topics as plain values."""
    return None if topics is None else sorted(topics)


def topics_from_wire(found: Any) -> Topics:
    """Read topics. Raises FrameError for what isn't any."""
    if found is None:
        return None
    if not isinstance(found, list) or len(found) > TOPICS_MAX or not all(isinstance(each, str) for each in found):
        raise FrameError(f"these are no topics: {found!r:.100}")
    return frozenset(found)
