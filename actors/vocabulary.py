"""The vocabulary of a runtime: which types it knows, how their data is checked, and how older data is read.

Core types are checked against their shapes. A program's own types are `name/word`; unless it registers them they are
taken as they are, and whatever is stored is read back, known or not. What is registered here is this runtime's alone:
the log remembers only which critical types it holds and from where on which version of a type was written, in the
session's summary (see `log_summary`). Stored bytes are never changed: an upgrade makes newer data of what was read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from turnkeeper.storage.errors import InvalidValue

from .core_types import CORE_PREFIXES, CORE_TYPES, SNAPSHOT, TASK_TYPES
from .folding import FOLDED
from .records import Event
from .shapes import described

TYPE_CHARACTERS_MAX = 256
"""The longest type of a program's own."""

WORDS_KEPT_MAX = 4096
"""Types that were not registered and are remembered as good names; more are looked at each time."""

Check: TypeAlias = Callable[[Mapping[str, Any]], object]
Upgrade: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any]]
Schemas: TypeAlias = Mapping[str, list[list[int]]]
"""From where on which version of a type was written: type to [[version, seq of its first event], …], in order."""

_OWN_TYPE = re.compile(r"[^\s/*]+(?:/[^\s/*]+)+")


class Word:
    """One type.

    `marks_summary` is whether an event of it may change the session's summary, `is_recorded` whether that keeps account
    of the type.
    """

    __slots__ = ("check", "is_critical", "is_recorded", "marks_summary", "type", "upgrades", "version")

    def __init__(self, type: str) -> None:
        self.type = type
        self.check: Callable[[str, Any], None] | None = None
        self.marks_summary = False
        self.is_recorded = False
        self.is_critical = False
        self.version = 1
        self.upgrades: dict[int, Upgrade] = {}

    @classmethod
    def of_core(cls, type: str) -> Word:
        """Make the word of a core type."""
        word = cls(type)
        word.check = CORE_TYPES[type].check
        word.is_recorded = type == SNAPSHOT
        word.marks_summary = word.is_recorded or type in FOLDED
        return word

    @classmethod
    def registered(
        cls, type: str, check: Check | None, critical: bool, version: int, upgrades: Mapping[int, Upgrade]
    ) -> Word:
        """Make the word of a program's own type."""
        word = cls(type)
        word.check = None if check is None else partial(_check_own, check)
        # Also in version 1: whether a newer one was written before shows only in the summary.
        word.is_recorded = word.marks_summary = True
        word.is_critical, word.version, word.upgrades = critical, version, dict(upgrades)
        return word

    def upgraded(self, event: Event, version: int) -> dict[str, Any]:
        """Give the data of an event that was written in an older version, as this one has it.

        Raises InvalidValue, with the event's seq, where an upgrade fails.
        """
        data = event.data
        while version < self.version and version in self.upgrades:
            try:
                newer: Any = self.upgrades[version](data)
            except Exception as error:
                why = f"its upgrade from version {version} failed: {type(error).__name__}: {error}"
                raise InvalidValue(event.seq, self.type, "$", why) from error
            if not isinstance(newer, Mapping):
                why = f"its upgrade from version {version} gave {described(newer)}"
                raise InvalidValue(event.seq, self.type, "$", why)
            data, version = dict(newer), version + 1
        return data


def _check_own(check: Check, type: str, data: Any) -> None:
    """Check data as the program wants it; what is no mapping is the encoder's to refuse. Raises InvalidValue."""
    if not isinstance(data, Mapping):
        return
    try:
        check(data)
    except ValueError as error:
        raise InvalidValue(0, type, "$", " ".join(str(error).split()) or "its check refuses it") from error


_CORE_WORDS: Final = {type: Word.of_core(type) for type in CORE_TYPES}


class Vocabulary:
    """The types that a runtime knows. `words` has those that were met, for who looks each event's up."""

    def __init__(self) -> None:
        self.words: dict[str, Word] = dict(_CORE_WORDS)
        self._own: dict[str, Word] = {}
        self._upgraded: dict[str, Word] = {}
        self._met = 0

    @property
    def known(self) -> list[str]:
        """The types that were registered."""
        return list(self._own)

    def register(
        self,
        type: str,
        *,
        check: Check | None = None,
        critical: bool = False,
        version: int = 1,
        upgrades: Mapping[int, Upgrade] | None = None,
    ) -> None:
        """Know a type of the program's own; see `Runtime.register`. Raises ValueError."""
        fault = _fault_of_name(type) or ("core types are known already" if type in CORE_TYPES else None)
        if fault is not None:
            raise ValueError(f"{type!r} can't be registered: {fault}")
        if type in self._own:
            raise ValueError(f"{type} is registered already")
        steps = sorted(upgrades or {})
        if version < 1 or steps != list(range(version - len(steps), version)) or (steps and steps[0] < 1):
            raise ValueError(f"{type}: upgrades are from versions that lead without a gap to {version}, not {steps}")
        word = Word.registered(type, check, critical, version, upgrades or {})
        self.words[type] = self._own[type] = word
        if steps:
            self._upgraded[type] = word

    def word(self, type: str) -> Word:
        """Give the word for a type that may be appended. Raises InvalidValue for what is none."""
        word = self.words.get(type)
        if word is None:
            fault = _fault_of_name(type)
            if fault is not None:
                raise InvalidValue(0, f"{type!s:.80}", "type", fault)
            word = Word(type)
            if self._met < WORDS_KEPT_MAX:
                self._met += 1
                self.words[type] = word
        return word

    @property
    def has_upgrades(self) -> bool:
        """Whether any type has older versions that are read as newer ones."""
        return bool(self._upgraded)

    def upgrade(self, events: Iterable[Event], schemas: Schemas) -> None:
        """Put events that were written in older versions into the present ones, all or none. Raises InvalidValue."""
        upgraded = []
        for event in events:
            word = self._upgraded.get(event.type)
            if word is not None:
                version = _version_at(schemas.get(event.type) or [], event.seq)
                upgraded.append((event, word.upgraded(event, version)))
        for event, data in upgraded:
            event.data = data

    def is_upgraded(self, type: str) -> bool:
        """Say whether older events of this type are read as newer ones."""
        return type in self._upgraded


def _version_at(versions: list[list[int]], seq: int) -> int:
    """Give the version in which event `seq` was written: 1 before any other is named."""
    return next((version for version, since in reversed(versions) if since <= seq), 1)


def _fault_of_name(type: object) -> str | None:
    """Say why an event can't have this type; None if it can."""
    if not isinstance(type, str) or not type:
        return "an event's type is a string that isn't empty"
    if type in CORE_TYPES:
        return None
    if len(type) > TYPE_CHARACTERS_MAX:
        return f"an event's type has {TYPE_CHARACTERS_MAX} characters at most, and this has {len(type)}"
    if type in TASK_TYPES:
        return "turnkeeper alone writes it, into the stream of the task that it is about"
    prefix = type.partition("/")[0]
    if prefix in CORE_PREFIXES:
        known = ", ".join(each for each in CORE_TYPES if each.partition("/")[0] == prefix)
        return f"no such core type; with {prefix} there is {known}; one of your own has another name before the slash"
    if not type.isprintable() or _OWN_TYPE.fullmatch(type) is None:
        return "a type of your own is name/word, such as note/seen: without spaces, control characters and *"
    return None
