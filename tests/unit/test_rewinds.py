"""Unit: which of a session's events count after rewinds, and what was open when it had fewer events."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.actors.folding import REWOUND, Call, TurnState, folded_part
from turnkeeper.actors.reading.prefixes import state_at
from turnkeeper.actors.reading.rewinds import Range, Rewind, live_ranges, newest_rewind
from turnkeeper.storage.backend import BackendReader
from turnkeeper.storage.errors import Corrupt
from turnkeeper.storage.exact_json import encode_event
from turnkeeper.storage.requests import Gap, Page, StoredEvent

NOTE = ("my/note", dict[str, Any]())


class Log:
    """A session in memory, as a reader shows it; counts the events that were read. Those in `lost` can't be."""

    def __init__(self, *events: tuple[str, dict[str, Any]]) -> None:
        self.events = list(events)
        self.lost: set[int] = set()
        self.read_count = 0
        self.newest: int | None = None

    def add(self, *events: tuple[str, dict[str, Any]]) -> None:
        """Append events."""
        self.events += events

    def rewind(self, to: int) -> None:
        """Append a rewind, as a session does."""
        record = Rewind(len(self.events), to, self.newest)
        self.newest = record.seq
        self.add((REWOUND, record.as_data()))

    def read(self, id: str, *, start: int = 0, stop: int | None = None, limit: int = 1000) -> Page:
        """Do as `BackendReader.read`."""
        end = min(len(self.events) if stop is None else stop, start + limit)
        wanted = [seq for seq in range(start, end) if seq not in self.lost]
        self.read_count += len(wanted)
        lines = [encode_event(id, seq, 5, *self.events[seq]).rstrip(b"\n") for seq in wanted]
        stored = [StoredEvent(seq + 1, id, seq, line) for seq, line in zip(wanted, lines, strict=True)]
        gaps = [Gap(seq, 1, "it is damaged", "00000001.jsonl", 7) for seq in range(start, end) if seq in self.lost]
        return Page(stored, len(self.events), gaps)

    @property
    def reader(self) -> BackendReader:
        """The log as what it stands for."""
        return cast(BackendReader, self)

    def live(self, stop: int | None = None, unstored: tuple[Rewind, ...] = ()) -> list[Range]:
        """Give the ranges that count of the first `stop` events, of all without it."""
        end = len(self.events) if stop is None else stop
        return live_ranges(self.reader, "s", self.newest, end, unstored)

    def state(self, stop: int, **summary: Any) -> TurnState:
        """Give the turn as the first `stop` events left it."""
        return state_at(self.reader, "s", {"rewound": self.newest, "turns": 9, **summary}, stop)


def test_without_a_rewind_everything_counts() -> None:
    """One range, or none for a session without events; nothing is read for it."""
    log = Log(NOTE, NOTE, NOTE)
    assert (log.live(), log.live(2), log.live(0), log.read_count) == ([(0, 3)], [(0, 2)], [], 0)


def test_what_was_rewound_does_not_count_and_what_comes_after_does() -> None:
    """The record itself is in no range."""
    log = Log(NOTE, NOTE, NOTE)
    log.rewind(1)
    assert log.live() == [(0, 1)]
    log.add(NOTE, NOTE)
    assert log.live() == [(0, 1), (4, 6)]
    assert [log.live(stop) for stop in (3, 4, 5)] == [[(0, 3)], [(0, 1)], [(0, 1), (4, 5)]]


def test_a_rewind_to_what_was_rewound_brings_it_back() -> None:
    """The session is again what it was when it had so many events."""
    log = Log(*[NOTE] * 10)
    log.rewind(3)
    log.add(NOTE)
    log.rewind(7)
    log.add(NOTE)
    assert log.live() == [(0, 7), (13, 14)]
    log.rewind(12)
    assert log.live() == [(0, 3), (11, 12)]


def test_a_rewind_that_is_not_stored_yet_counts_if_it_is_named() -> None:
    """Its record is in a session's buffer, where no reader finds it."""
    log = Log(*[NOTE] * 5)
    record = Rewind(5, 2, None)
    assert live_ranges(log.reader, "s", 5, 7, [record]) == [(0, 2), (6, 7)]


def test_the_newest_rewind_of_a_beginning_is_found() -> None:
    """Only records are read for it."""
    log = Log(*[NOTE] * 5)
    for to in (4, 3, 2):
        log.rewind(to)
    assert [newest_rewind(log.reader, "s", log.newest, stop) for stop in range(4, 9)] == [None, None, 5, 6, 7]
    assert log.read_count == 3 + 3 + 3 + 2 + 1


