"""Shapes: which members an event's data must have, and what each of them has to be. Pure.

A shape says nothing of members that it doesn't name: those are the program's, and pass. Most events are right, so a
check first looks at the classes of the members alone; only where one isn't surely right it looks closer, and then finds
the first fault in the order of the shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from turnkeeper.storage.errors import InvalidValue

Fault: TypeAlias = tuple[str, str]
"""A JSON path, and what is wrong there."""


class Kind:
    """What a member's value has to be. `words` says it in a sentence, `exact` are classes of which any value will do.

    (But for an empty name.) A class is one that JSON has; what else the encoder takes, such as tuples, is looked at
    closer.
    """

    def __init__(self, words: str, accepted: tuple[type, ...] = (), *, exact: tuple[type, ...] = ()) -> None:
        self.words = words
        self.exact: Final = frozenset(exact)
        self._accepted = accepted

    def fault(self, value: Any, path: str) -> Fault | None:
        """Say what is wrong with a value, or in it; None if nothing is."""
        return None if self.takes(value) else (path, f"must be {self.words}, not {described(value)}")

    def takes(self, value: Any) -> bool:
        """Say whether the value, as a whole, is of this kind."""
        return isinstance(value, self._accepted)


class _Anything(Kind):
    def takes(self, value: Any) -> bool:
        return True


class _Name(Kind):
    def takes(self, value: Any) -> bool:
        return isinstance(value, str) and value != ""


class _Count(Kind):
    def takes(self, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class _List(Kind):
    def takes(self, value: Any) -> bool:
        return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)


class OneOf(Kind):
    """One of some texts."""

    def __init__(self, *choices: str) -> None:
        super().__init__("one of " + ", ".join(choices))
        self._choices = choices

    def takes(self, value: Any) -> bool:
        return isinstance(value, str) and value in self._choices


class OrNull(Kind):
    """A value of the other kind, or null."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(f"{kind.words} or null", exact=(*kind.exact, type(None)))
        self._kind = kind

    def takes(self, value: Any) -> bool:
        return value is None or self._kind.takes(value)


class ListOf(_List):
    """A list of objects of one shape."""

    def __init__(self, words: str, shape: Shape) -> None:
        super().__init__(words)
        self._shape = shape

    def fault(self, value: Any, path: str) -> Fault | None:
        if not self.takes(value):
            return super().fault(value, path)
        found = (self._shape.fault(each, f"{path}[{index}]") for index, each in enumerate(value))
        return next(filter(None, found), None)


ANYTHING: Final = _Anything("anything")
TEXT: Final = Kind("a text", (str,), exact=(str,))
NAME: Final = _Name("a text that isn't empty", exact=(str,))
COUNT: Final = _Count("an integer from 0 on")
LIST: Final = _List("a list", exact=(list,))
OBJECT: Final = Kind("an object", (Mapping,), exact=(dict,))


class Shape:
    """The members that data must have, and those that it may have, each with its kind."""

    def __init__(self, required: Mapping[str, Kind] | None = None, optional: Mapping[str, Kind] | None = None) -> None:
        self.required: Final = dict(required or {})
        self.optional: Final = dict(optional or {})
        self._members = self.required | self.optional
        self._names = tuple(self.required)
        # A member of any kind will do whatever its class is, as one that isn't named does.
        self._exact = {name: kind.exact for name, kind in self._members.items() if kind is not ANYTHING}
        self._filled = tuple(name for name, kind in self.required.items() if kind is NAME)

    def check(self, type: str, data: Any) -> None:
        """Raise InvalidValue where an event's data isn't of this shape."""
        fault = None if self._is_surely_right(data) else self.fault(data, "$")
        if fault is not None:
            raise InvalidValue(0, type, *fault)

    def _is_surely_right(self, data: Any) -> bool:
        if data.__class__ is not dict:
            return False
        for name in self._names:
            if name not in data:
                return False
        exact = self._exact
        for name in data:
            if name in exact and data[name].__class__ not in exact[name]:
                return False
        return not self._filled or all(data[name] for name in self._filled)

    def fault(self, value: Any, path: str) -> Fault | None:
        """Say what is wrong first, in the order of the shape's members; None if nothing is."""
        if not isinstance(value, Mapping):
            return path, f"must be an object, not {described(value)}"
        for name, kind in self._members.items():
            if name in value:
                fault = kind.fault(value[name], f"{path}.{name}")
                if fault is not None:
                    return fault
            elif name in self.required:
                return f"{path}.{name}", f"must be {kind.words}, and is missing"
        return None


_CHARACTERS_SHOWN_MAX = 40


def described(value: object) -> str:
    """Name a value in a sentence, in short."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return repr(value) if len(value) <= _CHARACTERS_SHOWN_MAX else f"{value[:_CHARACTERS_SHOWN_MAX]!r}…"
    if isinstance(value, int | float):
        return f"{value!r:.40}"
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if LIST.takes(value) else f"a {type(value).__name__}"
