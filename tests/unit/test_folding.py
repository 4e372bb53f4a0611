"""Unit: what the events of a turn leave open, and what closes it."""

from __future__ import annotations

from typing import Any

import pytest

from turnkeeper.actors.errors import CallRepeated
from turnkeeper.actors.folding import RESULTS_MAX, Call, TurnState, unanswered

Events = list[tuple[str, dict[str, Any]]]

TURN: Events = [("turn/start", {"turn": 3})]
MESSAGE: Events = [
    ("assistant/message", {"text": "", "tool_calls": [{"id": "a", "name": "bash"}, {"id": "b", "name": "read"}]})
]


def folded(events: Events, *, first: int = 7, turns: int = 2) -> TurnState:
    """Fold the events, numbered from `first`, into the state of a session that had `turns` turns."""
    state = TurnState.from_summary({"turns": turns})
    for seq, (type, data) in enumerate(events, first):
        state.fold(seq, type, data)
    return state


def test_a_turns_start_opens_it_and_counts_it() -> None:
    """The start's patch names its own event and the number of turns begun."""
    state = TurnState.from_summary({"turns": 2})
    assert state.fold(7, "turn/start", {"turn": 3}) == {"open_turn": 7, "turns": 3}
    assert (state.open_turn, state.turn, state.turns) == (7, 3, 3)


def test_a_turns_start_without_a_number_gets_the_next_one() -> None:
    """A host's own turn/start, or an import's, need not count."""
    assert folded([("turn/start", {})]).turn == 3


def test_a_turns_end_closes_it_with_all_its_calls() -> None:
    """After the end nothing is left to answer, and the summary says that no turn is open."""
    state = folded(TURN + MESSAGE)
    assert state.fold(9, "turn/end", {"turn": 3, "reason": "completed"}) == {"open_turn": None}
    assert (state.open_turn, state.calls) == (None, {})


def test_calls_of_a_message_have_not_begun() -> None:
    """What the model asked for is unanswered from the message on, in its order."""
    assert folded(TURN + MESSAGE).calls == {"a": Call("bash"), "b": Call("read")}


def test_a_started_call_has_begun_and_a_finished_one_is_gone() -> None:
    """Start and result of a call move it on, whoever else is open."""
    started: Events = [
        ("tool/started", {"id": "a", "name": "bash", "arguments": {}, "effect": "once"}),
        ("tool/finished", {"id": "b", "output": None}),
    ]
    assert folded(TURN + MESSAGE + started).calls == {"a": Call("bash", begun=True)}


def test_a_started_call_that_no_message_asked_for_counts() -> None:
    """Frameworks that log no messages still have their calls answered."""
    started: Events = [("tool/started", {"id": "x", "name": "grep", "arguments": {}, "effect": "read"})]
    assert folded(TURN + started).calls == {"x": Call("grep", begun=True, effect="read")}


def test_closing_answers_every_call_and_then_ends_the_turn() -> None:
    """A call that never began is safe to make again, one that began has an unknown outcome; the end comes last."""
    started: Events = [("tool/started", {"id": "b", "name": "read", "arguments": {}, "effect": "once"})]
    assert folded(TURN + MESSAGE + started).closing("interrupted") == [
        ("tool/finished", {"id": "a", "output": None, "error": "TOOL_NOT_STARTED"}),
        ("tool/finished", {"id": "b", "output": None, "error": "TOOL_OUTCOME_UNKNOWN"}),
        ("turn/end", {"turn": 3, "reason": "interrupted"}),
    ]


def test_closing_leaves_nothing_open() -> None:
    """Folding the closing events gives a closed turn: a second opening has nothing to do."""
    state = folded(TURN + MESSAGE)
    for seq, (type, data) in enumerate(state.closing("interrupted"), 9):
        state.fold(seq, type, data)
    assert (state.open_turn, state.calls) == (None, {})


@pytest.mark.parametrize(
    ("effect", "fate"), [("once", "unknown"), ("read", "retry"), ("idempotent", "retry"), ("unheard of", "unknown")]
)
def test_the_effect_of_a_begun_call_decides_its_fate(effect: str, fate: str) -> None:
    """Only what has read, or may be repeated, is offered for a retry; whatever isn't known is unknown."""
    events: Events = [("tool/started", {"id": "a", "name": "bash", "arguments": {}, "effect": effect})]
    assert folded(TURN + MESSAGE + events).fates() == [("a", "bash", fate), ("b", "read", "not_started")]


def test_a_call_that_is_written_down_after_its_result_gets_no_second_one() -> None:
    """A program may store the model's message when the calls in it have been made."""
    call, result = {"id": "a", "name": "bash"}, {"id": "a", "output": 1}
    state = folded([*TURN, ("tool/started", call), ("tool/finished", result), *MESSAGE])
    assert "a" not in state.calls
    assert not any(data.get("id") == "a" for _, data in state.closing("interrupted"))


def test_a_call_has_one_real_result() -> None:
    """One that nobody saw the end of may still get it, once; so may one whose start couldn't be stored."""
    state = folded([*TURN, ("tool/started", {"id": "a"})])
    with state.finishing("s", "a"), pytest.raises(CallRepeated), state.finishing("s", "a"):
        pytest.fail("two at a time")
    for event in state.closing("interrupted"):
        state.fold(9, *event)
    with state.finishing("s", "a"):
        state.fold(10, "tool/late-result", {"id": "a", "output": 1})
    with pytest.raises(CallRepeated, match="has its result already"), state.finishing("s", "a"):
        pytest.fail("a second one")


