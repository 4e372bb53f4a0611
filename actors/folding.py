"""What a session's events say about its turn: whether one is open, which calls wait for an answer, and how to close it.

Beside it, which event is the newest rewind; what that means is for `rewinds` to say. Pure: events in, state and closing
events out. A state is folded from the events since the open turn's start, so it costs what the turn holds and not what
the session does. Events of types that aren't known here, and fields of a form that isn't expected, change nothing: a
program's own events are its own, and imports hold what others wrote.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from turnkeeper.storage.patches import ABANDONED

from .errors import CallRepeated

TURN_START: Final = "turn/start"
TURN_END: Final = "turn/end"
ASSISTANT_MESSAGE: Final = "assistant/message"
TOOL_STARTED: Final = "tool/started"
TOOL_FINISHED: Final = "tool/finished"
TOOL_LATE_RESULT: Final = "tool/late-result"
REWOUND: Final = "session/rewound"
INBOX_MESSAGE: Final = "inbox/message"

FOLDED: Final = frozenset(
    (TURN_START, TURN_END, ASSISTANT_MESSAGE, TOOL_STARTED, TOOL_FINISHED, TOOL_LATE_RESULT, REWOUND)
)
"""The types that change a turn's state; every other is only counted."""

TOOL_NOT_STARTED: Final = "TOOL_NOT_STARTED"
"""The error of a call whose body never began: safe to make again."""

TOOL_OUTCOME_UNKNOWN: Final = "TOOL_OUTCOME_UNKNOWN"
"""The error of a call whose body began and whose end nobody saw."""

OPEN_TURN: Final = "open_turn"
"""Summary key: the seq of the open turn's start, or null."""

TURNS: Final = "turns"
"""Summary key: how many turns have begun."""

NEWEST_REWIND: Final = "rewound"
"""Summary key: the seq of the newest rewind, if there is one."""

INTERRUPTED: Final = "interrupted"
"""Summary key: the seq of the start of a turn that an opening closed, until another begins or it is rewound."""

RESULTS_MAX: Final = 10_000
"""Of so many calls, the newest of a turn, it is known that they have a result."""

FOLDED_PATCH_BYTES: Final = 100
"""What a patch by `TurnState.fold` adds to another, in bytes, at most."""

Effect = Literal["read", "idempotent", "once"]
Reason = Literal["completed", "error", "aborted", "interrupted"]
Fate = Literal["not_started", "unknown", "retry"]
NewEvent = tuple[str, dict[str, Any]]


class CallFate(NamedTuple):
    """A call that a crash left unanswered. `retry`: it had begun, and its effect allows to make it again."""

    id: str
    name: str
    fate: Fate


@dataclass(slots=True)
class Call:
    """A tool call without an answer yet; `begun` once its start is in the log."""

    name: str
    begun: bool = False
    effect: str = "once"

    @property
    def fate(self) -> Fate:
        """Say what an interruption now means for it."""
        if not self.begun:
            return "not_started"
        return "retry" if self.effect in ("read", "idempotent") else "unknown"

    @property
    def error(self) -> str:
        """The error its result gets when nobody answers it any more."""
        return TOOL_OUTCOME_UNKNOWN if self.begun else TOOL_NOT_STARTED


