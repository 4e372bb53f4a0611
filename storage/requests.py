"""What a backend is asked to commit, and what it answers.

One `commit` takes a list of these requests and gives one result for each, in order: an answer of the
matching kind, or a `StorageError` instance that says the request was refused. A backend that can't
tell whether it stored something raises `Failed` for the whole call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from .errors import Corrupt, StorageError

Summary: TypeAlias = dict[str, Any]
"""What is known of a stream beside its log: key to whole value (kind, key, created, cwd, title, labels, owner …)."""


@dataclass(slots=True)
class Append:
    """Add `lines` to `stream` at `first`, under `epoch`; all or nothing.

    `lines` are whole event lines, each ending in a newline, numbered from `first`. `patch` changes the summary
    together with the last of them; it may also come alone (`lines` empty, `first` the head). With `create`, this
    is the stream's first run: epoch 1, first 0, and `patch` is its header. A header with `parent` and `parent_seq`
    makes a fork: it begins with that many of the parent's events, `first` is `parent_seq`, and `lines` may be empty.
    `key` makes a single line be stored once: a key that is there answers with the old seq.
    """

    stream: str
    epoch: int
    first: int
    lines: bytes
    patch: Mapping[str, Any] | None = None
    key: str | None = None
    create: bool = False


@dataclass(slots=True)
class Grant:
    """Make `owner` ({boot, pid, start, host, token}) the owner of a stream that is there, by the next epoch."""

    stream: str
    owner: Mapping[str, Any]
    takeover: bool = False


OWNERLESS = 0
"""The epoch of a stream that nobody owns: anybody may add to it, and nobody can be granted it."""


@dataclass(slots=True)
class Post:
    """Add one event to a stream without owner, at its head whatever that is, once for its key.

    `tail` is the event's line from `"time":` on; stream and number are put before it where it is stored. `header` is
    the summary with which the stream begins if this is its first event, `patch` what changes together with the event.
    `author` is a stream and an epoch: whoever posts in the name of that stream has to own it under that epoch. One that
    is `joined` to the post before it is stored together with that: no crash leaves one of them alone.
    """

    stream: str
    tail: bytes
    key: str
    header: Mapping[str, Any]
    patch: Mapping[str, Any] | None = None
    author: tuple[str, int] | None = None
    joined: bool = False


PATCHES_BY_ANYONE = frozenset(("title", "labels", "deleted"))


@dataclass(slots=True)
class Patch:
    """Change what anybody may change of a stream's summary, whoever owns it: title, labels, deleted (ms, or None).

    `labels` names those that change alone: one with a value is set, one with None goes, and the others stay. A stream
    that a living owner has isn't deleted.
    """

    stream: str
    patch: Mapping[str, Any]


Request: TypeAlias = Append | Post | Grant | Patch


class Appended(NamedTuple):
    """The lines are durable and readable.

    `first` is the first one's seq (the old one's, for a known key), `head` the number that comes behind the last one,
    whatever was stored behind it since; `position` is that of the last one, 0 for an append without lines.
    """

    first: int
    head: int
    position: int


class Granted(NamedTuple):
    """The stream is `owner`'s under `epoch`; its next event is number `head`."""

    epoch: int
    head: int
    summary: Summary


Result: TypeAlias = Appended | Granted | StorageError


class StoredEvent(NamedTuple):
    """One event as it lies in the journal; `line` is its bytes, without the newline."""

    position: int
    stream: str
    seq: int
    line: bytes


class Gap(NamedTuple):
    """`events` of a stream, from `first` on, that can't be read, and why, and where."""

    first: int
    events: int
    reason: str
    path: str
    offset: int


class Page(NamedTuple):
    """A read's answer: the events in order, the stream's head, and what is missing between them."""

    events: list[StoredEvent]
    head: int
    missing: list[Gap]


class LostEvents(NamedTuple):
    """Events within `width` positions from `position` on that can't be read, and why. None of the others can, either.

    Where nothing names their stream any more, `stream` is empty, and the gap says only how many they are.
    """

    position: int
    width: int
    stream: str
    gap: Gap

    def as_error(self) -> Corrupt:
        """Make the error that tells of it."""
        gap, stream = self.gap, self.stream
        missing = [(gap.first, gap.events)] if stream else []
        return Corrupt(
            stream or "the store", gap.reason, gap.path, gap.offset, missing, positions=(self.position, self.width)
        )


class PositionPage(NamedTuple):
    """What the store has behind a position, in order, up to the position `reached`: events, and what is lost."""

    events: list[StoredEvent]
    reached: int
    lost: list[LostEvents]


def check_bounds(*bounds: object) -> None:
    """See that bounds of a read are whole numbers from 0 on, or None. Raises ValueError."""
    for bound in bounds:
        if bound is not None and (not isinstance(bound, int) or bound < 0):
            raise ValueError(f"bounds of a read are whole numbers from 0 on, not {bound!r}")


class StreamRow(NamedTuple):
    """One stream in a list or look-up. `position` is its last event's, 0 if it has none; `active` its time in ms."""

    id: str
    head: int
    epoch: int
    position: int
    active: int
    summary: Summary