def test_a_call_begins_once_in_a_turn() -> None:
    """Not while it runs, and not when it has its real result; one that has no real result may be made again."""
    state = folded([*TURN, *MESSAGE])
    state.check_start("s", "a")
    state.fold(3, "tool/started", {"id": "a"})
    with pytest.raises(CallRepeated, match="has begun already"):
        state.check_start("s", "a")
    state.fold(4, "tool/finished", unanswered("a", "TOOL_NOT_STARTED"))
    state.check_start("s", "a")
    state.fold(5, "tool/started", {"id": "a"})
    state.fold(6, "tool/finished", {"id": "a", "output": 1})
    with pytest.raises(CallRepeated, match="has its result already"):
        state.check_start("s", "a")
    for type in ("turn/end", "turn/start"):
        state.fold(7, type, {})
        state.check_start("s", "a")


def test_what_an_opening_closes_is_told_until_a_turn_begins_or_it_is_rewound() -> None:
    """The turn's end puts it into the summary, in the same patch; what begins or rewinds takes it out again."""
    for event, patch in (
        (("turn/start", {}), {"open_turn": 9, "turns": 4, "interrupted": None}),
        (("session/rewound", {"to": 1}), {"rewound": 9, "interrupted": None}),
    ):
        state = folded(TURN)
        assert state.left_open == 7
        state.interrupted = state.left_open
        assert state.fold(8, "turn/end", {"reason": "interrupted"}) == {"open_turn": None, "interrupted": 7}
        assert TurnState.from_summary({"interrupted": 7}).left_open == state.left_open == 7
        assert state.fold(9, *event) == patch
        assert state.left_open == state.open_turn


def test_a_closing_that_was_broken_off_tells_of_the_calls_in_it() -> None:
    """The fates are the same however many of the made-up results are stored, until something else comes."""
    state = folded([*TURN, *MESSAGE, ("tool/started", {"id": "a", "effect": "read"})])
    fates = state.fates()
    assert fates == [("a", "bash", "retry"), ("b", "read", "not_started")]
    for seq, event in enumerate(state.closing("interrupted"), 20):
        state.fold(seq, *event)
        assert state.fates() == fates
    state.fold(30, "tool/late-result", {"id": "a", "output": 1})
    assert state.fates() == fates[1:]
    state.fold(31, "turn/start", {})
    assert state.fates() == []


def test_a_call_that_the_program_gave_up_in_the_turn_is_no_interrupted_one() -> None:
    """Its result was made up while the turn went on, so whoever goes on knows of it."""
    state = folded([*TURN, *MESSAGE, ("tool/finished", unanswered("a", "TOOL_NOT_STARTED"))])
    state.fold(20, "tool/started", {"id": "b", "name": "read", "effect": "once"})
    assert state.fates() == [("b", "read", "unknown")]


def test_results_are_remembered_up_to_a_bound() -> None:
    """A turn of any number of calls takes no more memory than that of the newest."""
    state = folded(TURN)
    for number in range(RESULTS_MAX + 5):
        state.fold(number, "tool/finished", {"id": f"call-{number}", "output": 1})
    assert len(state.results) == RESULTS_MAX
    assert "call-4" not in state.results


def test_an_error_is_told_with_type_and_message() -> None:
    """A turn that ended by an exception names it."""
    assert folded(TURN).closing("error", ValueError("no such file")) == [
        ("turn/end", {"turn": 3, "reason": "error", "error": {"type": "ValueError", "message": "no such file"}})
    ]


def test_an_error_whose_message_fails_or_never_ends_is_told_all_the_same() -> None:
    """Neither a broken __str__ nor a message of a megabyte keeps a turn open."""

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("broken")

    ((_, broken),) = folded(TURN).closing("error", Unprintable())
    ((_, long),) = folded(TURN).closing("error", ValueError("x" * 1_000_000))
    assert broken["error"]["message"] == "its message can't be read: RuntimeError"
    assert len(long["error"]["message"]) == 4001


@pytest.mark.parametrize(
    "event",
    [
        ("assistant/message", {"tool_calls": "none"}),
        ("assistant/message", {"tool_calls": [None, {"id": 7}, {"name": "x"}]}),
        ("tool/started", {"id": None}),
        ("tool/finished", {"id": ["a"]}),
        ("tool/finished", {}),
        ("my/own", {"id": "a", "tool_calls": [{"id": "z"}]}),
    ],
)
def test_events_of_another_form_change_nothing(event: tuple[str, dict[str, Any]]) -> None:
    """Imports and programs of other minds are kept as they are and never misread as calls."""
    assert folded([*TURN, *MESSAGE, event]) == folded(TURN + MESSAGE)


@pytest.mark.parametrize("value", [True, -1, "7", 1.0, None])
def test_a_summary_of_another_form_has_no_open_turn(value: object) -> None:
    """Only a number of an event says that a turn is open."""
    assert TurnState.from_summary({"open_turn": value, "turns": value}) == TurnState()