@dataclass(slots=True)
class TurnState:
    """The turn of one session as its events left it.

    `open_turn` is the seq of the open turn's start, `turn` that turn's number, `turns` how many have begun, `calls`
    the unanswered calls by id, in the order in which they appeared, `results` the calls of the newest turn that have a
    result, and whether it is a real one, `rewound` the seq of the newest rewind, `interrupted` that of the start of a
    turn that an opening closes or has closed, `closed` the calls whose made-up results are what was folded last.
    `abandoned` is how many events there were when an owner was gone without closing, while that is told.
    """

    open_turn: int | None = None
    turn: int = 0
    turns: int = 0
    calls: dict[str, Call] = field(default_factory=dict)
    results: dict[str, bool] = field(default_factory=dict)
    rewound: int | None = None
    interrupted: int | None = None
    abandoned: int | None = None
    closed: list[CallFate] = field(default_factory=list)
    _finishing: set[str] = field(default_factory=set)

    @classmethod
    def from_summary(cls, summary: Mapping[str, Any]) -> TurnState:
        """Begin with what a stream's summary says; the events from `open_turn` on have yet to be folded in."""
        turns = _count(summary.get(TURNS), 0)
        return cls(
            open_turn=count_or_none(summary.get(OPEN_TURN)),
            turn=turns,
            turns=turns,
            rewound=count_or_none(summary.get(NEWEST_REWIND)),
            interrupted=count_or_none(summary.get(INTERRUPTED)),
            abandoned=count_or_none(summary.get(ABANDONED)),
        )

    def fold(self, seq: int, type: str, data: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take the next event into account. Returns the patch that the summary needs with it, or None."""
        if type == TURN_START:
            return self._start(seq, data)
        if type == TURN_END:
            return self._end()
        if type == ASSISTANT_MESSAGE:
            self.closed.clear()
            for id, name in _calls_of(data):
                # A program may write down what the model asked for when the calls have been made.
                if id not in self.results:
                    self.calls.setdefault(id, Call(name))
        elif type == TOOL_STARTED:
            self._begin(data)
        elif type in (TOOL_FINISHED, TOOL_LATE_RESULT):
            self._finish(data)
        elif type == REWOUND:
            self.rewound = seq
            return {NEWEST_REWIND: seq} | self._without_interrupted()
        return None

    @property
    def left_open(self) -> int | None:
        """The seq of the start of the turn that a crash has left open, closed already or not."""
        return self.interrupted if self.open_turn is None else self.open_turn

    def check_start(self, session: str, call: str) -> None:
        """Raise CallRepeated for a call that has begun, or that has its real result in the open turn."""
        known = self.calls.get(call)
        is_finished = self.open_turn is not None and self.results.get(call, False)
        if is_finished or (known is not None and known.begun):
            raise CallRepeated(session, call, is_finished)

    @contextlib.contextmanager
    def finishing(self, session: str, call: str) -> Iterator[None]:
        """Keep others from finishing the call while the body does. Raises CallRepeated if it has its real result."""
        if self.results.get(call) or call in self._finishing:
            raise CallRepeated(session, call, True)
        self._finishing.add(call)
        try:
            yield
        finally:
            self._finishing.discard(call)

    def closing(self, reason: Reason, error: BaseException | None = None) -> list[NewEvent]:
        """Give the events that close the open turn: a result for each unanswered call, in order, then its end.

        None if no turn is open. The same state gives the same events, so that two who close after one crash write the
        same bytes.
        """
        if self.open_turn is None:
            return []
        end: dict[str, Any] = {"turn": self.turn, "reason": reason}
        if error is not None:
            end["error"] = {"type": type(error).__name__, "message": text_of(error)}
        answers = [(TOOL_FINISHED, unanswered(id, call.error)) for id, call in self.calls.items()]
        return [*answers, (TURN_END, end)]

    def fates(self) -> list[CallFate]:
        """Tell what an interruption now means for each unanswered call, and for those that are being closed for one."""
        return [*self.closed, *(CallFate(id, call.name, call.fate) for id, call in self.calls.items())]

    def _start(self, seq: int, data: Mapping[str, Any]) -> dict[str, Any]:
        self.turn = _count(data.get("turn"), self.turns + 1)
        self.turns = max(self.turns, self.turn)
        self.open_turn = seq
        self.calls.clear()
        self.results.clear()
        self.closed.clear()
        return {OPEN_TURN: seq, TURNS: self.turns} | self._without_interrupted()

    def _end(self) -> dict[str, Any]:
        is_interrupted = self.interrupted is not None and self.interrupted == self.open_turn
        self.open_turn = None
        self.calls.clear()
        return {OPEN_TURN: None, INTERRUPTED: self.interrupted} if is_interrupted else {OPEN_TURN: None}

    def _without_interrupted(self) -> dict[str, Any]:
        """Note that nobody needs to be told any more of what a crash has left; give the patch for that."""
        patch = {INTERRUPTED: None} if self.interrupted is not None else {}
        self.interrupted = None
        return patch | self.without_abandoned()

    def without_abandoned(self) -> dict[str, Any]:
        """Note that nobody needs to be told of an owner who was gone without closing; give the patch for that."""
        patch = {ABANDONED: None} if self.abandoned is not None else {}
        self.abandoned = None
        return patch

    def _finish(self, data: Mapping[str, Any]) -> None:
        id = data.get("id")
        if isinstance(id, str):
            call = self.calls.pop(id, None)
            self.results.pop(id, None)
            self.results[id] = is_real = data.get("error") not in (TOOL_NOT_STARTED, TOOL_OUTCOME_UNKNOWN)
            if is_real:
                self.closed = [each for each in self.closed if each.id != id] if self.open_turn is None else []
            elif call is not None:
                self.closed.append(CallFate(id, call.name, call.fate))
            if len(self.results) > RESULTS_MAX:
                del self.results[next(iter(self.results))]

    def _begin(self, data: Mapping[str, Any]) -> None:
        id = data.get("id")
        if isinstance(id, str):
            self.closed.clear()
            self.results.pop(id, None)
            call = self.calls.setdefault(id, Call(str(data.get("name", ""))))
            call.begun = True
            call.effect = str(data.get("effect", "once"))


def folded_part(type: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a fold needs of an event's data, for when the whole of it is not at hand."""
    if type == ASSISTANT_MESSAGE:
        calls = [{"id": id, "name": name} for id, name in _calls_of(data)]
        return {"tool_calls": calls} if calls else {}
    members = _FOLDED_MEMBERS.get(type, ())
    return {name: data[name] for name in members if isinstance(data.get(name), str | int)}


_FOLDED_MEMBERS: Final = {
    TURN_START: ("turn",),
    TOOL_STARTED: ("id", "name", "effect"),
    TOOL_FINISHED: ("id",),
    TOOL_LATE_RESULT: ("id",),
    REWOUND: ("to", "previous"),
    INBOX_MESSAGE: ("type", "sender"),
}


def unanswered(id: str, error: str) -> dict[str, Any]:
    """Make the result that a call gets when there is no real one."""
    return {"id": id, "output": None, "error": error}


_MESSAGE_CHARACTERS_MAX = 4000


def text_of(error: BaseException) -> str:
    """Give an exception's message, cut where it is too long to be kept, and whatever its class does."""
    try:
        text = str(error)
    except Exception as failure:
        text = f"its message can't be read: {type(failure).__name__}"
    return text if len(text) <= _MESSAGE_CHARACTERS_MAX else text[:_MESSAGE_CHARACTERS_MAX] + "…"


def _calls_of(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    calls = data.get("tool_calls")
    for call in calls if isinstance(calls, list | tuple) else ():
        if isinstance(call, Mapping) and isinstance(call.get("id"), str):
            yield call["id"], str(call.get("name", ""))


def _count(value: object, otherwise: int) -> int:
    found = count_or_none(value)
    return otherwise if found is None else found


def count_or_none(value: object) -> int | None:
    """Take a number of events, or of one, from what somebody wrote; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
