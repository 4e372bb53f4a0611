"""What a store holds, in plain values: its events in the order of their positions, and the runs that brought them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

INBOX: Final = "inbox-"
INBOX_MESSAGE: Final = "inbox/message"
LINE_CHARACTERS: Final = 240
"""How much of an event's line is kept to be shown."""

_ACCEPTS: Final = "inbox"


class StoredEvent(NamedTuple):
    """An event as it lies there: `digest` is of its whole data; `data` has of spilled data what the promises need."""

    position: int
    stream: str
    seq: int
    type: str
    digest: str
    epoch: int
    data: Mapping[str, Any]
    line: str = ""


def needed_of(type: str, said: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give what the promises need of an event's data, of which its line says so much: large data isn't kept.

    An inbox's message is needed whole, and of any other event which message it accepts.
    """
    if said is whole or type == INBOX_MESSAGE:
        return whole
    return {**said, _ACCEPTS: whole[_ACCEPTS]} if _ACCEPTS in whole else said


class Run(NamedTuple):
    """What one batch says of a stream: `events` of its events from `seq` on, under an epoch, and a patch."""

    batch: int
    stream: str
    epoch: int
    seq: int
    events: int
    patch: Mapping[str, Any]


class Fault(NamedTuple):
    """Bytes that are not as the format has them: in which file, from which byte on, and what is wrong with them."""

    file: str
    offset: int
    says: str
    stream: str | None = None


@dataclass(slots=True)
class Stored:
    """A store's content. `runs` are None where they aren't kept: in SQLite, which has `heads` and `summaries` alone.

    `streams` are the events of each stream in the order in which they lie there.
    """

    events: list[StoredEvent]
    runs: list[Run] | None
    faults: list[Fault]
    summaries: Mapping[str, Mapping[str, Any]]
    heads: Mapping[str, int]
    streams: Mapping[str, list[StoredEvent]] = field(init=False)

    def __post_init__(self) -> None:
        streams: dict[str, list[StoredEvent]] = {stream: [] for stream in self.heads}
        for event in self.events:
            streams.setdefault(event.stream, []).append(event)
        self.streams = streams

    @classmethod
    def from_runs(cls, events: list[StoredEvent], runs: list[Run], faults: Iterable[Fault] = ()) -> Stored:
        """Make it of a journal's runs: they say what each stream's summary and head are."""
        summaries: dict[str, dict[str, Any]] = {}
        for run in runs:
            summary = summaries.setdefault(run.stream, {})
            summary |= {name: value for name, value in run.patch.items() if name not in ("keys", "blobs")}
        heads = {run.stream: run.seq + run.events for run in runs}
        known = {stream: _without_removed(summary) for stream, summary in summaries.items()}
        return cls(events, runs, list(faults), known, heads)

    def summary(self, stream: str) -> Mapping[str, Any]:
        """Give what is known of a stream beside its events."""
        return self.summaries.get(stream, {})

    def begin(self, stream: str) -> int:
        """Give the number of a stream's first event of its own: of a fork's, how many it has of its parent."""
        seq = self.summary(stream).get("parent_seq")
        return seq if isinstance(seq, int) else 0

    def whole(self, stream: str) -> list[StoredEvent]:
        """Give a stream's events with those that it has of its parent, and that of its parent, and so on."""
        own = self.streams.get(stream, [])
        begin, parent = self.begin(stream), self.summary(stream).get("parent")
        if not begin or not isinstance(parent, str) or parent == stream:
            return own
        return [event for event in self.whole(parent) if event.seq < begin] + own

    def sessions(self) -> list[str]:
        """Give the sessions: the streams that somebody can own."""
        return [stream for stream in self.streams if self.summary(stream).get("kind") == "session"]

    def is_deleted(self, stream: str) -> bool:
        """Say whether a stream is deleted."""
        return bool(self.summary(stream).get("deleted"))


def _without_removed(summary: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if value is not None}
