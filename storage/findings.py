"""What is found wrong with a journal: each finding has a kind, a place, and the events that it concerns.

Kinds: `torn tail` (an unfinished write, not damage), `damaged batch`, `damaged events`, `missing batches`, `repeated
batch`, `wrong position`, `wrong chain`, `missing events`, `segment line`, `foreign segment`, `unreadable segment`,
`lost end`, `index`, `missing blob`, `damaged blob`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

SeqRange: TypeAlias = tuple[int, int]
"""First seq and number of events."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `segment` is a file's name, or a blob's path; `offset` and `length` are bytes in it."""

    kind: str
    segment: str
    offset: int
    length: int
    why: str
    streams: dict[str, list[SeqRange]] = field(default_factory=dict)

    def as_map(self) -> dict[str, Any]:
        """Give it as a command's JSON shows it."""
        return {
            "kind": self.kind,
            "segment": self.segment,
            "offset": self.offset,
            "length": self.length,
            "why": self.why,
            "streams": [
                {"stream": stream, "seqs": [[first, first + events - 1] for first, events in ranges if events]}
                for stream, ranges in sorted(self.streams.items())
            ],
        }

    def __str__(self) -> str:
        streams = "; ".join(
            f"{stream} {', '.join(_range_text(part) for part in ranges)}"
            for stream, ranges in sorted(self.streams.items())
        )
        concerned = f" ({streams})" if streams else ""
        return f"{self.segment} at byte {self.offset}: {self.kind}: {self.why}{concerned}"


Reporter: TypeAlias = Callable[[Finding], None]


def ranges_of(seqs: Iterable[int]) -> list[SeqRange]:
    """Join numbers to ranges."""
    return join_ranges((seq, 1) for seq in seqs)


def join_ranges(parts: Iterable[SeqRange]) -> list[SeqRange]:
    """Put ranges in order, and those that touch together."""
    ranges: list[SeqRange] = []
    for first, events in sorted(parts):
        if ranges and sum(ranges[-1]) >= first:
            begin = ranges[-1][0]
            ranges[-1] = (begin, max(sum(ranges[-1]), first + events) - begin)
        else:
            ranges.append((first, events))
    return ranges


def _range_text(part: SeqRange) -> str:
    first, events = part
    return str(first) if events == 1 else f"{first}-{first + events - 1}"
