"""Promises about turns: each is closed once, one is open at a time, and each call in it has one answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .evidence import Evidence
from .stored import Stored, StoredEvent
from .violations import Violation

_REASONS = ("completed", "error", "aborted", "interrupted")


class _State(NamedTuple):
    """What a session's events so far have left: the open turn, how many have begun, calls that wait, those answered."""

    turn: int | None = None
    turns: int = 0
    waiting: frozenset[str] = frozenset()
    answered: frozenset[str] = frozenset()


def turns_are_closed_once(evidence: Evidence) -> Iterator[Violation]:
    """Turns count from 1, begin when none is open, and end once; a rewind or fork closes what is open at its place."""
    stored = evidence.stored
    known: dict[str, _Folding] = {}
    for session in stored.sessions():
        folding = _folded(session, stored, known)
        yield from folding.violations
        turn = folding.states[-1].turn
        if turn is not None and evidence.is_settled and not stored.is_deleted(session):
            yield Violation("turns", session, f"turn {turn} is open", len(folding.states) - 2)


def _folded(session: str, stored: Stored, known: dict[str, _Folding]) -> _Folding:
    """Go through a session's events, behind those that it has of its parent."""
    if session not in known:
        begin, parent = stored.begin(session), str(stored.summary(session).get("parent"))
        inherited = _folded(parent, stored, known).states[: begin + 1] if begin else [_State()]
        known[session] = folding = _Folding(session, inherited)
        for event in stored.streams.get(session, ()):
            folding.take(event)
    return known[session]


class _Folding:
    """Goes through a session's own events; `states` has what is left after the first 0, 1, 2 … of all its events."""

    def __init__(self, session: str, states: list[_State]) -> None:
        self.states = list(states)
        self.violations: list[Violation] = []
        self._session = session

    def take(self, event: StoredEvent) -> None:
        """Take the next event into account."""
        state = self.states[-1]
        match event.type:
            case "turn/start":
                state = self._start(state, event)
            case "turn/end":
                state = self._end(state, event)
            case "assistant/message":
                asked = {call["id"] for call in event.data.get("tool_calls") or ()}
                state = state._replace(waiting=state.waiting | (asked - state.answered))
            case "tool/started":
                id = str(event.data.get("id"))
                state = state._replace(waiting=state.waiting | {id}, answered=state.answered - {id})
            case "tool/finished":
                state = self._answer(state, event)
            case "session/rewound":
                to = event.data.get("to")
                then = self.states[to] if isinstance(to, int) and to < len(self.states) else state
                state = then._replace(turns=state.turns)
        self.states.append(state)

    def _start(self, state: _State, event: StoredEvent) -> _State:
        turn = event.data.get("turn")
        if state.turn is not None:
            self._tell(event, f"turn {turn} begins while turn {state.turn} is open")
        elif turn != state.turns + 1:
            self._tell(event, f"turn {turn} begins, and {state.turns + 1} is next")
        return _State(turn if isinstance(turn, int) else None, max(state.turns + 1, turn or 0))

    def _end(self, state: _State, event: StoredEvent) -> _State:
        turn, reason = event.data.get("turn"), event.data.get("reason")
        if state.turn is None:
            self._tell(event, f"turn {turn} ends, and none is open")
        elif turn != state.turn:
            self._tell(event, f"turn {turn} ends while turn {state.turn} is open")
        elif state.waiting:
            self._tell(event, f"turn {turn} ends, and nobody answered {', '.join(sorted(state.waiting))}")
        if reason not in _REASONS:
            self._tell(event, f"turn {turn} ends because of {reason}")
        return _State(turns=state.turns)

    def _answer(self, state: _State, event: StoredEvent) -> _State:
        id = str(event.data.get("id"))
        if state.turn is not None and id in state.answered and id not in state.waiting:
            self._tell(event, f"call {id} is answered again")
        return state._replace(waiting=state.waiting - {id}, answered=state.answered | {id})

    def _tell(self, event: StoredEvent, says: str) -> None:
        self.violations.append(Violation("turns", self._session, says, event.seq))


def noted_turns_are_there(evidence: Evidence) -> Iterator[Violation]:
    """A turn whose end was told is there, ended as it was told; one whose start was acknowledged has begun."""
    for outcome in evidence.outcomes:
        opening = outcome.opening
        ends = [event.data for event in outcome.events if event.type == "turn/end"]
        starts = {event.data.get("turn") for event in outcome.events if event.type == "turn/start"}
        known = [acknowledgement.note["line"] for acknowledgement in opening.acknowledgements]
        known += [note["line"] for note in opening.turns if note["phase"] == "end"]
        for note in opening.turns:
            turn = note["turn"]
            if note["phase"] == "start" and turn not in starts and max(known, default=0) > note["line"]:
                yield Violation("turns", opening.session, f"turn {turn} had begun, and isn't there", note=note)
            elif note["phase"] == "end" and not any(_is_end(end, note) for end in ends):
                says = f"turn {turn} had ended ({note['reason']}), and no such end is there"
                yield Violation("turns", opening.session, says, note=note)


def _is_end(end: Mapping[str, Any], note: Mapping[str, Any]) -> bool:
    return end.get("turn") == note["turn"] and note["reason"] in (None, end.get("reason"))


def rewinds_are_there(evidence: Evidence) -> Iterator[Violation]:
    """A rewind that returned is a record; each record names the one before it."""
    for outcome in evidence.outcomes:
        to = [event.data.get("to") for event in outcome.events if event.type == "session/rewound"]
        for note in outcome.opening.rewound:
            if note["to"] not in to:
                says = f"it was rewound to {note['to']}, and no record says so"
                yield Violation("rewinds", outcome.opening.session, says, note=note)
    for session in evidence.stored.sessions():
        previous = None
        for event in evidence.stored.whole(session):
            if event.type != "session/rewound":
                continue
            if event.data.get("previous") != previous or not 0 <= event.data.get("to", -1) <= event.seq:
                says = f"event {event.seq} rewinds to {event.data.get('to')} behind {event.data.get('previous')}"
                yield Violation("rewinds", session, f"{says}, and the rewind before it is {previous}", event.seq)
            previous = event.seq
