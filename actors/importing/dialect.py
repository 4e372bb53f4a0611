"""What an importer of one format provides; everything around it (files, lines, JSON, limits) is common.

A file is read twice. The survey sees every record once and says which sessions there are and whose record it is; then
each session's records are read again, in order, by a reader of its own that makes events of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from .drafts import ImportedEvent, SessionHeader
from .records import Record
from .report import ImportReport

Json = dict[str, Any]

TITLE_CHARACTERS_MAX = 120
_ID_CHARACTERS_MAX = 128
_VALUE_CHARACTERS_MAX = 200
_PATH_BYTES_MAX = 1024
_WORD_CHARACTERS_MAX = 64
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NOT_OF_A_WORD = re.compile("[^a-z0-9]+")


class Survey(Protocol):
    """The first look at a file."""

    def place(self, record: Record, line: int) -> int:
        """Take note of a record; return the number of the session it belongs to, from 0 in order of appearance."""

    def headers(self) -> Sequence[SessionHeader]:
        """Return the sessions found."""

    def reader(self, session: int) -> Reader:
        """Return a new reader for one of them."""


class Reader(Protocol):
    """Makes events of one session's records, which it is given in the order of the file."""

    def events(self, record: Record, line: int) -> Iterator[ImportedEvent]:
        """Yield what the record says; nothing if it repeats an earlier one."""

    def close(self) -> Iterator[ImportedEvent]:
        """Yield what the end of the file says about what is still open."""


class Dialect(Protocol):
    """One format of session files."""

    name: str

    def knows(self, value: Json) -> bool:
        """Say whether an object is certainly a record of this format."""

    def is_whole(self, value: Json) -> bool:
        """Say whether an object is a complete record, not a part of one that looks alike."""

    def survey(self, path: Path, report: ImportReport) -> Survey:
        """Return the survey of a file that has not been looked at yet."""


def opaque_type(format: str, word: object) -> str:
    """Return the type of an event that keeps a record as it is: `format/word`, the word made of a-z, 0-9 and dashes."""
    plain = _NOT_OF_A_WORD.sub("-", word.lower()).strip("-") if isinstance(word, str) else ""
    return f"{format}/{plain[:_WORD_CHARACTERS_MAX].strip('-') or 'unknown'}"


def session_key(format: str, identity: str) -> str:
    """Return the host's key of a session; an identity that is no plain short one is replaced by its digest."""
    if len(identity) > _ID_CHARACTERS_MAX or not identity.isprintable():
        identity = blake2b(identity.encode(), digest_size=16).hexdigest()
    return f"{format}:{identity}"


def title_from(text: str) -> str:
    """Return a text's beginning on one line, without what doesn't show."""
    words = " ".join(_CONTROLS.sub(" ", text[: 8 * TITLE_CHARACTERS_MAX]).split())
    return words if len(words) <= TITLE_CHARACTERS_MAX else f"{words[: TITLE_CHARACTERS_MAX - 1].rstrip()}…"


def short(value: object) -> str:
    """Return a value for a header, where only short text has a place; empty for anything else."""
    return value[:_VALUE_CHARACTERS_MAX] if isinstance(value, str) else ""


def working_directory(value: object) -> str | None:
    """Return a path as it was spelled, whatever system it is from; None if it is none that a header can hold."""
    return value if isinstance(value, str) and 0 < len(value.encode()) <= _PATH_BYTES_MAX else None
