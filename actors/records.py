"""What reading gives back: events, rows of a list, and what a crash left open. Plain copies, tied to no store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from turnkeeper.runtime import identity
from turnkeeper.storage.exact_json import decode_event
from turnkeeper.storage.requests import Gap, StoredEvent, StreamRow

from .folding import OPEN_TURN, CallFate

Status = Literal["active", "closed", "crashed"]


@dataclass(slots=True)
class Event:
    """One event. `position` counts over the whole store and is 0 while the event isn't durable; `time` is in ms."""

    position: int
    stream: str
    seq: int
    type: str
    data: dict[str, Any]
    time: int

    @classmethod
    def from_line(cls, line: bytes, position: int) -> Event:
        """Read an event's line. Raises ValueError if it isn't one."""
        fields = decode_event(line)
        return cls(position, fields["stream"], fields["seq"], fields["type"], fields["data"], fields["time"])

    @classmethod
    def from_stored(cls, stored: StoredEvent) -> Event:
        """Read an event as the journal holds it. Raises ValueError if its line isn't one."""
        return cls.from_line(stored.line, stored.position)


class EventPage(list[Event]):
    """A page of one stream's events in order; also says where the stream ends and what can't be read.

    `head` is the number of the stream's next event, `missing` what is damaged between the events of this page.
    """

    def __init__(self, events: Iterable[Event] = (), *, head: int = 0, missing: Iterable[Gap] = ()) -> None:
        super().__init__(events)
        self.head = head
        self.missing = list(missing)


@dataclass(frozen=True, slots=True)
class Interrupted:
    """What a crash left open in a session, and an opening closed: turn number `turn` and its unanswered calls.

    Each call is (id, name, fate). `not_started`: its body never began, make it again. `retry`: it had begun, and
    has only read or may be repeated. `unknown`: it had begun and may have done its work or not.

    `tasks` are the session's tasks that ended when nobody was there to hear of it, or haven't ended yet, by their ids:
    the former in the order of their ends. A crash between turns leaves nothing else to tell.
    """

    turn: int
    calls: list[CallFate] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a program had folded of its session up to event `seq`, which is the snapshot itself."""

    seq: int
    state: Any


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One session in a list.

    `status` is derived: `active` has a living owner, `crashed` one that is gone without closing, `closed` none.
    `events` is how many there are, `position` the last one's, `created` and `last_active` are in milliseconds,
    `origin` says where an imported one came from. `cwd` is as it was spelled, `cwd_real` where that led, if elsewhere.
    A fork has the first `parent_seq` events of its `parent`; any other child has None there.
    """

    id: str
    key: str | None
    kind: str
    title: str
    cwd: str | None
    cwd_real: str | None
    parent: str | None
    parent_seq: int | None
    origin: dict[str, Any] | None
    agent: str | None
    labels: dict[str, str]
    events: int
    position: int
    created: int
    last_active: int
    status: Status
    owner: dict[str, Any] | None
    open_turn: bool
    turns: int
    damaged: bool

    @classmethod
    def from_row(cls, row: StreamRow) -> SessionInfo:
        """Read a stream's row. Looks at the owner's process, if there is one."""
        summary = row.summary
        owner = summary.get("owner")
        return cls(
            id=row.id,
            key=summary.get("key"),
            kind=summary.get("kind", ""),
            title=summary.get("title") or "",
            cwd=summary.get("cwd"),
            cwd_real=summary.get("cwd_real"),
            parent=summary.get("parent"),
            parent_seq=summary.get("parent_seq"),
            origin=summary.get("origin"),
            agent=summary.get("agent"),
            labels=dict(summary.get("labels") or {}),
            events=row.head,
            position=row.position,
            created=summary.get("created", 0),
            last_active=row.active,
            status=status_of(owner),
            owner=owner,
            open_turn=summary.get(OPEN_TURN) is not None,
            turns=summary.get("turns", 0),
            damaged=bool(summary.get("damaged")),
        )


def status_of(owner: Mapping[str, Any] | None) -> Status:
    """Derive a session's status from its owner, who may be gone."""
    if owner is None:
        return "closed"
    return "crashed" if identity.is_gone(owner) else "active"
