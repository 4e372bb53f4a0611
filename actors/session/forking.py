"""Making a session that begins with a part of another one, by reference: nothing is copied, however long that part is.

The new session's first event of its own says what it was forked from; with it stands whatever closes a turn that was
open at that place. Both are one append, whose header names parent and place: so a fork is there whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from turnkeeper.storage.backend import BackendReader
from turnkeeper.storage.errors import Deleted, InvalidFork
from turnkeeper.storage.requests import StreamRow

from ..core_types import SESSION_FORKED
from ..errors import CriticalTypes
from ..folding import NEWEST_REWIND, OPEN_TURN, TURNS, TurnState, count_or_none
from ..kinds import require_session
from ..log_summary import CRITICAL, LogSummary
from ..reading.looking import whole_events
from ..reading.prefixes import state_at
from ..records import status_of
from .header import new_header
from .opening import reserve

if TYPE_CHECKING:
    from ..client.client import Client
    from .session import Session

_INHERITED: Final[tuple[str, ...]] = ("cwd", "cwd_real", "title", "labels", "agent")
"""What a fork takes over from its parent, unless something else is said."""


class Beginning(NamedTuple):
    """What a fork begins with: the first `at` events of the session in `row`, and the turn as they left it."""

    row: StreamRow
    at: int
    state: TurnState


async def fork(client: Client, wanted: str, at: int | None, given: Mapping[str, Any]) -> Session:
    """Make a session that begins with the first `at` events of another, all of them without it; durable.

    `given` is what is said of the new one, and counts before what it would take over from its parent.

    Raises:
        InvalidFork: The parent has no such place, or is in a turn there. NotFound, Ambiguous, WrongKind: No parent.
        Exists: The key names another session. SessionBusy: The key is being taken by a living owner.
        CriticalTypes: It holds events that only a program which registers their types may add to.
        Corrupt: Events of that part are damaged. TooLarge, InvalidValue: What is said of the new session.
    """
    beginning = await client.reads.call(partial(_look, wanted=wanted, at=at))
    unknown = [type for type in beginning.row.summary.get(CRITICAL) or () if type not in client.vocabulary.known]
    if unknown:
        raise CriticalTypes(beginning.row.id, unknown)
    session = await reserve(client, _header(beginning, given), beginning.state)
    try:
        record = {"parent": beginning.row.id, "at": beginning.at}
        session._numbering.take_together([(SESSION_FORKED, record), *beginning.state.closing("interrupted")])
        await session.flush()
    except BaseException:
        session.give_up()
        raise
    return session


def _look(reader: BackendReader, wanted: str, at: int | None) -> Beginning:
    """Look up what is to be forked, and check that it can be. Raises as `fork`."""
    row = require_session(reader.row(wanted))
    summary = row.summary
    if summary.get("deleted"):
        raise Deleted(row.id)
    at = row.head if at is None else at
    if count_or_none(at) is None or at > row.head:
        raise InvalidFork(row.id, at, f"it has {row.head} events; give a number of them")
    open_turn = count_or_none(summary.get(OPEN_TURN))
    if open_turn is not None and at > open_turn:
        how = "end it first" if status_of(summary.get("owner")) == "active" else "opening the session closes it"
        why = f"event {open_turn} began a turn that is open; {how}, or fork at {open_turn} or before"
        raise InvalidFork(row.id, at, why)
    if _is_damaged(reader, row):
        for _ in whole_events(reader, row.id, 0, at):
            pass  # that they can be read is all that is asked
    if at < row.head:
        return Beginning(row, at, state_at(reader, row.id, summary, at))
    whole = TurnState.from_summary(summary)
    return Beginning(row, at, TurnState(turn=whole.turn, turns=whole.turns, rewound=whole.rewound))


def _is_damaged(reader: BackendReader, row: StreamRow) -> bool:
    """Say whether a session, or one whose events it begins with, is known to have lost some."""
    while not row.summary.get("damaged"):
        if row.summary.get("parent_seq") is None:
            return False
        row = reader.row(row.summary["parent"])
    return True


def _header(beginning: Beginning, given: Mapping[str, Any]) -> dict[str, Any]:
    summary, state = beginning.row.summary, beginning.state
    taken_over = {name: summary[name] for name in _INHERITED if name in summary}
    said: dict[str, Any] = {**taken_over, **given, "parent": beginning.row.id}
    header = new_header(**said)
    members = {OPEN_TURN: state.open_turn, TURNS: state.turns or None, NEWEST_REWIND: state.rewound}
    known = {name: value for name, value in members.items() if value is not None}
    types = LogSummary.from_summary(summary).of_prefix(beginning.at).as_members()
    return {**header, "parent_seq": beginning.at, **known, **types}
