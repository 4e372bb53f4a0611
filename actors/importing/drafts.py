"""What an import yields: sessions and their events, ready to be appended and not yet stored.

An event's key is unique in its session and the same at every import of the same record, so that appending by key twice
adds nothing. Two keys can meet with different content, always about something that the end of a file had left open:

* a call without a result gets a closing at the end of the file, and a later, longer file brings its real result;
* an exchange ends with the end of the file, and a later, longer file ends it another way.

Whoever stores the events then finds the key taken by other content. It appends `otherwise` if the event has one (the
real result, as `tool/late-result`) and else nothing: what is stored stays true, calls and turns stay paired.

Exchanges are numbered from 1, in the `turn` of their `turn/start` and `turn/end`, so those that a session has already
can be told by their number as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ImportedEvent:
    """One event. `time_ms` is None where no record so far had a time; `line` is where its record stands, from 1."""

    type: str
    data: dict[str, Any]
    time_ms: int | None
    key: str
    line: int
    otherwise: ImportedEvent | None = None

    def with_more(self, extras: Mapping[str, Any]) -> ImportedEvent:
        """Return the event with more members in its data, and in that of its other form."""
        otherwise = self.otherwise.with_more(extras) if self.otherwise else None
        return replace(self, data={**self.data, **extras}, otherwise=otherwise)


@dataclass(frozen=True, slots=True)
class SessionHeader:
    """What is known of a session beside its events.

    `key` is the host's name for it, the same at every import. `created` is in milliseconds since 1970. `parent_key` is
    lineage only: a fork's file holds copies of its parent's records, so its events must not be joined to the parent's.
    """

    key: str
    cwd: str | None
    title: str
    created: int | None
    origin: Mapping[str, str]
    labels: Mapping[str, str]
    parent_key: str | None


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """One session of a file. Its events can be read until the next file is asked for.

    `events()` yields them in the order of the file, in memory bounded by the longest line and the number of records.
    Call it once: what it leaves out, it reports.
    """

    header: SessionHeader
    path: Path
    events: Callable[[], Iterator[ImportedEvent]]
