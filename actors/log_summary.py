"""What a session's summary says of the types in its log, so that an opening needn't read the log for it. Pure.

    critical   [type, …]                          critical types that the log holds
    schemas    {type: [[version, seq], …]}        from which event on each versioned type was written in which version
    snapshots  [seq, …]                           the newest snapshots, the latest last

A type that has no entry in `schemas` was written in version 1. Each change travels as a patch with the event that
brings it, so the summary is never ahead of the log or behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from turnkeeper.storage.errors import TooLarge
from turnkeeper.storage.exact_json import encode_data

from .core_types import SNAPSHOT

if TYPE_CHECKING:
    from .vocabulary import Word

CRITICAL: Final = "critical"
SCHEMAS: Final = "schemas"
SNAPSHOTS: Final = "snapshots"

SNAPSHOTS_KEPT: Final = 16
"""Snapshots that are found without reading the log; when all are damaged or rewound, the log itself is left."""

SUMMARY_BYTES_MAX: Final = 1024
"""What the summary has room for of critical and versioned types, as JSON."""


@dataclass(slots=True)
class LogSummary:
    """The three members, as the events up to now have left them."""

    critical: list[str] = field(default_factory=list)
    schemas: dict[str, list[list[int]]] = field(default_factory=dict)
    snapshots: list[int] = field(default_factory=list)

    @classmethod
    def from_summary(cls, summary: Mapping[str, Any]) -> LogSummary:
        """Read the members that a stream's summary has."""
        return cls(
            critical=list(summary.get(CRITICAL) or ()),
            schemas=dict(summary.get(SCHEMAS) or {}),
            snapshots=list(summary.get(SNAPSHOTS) or ()),
        )

    def patch(self, seq: int, word: Word) -> dict[str, Any] | None:
        """Give what event `seq` of this type changes; None if nothing. It counts only once it is taken.

        Raises TooLarge where the summary has no room for one more critical or versioned type.
        """
        if word.type == SNAPSHOT:
            return {SNAPSHOTS: [*self.snapshots, seq][-SNAPSHOTS_KEPT:]}
        patch: dict[str, Any] = {}
        if word.is_critical and word.type not in self.critical:
            patch[CRITICAL] = [*self.critical, word.type]
        versions = self.schemas.get(word.type) or [[1, 0]]
        if versions[-1][0] != word.version:
            patch[SCHEMAS] = {**self.schemas, word.type: [*self.schemas.get(word.type, []), [word.version, seq]]}
        if not patch:
            return None
        size = len(encode_data("summary", {CRITICAL: self.critical, SCHEMAS: self.schemas, **patch}))
        if size > SUMMARY_BYTES_MAX:
            raise TooLarge(
                f"what a session's summary keeps of critical and versioned types, with {word.type},",
                size,
                SUMMARY_BYTES_MAX,
            )
        return patch

    def take(self, patch: Mapping[str, Any]) -> None:
        """Take note of a patch whose event was appended; members of other modules pass."""
        self.critical = patch.get(CRITICAL, self.critical)
        self.schemas = patch.get(SCHEMAS, self.schemas)
        self.snapshots = patch.get(SNAPSHOTS, self.snapshots)

    def of_prefix(self, head: int) -> LogSummary:
        """Give what holds for a log that begins with the first `head` events of this one.

        A critical type stays one: whether it stands in the beginning isn't known without reading.
        """
        schemas = {type: [each for each in versions if each[1] < head] for type, versions in self.schemas.items()}
        kept = {type: versions for type, versions in schemas.items() if versions}
        return LogSummary(list(self.critical), kept, [seq for seq in self.snapshots if seq < head])

    def renumbered(self, number: Callable[[int], int]) -> LogSummary:
        """Give what holds for a copy in which some events are left out and the others have new numbers.

        `number` gives a copied event's new one, and for one that is left out that of the next copied one. So a snapshot
        that is left out may become another event: whoever looks for a snapshot sees that it is none.
        """
        schemas = {
            type: [[version, number(since)] for version, since in versions] for type, versions in self.schemas.items()
        }
        return LogSummary(list(self.critical), schemas, [number(seq) for seq in self.snapshots])

    def as_members(self) -> dict[str, Any]:
        """Give the members that say something, for a new stream's header."""
        members = {CRITICAL: self.critical, SCHEMAS: self.schemas, SNAPSHOTS: self.snapshots}
        return {name: value for name, value in members.items() if value}