def test_a_lost_rewind_is_told_and_nothing_comes_back() -> None:
    """Whoever can't know what was taken out doesn't guess."""
    log = Log(*[NOTE] * 5)
    log.rewind(2)
    log.lost.add(5)
    with pytest.raises(Corrupt) as caught:
        log.live()
    assert caught.value.missing == [(5, 1)]


@pytest.mark.parametrize(
    "data", [{}, {"to": 9}, {"to": -1}, {"to": True}, {"to": 2.0, "previous": "x"}, {"previous": 7}]
)
def test_a_record_of_another_form_takes_nothing_out(data: dict[str, Any]) -> None:
    """A program may have appended one by itself; only the record doesn't count, and no loop comes of it."""
    log = Log(NOTE, NOTE, (REWOUND, data), NOTE)
    log.newest = 2
    assert log.live() == [(0, 2), (3, 4)]


def test_a_large_record_keeps_what_it_says_where_it_is_read() -> None:
    """Data that is too large for a line leaves a stub, which has both members."""
    assert folded_part(REWOUND, {"to": 3, "previous": 1, "why": "x"}) == {"to": 3, "previous": 1}


@given(st.lists(st.one_of(st.none(), st.integers(0, 40)), max_size=30), st.integers(0, 30))
def test_ranges_are_what_going_back_step_by_step_gives(steps: list[int | None], stop: int) -> None:
    """Against a model that keeps, for every length, the list of what counts."""
    log = Log()
    counts: list[list[int]] = [[]]
    for step in steps:
        seq = len(log.events)
        if step is None:
            log.add(NOTE)
            counts.append([*counts[-1], seq])
        else:
            to = min(step, seq)
            log.rewind(to)
            counts.append(counts[to])
    stop = min(stop, len(log.events))
    assert [seq for start, end in log.live(stop) for seq in range(start, end)] == counts[stop]


# -- What was open then

TURN: list[tuple[str, dict[str, Any]]] = [
    ("turn/start", {"turn": 1}),
    ("assistant/message", {"text": "", "tool_calls": [{"id": "a", "name": "bash"}, {"id": "b", "name": "read"}]}),
    ("tool/started", {"id": "a", "name": "bash", "arguments": {}, "effect": "read"}),
    ("tool/finished", {"id": "a", "output": None}),
    ("turn/end", {"turn": 1, "reason": "completed"}),
]


def test_a_beginning_within_a_turn_has_its_open_calls() -> None:
    """For every number of events, as if they had been folded one by one."""
    log = Log(NOTE, *TURN, NOTE, *[("turn/start", {"turn": 2}), NOTE])
    folded = TurnState()
    for seq, event in enumerate(log.events):
        found = log.state(seq)
        assert (found.open_turn, found.calls, found.turns) == (folded.open_turn, folded.calls, folded.turns)
        folded.fold(seq, *event)
    assert log.state(4).calls == {"a": Call("bash", begun=True, effect="read"), "b": Call("read")}


def test_what_was_rewound_opens_and_closes_nothing() -> None:
    """Neither the end of a turn nor a result that doesn't count any more."""
    log = Log(*TURN)
    log.rewind(3)
    state = log.state(6)
    assert (state.open_turn, state.rewound, list(state.calls)) == (0, 5, ["a", "b"])
    log.add(("tool/finished", {"id": "b", "output": None}))
    assert list(log.state(7).calls) == ["a"]
    log.rewind(0)
    assert (log.state(8).open_turn, log.state(8).turns) == (None, 0)


def test_a_session_without_turns_is_not_searched_for_one() -> None:
    """However long it is."""
    log = Log(*[NOTE] * 50)
    assert (log.state(40, turns=0), log.read_count) == (TurnState(), 0)


def test_only_what_lies_behind_the_nearest_end_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page, back from the place."""
    monkeypatch.setattr("turnkeeper.actors.reading.prefixes.PIECE_EVENTS_FIRST", 4)
    log = Log(*TURN * 50, NOTE, NOTE)
    assert (log.state(252).open_turn, log.read_count) == (None, 4)
    log.add(*[NOTE] * 10)
    assert (log.state(262).open_turn, log.read_count) == (None, 4 + 4 + 8 + 16)


def test_a_turn_without_a_number_gets_one_that_none_has() -> None:
    """The host's own events, or an import's, need not count."""
    log = Log(("turn/start", {}), NOTE, ("turn/end", {}), NOTE)
    assert (log.state(2).open_turn, log.state(2).turns) == (0, 10)
    assert (log.state(4).open_turn, log.state(4).turns) == (None, 9)


def test_a_damaged_turn_is_told() -> None:
    """What was open can't be known, so nobody closes it."""
    log = Log(*TURN)
    log.lost.add(2)
    with pytest.raises(Corrupt):
        log.state(4)
