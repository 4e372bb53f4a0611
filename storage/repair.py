"""What a repaired copy of a damaged stream consists of: every event that can be read, and a record of those that can't.

The damaged stream itself is only read. Its readable events get new numbers without holes; of a line only the stream and
the number change, everything from the time on stays byte for byte. The copy begins with one event of its own:

    session/repaired {"from": ID, "first": N, "head": N, "missing": [[first, last], …], "events": N}

`first` and `head` bound the numbers that were looked at, `missing` are those of them that have no copy, and `events` is
how many follow in a copy that is whole. So old and new numbers follow from each other, and so does whether a copy was
finished. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from .format import event_prefix
from .limits import LINE_BYTES_MAX
from .reading import Reader
from .requests import StoredEvent

REPAIRED = "session/repaired"

PAGE_EVENTS = 128
"""Events that are held at a time; each may be as long as a line may be."""

_PREFIX_BYTES_MAX = 64 + 40
"""A line's stream and number at their longest."""


@dataclass(frozen=True, slots=True)
class Readable:
    """What of a stream can be read: `events` of the numbers `first` to `head`, all but the ranges in `missing`.

    A range is (first, last). `last` is the last event that can be read.
    """

    stream: str
    first: int
    head: int
    missing: list[tuple[int, int]]
    events: int
    last: StoredEvent | None

    def as_data(self) -> dict[str, Any]:
        """Give the data of a copy's first event."""
        missing = [list(part) for part in self.missing]
        return {"from": self.stream, "first": self.first, "head": self.head, "missing": missing, "events": self.events}

    def events_below(self, number: int) -> int:
        """Count those that can be read of the numbers below this one."""
        lost = sum(max(0, min(last + 1, number) - first) for first, last in self.missing)
        return max(0, min(number, self.head) - self.first) - lost

    def copy_key(self) -> str:
        """Give the key that names the copy: another for each state of the damage, the same for the same one."""
        found = f"{self.first} {self.head} {self.missing}"
        return f"repaired/{self.stream}/{blake2b(found.encode(), digest_size=8).hexdigest()}"


def survey(reader: Reader, id: str) -> Readable:
    """Read a whole stream, checksums and all, and say what of it can be copied. Raises NotFound."""
    row = reader.row(id)
    first = min(row.head, int(row.summary.get("deleted_to") or 0))
    due, events = first, 0
    missing: list[tuple[int, int]] = []
    last = None
    for seq, stored in enumerate_readable(reader, id, first, row.head):
        if seq > due:
            missing.append((due, seq - 1))
        due, events, last = seq + 1, events + 1, stored
    if due < row.head:
        missing.append((due, row.head - 1))
    return Readable(id, first, row.head, missing, events, last)


def enumerate_readable(reader: Reader, id: str, start: int, head: int) -> Iterator[tuple[int, StoredEvent]]:
    """Walk the events below `head` that can be copied, each with its number."""
    while start < head:
        page, start = readable_page(reader, id, start, head)
        yield from ((stored.seq, stored) for stored in page)


def readable_page(reader: Reader, id: str, start: int, head: int) -> tuple[list[StoredEvent], int]:
    """Read some events from number `start` on; give those that can be copied, and where to go on.

    A line that is so long that another stream's name might not fit into it can't be copied.
    """
    page = reader.read(id, start=start, stop=head, limit=PAGE_EVENTS)
    seen = [gap.first + gap.events for gap in page.missing] + [stored.seq + 1 for stored in page.events[-1:]]
    fitting = [stored for stored in page.events if len(_content(stored)) + _PREFIX_BYTES_MAX < LINE_BYTES_MAX]
    return fitting, max(seen, default=head)


def renumbered(stored: StoredEvent, stream: str, seq: int) -> bytes:
    """Give an event's line as event `seq` of another stream, its newline included."""
    return event_prefix(stream, seq) + _content(stored) + b"\n"


def _content(stored: StoredEvent) -> bytes:
    """Give a line from its time on."""
    return stored.line[len(event_prefix(stored.stream, stored.seq)) :]
