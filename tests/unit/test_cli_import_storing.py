"""What an import takes for stored already, event by event."""

from __future__ import annotations

from typing import Any, cast

import pytest

from turnkeeper.actors.core_types import IMPORT_KEY
from turnkeeper.actors.errors import TooLarge
from turnkeeper.actors.importing import ImportedEvent
from turnkeeper.actors.records import Event, EventPage
from turnkeeper.actors.session.session import Session
from turnkeeper.runtime.cli.import_storing import StoredEvents, read_back


def imported(type: str, key: str, otherwise: ImportedEvent | None = None, **data: Any) -> ImportedEvent:
    """Make an event as an import brings it."""
    return ImportedEvent(type, data, 0, key, 1, otherwise)


def stored_events(*events: tuple[str, str | None, dict[str, Any]]) -> StoredEvents:
    """Take note of stored events: type, key if it was imported, data."""
    found = StoredEvents()
    for seq, (type, key, data) in enumerate(events):
        found.note(Event(seq + 1, "s", seq, type, data if key is None else {**data, IMPORT_KEY: key}, 0))
    return found


def test_an_event_without_its_key_is_new() -> None:
    """Nothing stored means that everything is to be appended."""
    event = imported("user/message", "k1", text="hello")
    assert stored_events().new_of(event) is event


def test_an_event_with_its_key_is_not_new() -> None:
    """The same record is stored once, whatever else is there."""
    found = stored_events(("user/message", "k1", {"text": "hello"}))
    assert found.new_of(imported("user/message", "k1", text="hello")) is None


def test_an_event_that_others_appended_hides_nothing() -> None:
    """Content alone doesn't make an event the same: only its key does."""
    found = stored_events(("user/message", None, {"text": "hello"}))
    event = imported("user/message", "k1", text="hello")
    assert found.new_of(event) is event


def test_another_end_of_a_call_is_a_late_result() -> None:
    """A call that was closed as unknown gets its real result in the other form, once."""
    late = imported("tool/late-result", "late", id="c", output="done")
    real = imported("tool/finished", "result", late, id="c", output="done")
    closed = ("tool/finished", "result", {"id": "c", "output": None, "error": "TOOL_OUTCOME_UNKNOWN"})
    assert stored_events(closed).new_of(real) is late
    assert stored_events(closed, ("tool/late-result", "late", {"id": "c", "output": "done"})).new_of(real) is None


def test_another_end_of_an_exchange_is_nothing() -> None:
    """What is stored stays true: an exchange has one end."""
    found = stored_events(("turn/end", "end", {"turn": 1, "reason": "completed"}))
    assert found.new_of(imported("turn/end", "end", turn=1, reason="aborted")) is None


def test_what_an_opening_closed_counts_as_closed() -> None:
    """After an import that was killed, the closings of whoever opened the session stand for the real ends."""
    found = stored_events(
        ("turn/start", "start", {"turn": 2}),
        ("tool/started", "call", {"id": "c"}),
        ("tool/finished", None, {"id": "c", "output": None, "error": "TOOL_OUTCOME_UNKNOWN"}),
        ("turn/end", None, {"turn": 2, "reason": "interrupted"}),
    )
    late = imported("tool/late-result", "late", id="c", output="done")
    assert found.new_of(imported("tool/finished", "result", late, id="c", output="done")) is late
    assert found.new_of(imported("turn/end", "end", turn=2, reason="completed")) is None


def test_a_hosts_own_turn_closes_none_of_the_files() -> None:
    """A turn that a host ran in the imported session has a number, too, and means nothing for the file's."""
    found = stored_events(
        ("turn/start", "start", {"turn": 1}),
        ("turn/end", "end", {"turn": 1, "reason": "completed"}),
        ("turn/start", None, {"turn": 2}),
        ("tool/finished", None, {"id": "c", "output": None}),
        ("turn/end", None, {"turn": 2, "reason": "completed"}),
    )
    end = imported("turn/end", "end of 2", turn=2, reason="completed")
    assert found.new_of(end) is end
    real = imported("tool/finished", "result", id="c", output="done")
    assert found.new_of(real) is real


class LargeSession:
    """Stands for a session of 20 events so large that a page holds three of them at most."""

    head = 20

    def __init__(self) -> None:
        self.limits: list[int] = []

    async def read(self, *, start: int, limit: int) -> EventPage:
        """Read a page."""
        self.limits.append(limit)
        if limit > 3:
            raise TooLarge("data of this page", limit, 3)
        stored = [
            Event(0, "s", n, "my/n", {IMPORT_KEY: f"k{n}"}, 0) for n in range(start, min(start + limit, self.head))
        ]
        return EventPage(stored, head=self.head)


@pytest.mark.anyio
async def test_large_events_are_read_back_in_smaller_pages() -> None:
    """A session of hundreds of pictures can be imported again: nothing in it is new."""
    session = LargeSession()
    stored = await read_back(cast("Session", session))
    assert all(stored.new_of(imported("my/n", f"k{n}")) is None for n in range(20))
    assert session.limits[-6:] == [3] * 6
