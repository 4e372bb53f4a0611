"""Unit: what a stream's row says about its session."""

from __future__ import annotations

from typing import Any

import pytest

from turnkeeper.actors.records import Event, EventPage, SessionInfo
from turnkeeper.runtime.identity import own_identity
from turnkeeper.storage.exact_json import encode_event
from turnkeeper.storage.requests import Gap, StreamRow

LIVING = {**own_identity().as_map(), "token": "t"}
GONE = {**LIVING, "start": LIVING["start"] - 1}
ELSEWHERE = {**GONE, "host": "another-host.example"}


def row(**summary: Any) -> StreamRow:
    """Make a row of a stream with ten events."""
    return StreamRow("otter", 10, 2, 77, 1_700_000_000_000, {"id": "otter", "kind": "session", **summary})


@pytest.mark.parametrize(
    ("owner", "status"), [(None, "closed"), (LIVING, "active"), (GONE, "crashed"), (ELSEWHERE, "active")]
)
def test_status_is_derived_from_the_owner(owner: dict[str, Any] | None, status: str) -> None:
    """Nobody: closed; somebody living, or on another host where nobody can look: active; gone: crashed."""
    assert SessionInfo.from_row(row(owner=owner)).status == status


def test_a_row_without_a_header_is_listed_all_the_same() -> None:
    """A stream whose header was lost by damage has only what the index knows."""
    info = SessionInfo.from_row(StreamRow("otter", 10, 2, 77, 5, {"damaged": True}))
    assert (info.id, info.events, info.position, info.last_active) == ("otter", 10, 77, 5)
    assert (info.kind, info.title, info.labels, info.created, info.damaged) == ("", "", {}, 0, True)


@pytest.mark.parametrize(("open_turn", "expected"), [(0, True), (7, True), (None, False)])
def test_a_turn_is_open_as_long_as_the_summary_names_its_start(open_turn: int | None, expected: bool) -> None:
    """The very first event may be the start."""
    assert SessionInfo.from_row(row(open_turn=open_turn)).open_turn is expected


def test_an_event_is_its_line_and_its_position() -> None:
    """Field by field."""
    line = encode_event("otter", 3, 5, "my/type", {"text": "ü\u2028"})
    assert Event.from_line(line, 9) == Event(9, "otter", 3, "my/type", {"text": "ü\u2028"}, 5)


def test_a_page_is_a_list_that_knows_where_its_stream_ends() -> None:
    """It compares as a list of its events."""
    event = Event(1, "otter", 0, "my/type", {}, 5)
    gap = Gap(1, 2, "damaged", "00000001.jsonl", 100)
    page = EventPage([event], head=3, missing=[gap])
    assert (page, page.head, page.missing) == ([event], 3, [gap])
