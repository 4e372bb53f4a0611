"""What holds of a session's log once its owner, or the next opening, has closed it: for tests that cut turns short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from turnkeeper.actors.records import Event


def assert_closed(log: Sequence[Event]) -> None:
    """Hold that numbers count from 0, turns begin and end in turn, and each call has one result, within its turn."""
    assert [event.seq for event in log] == list(range(len(log)))
    is_open = False
    waiting: set[str] = set()
    answered: set[str] = set()
    for event in log:
        if event.type == "turn/start":
            assert not is_open, f"event {event.seq} begins a turn within a turn"
            is_open = True
            answered.clear()
        elif event.type == "turn/end":
            assert is_open, f"event {event.seq} ends no turn"
            assert not waiting, f"calls {waiting} have no result when event {event.seq} ends their turn"
            is_open = False
        elif event.type == "tool/finished":
            assert event.data["id"] in waiting, f"event {event.seq} is a result that nobody waits for"
            waiting.remove(event.data["id"])
            answered.add(event.data["id"])
        else:
            waiting |= set(_calls_of(event)) - answered
    assert not is_open, "the last turn has no end"
    assert not waiting, f"calls {waiting} have no result"


def reason_of(log: Sequence[Event]) -> str:
    """Say how the last turn ended, which is the last event."""
    assert log[-1].type == "turn/end"
    reason: str = log[-1].data["reason"]
    return reason


def results_of(log: Iterable[Event]) -> dict[str, Any]:
    """Give each call's result: its error if it has one, else its output."""
    return {
        event.data["id"]: event.data.get("error", event.data["output"])
        for event in log
        if event.type == "tool/finished"
    }


def _calls_of(event: Event) -> list[str]:
    if event.type == "tool/started":
        return [event.data["id"]]
    if event.type == "assistant/message":
        return [call["id"] for call in event.data.get("tool_calls", ())]
    return []
