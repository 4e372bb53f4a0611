"""Unit: importing again. The same file adds nothing, a longer one what is new; neither contradicts what is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnkeeper.actors.importing import ImportedEvent

from ..session_files import (
    SESSION,
    Json,
    StoreModel,
    assert_paired,
    assistant,
    call,
    conversation,
    encoded,
    import_bytes,
    import_records,
    item,
    meta,
    result,
    rollout,
    said,
    shown,
    text,
    user,
)

KEY = f"claude-code:{SESSION}"
both_formats = pytest.mark.parametrize("make", [conversation, rollout], ids=["claude-code", "codex"])


def is_presumed(event: ImportedEvent) -> bool:
    """Say whether an event is what the end of a file says about what was open."""
    return event.type == "turn/end" or event.data.get("error") == "TOOL_OUTCOME_UNKNOWN"


def logged(store: StoreModel) -> list[tuple[str, Json]]:
    """Return the one session's log."""
    (log,) = store.logs.values()
    return [(event.type, event.data) for event in log]


def take(store: StoreModel, path: Path, content: bytes) -> int:
    """Let the store import a file of this content."""
    path.write_bytes(content)
    return store.take(path)


@both_formats
def test_importing_twice_adds_nothing(tmp_path: Path, make: Callable[[], list[Json]]) -> None:
    """Nor does importing it a third time, or from another folder."""
    store = StoreModel()
    content = encoded(make())
    (tmp_path / "moved").mkdir()
    assert take(store, tmp_path / "a.jsonl", content) > 0
    assert take(store, tmp_path / "a.jsonl", content) == 0
    assert take(store, tmp_path / "moved" / "a.jsonl", content) == 0


@both_formats
def test_the_events_of_a_beginning_are_the_beginning_of_the_events(
    tmp_path: Path, make: Callable[[], list[Json]]
) -> None:
    """However many records a file has so far, all that isn't presumed at its end stands in the longer file's events."""
    records = make()
    full = import_records(tmp_path, records).only()
    for count in range(1, len(records)):
        events = import_records(tmp_path, records[:count]).only()
        while events and is_presumed(events[-1]) and events != full[: len(events)]:
            events.pop()
        assert events == full[: len(events)]


@both_formats
def test_a_file_that_grew_adds_what_is_new(tmp_path: Path, make: Callable[[], list[Json]]) -> None:
    """Cut at any byte, imported, completed and imported again: every event once, all calls and exchanges paired."""
    path = tmp_path / "session.jsonl"
    content = encoded(make())
    whole = StoreModel()
    take(whole, path, content)
    (expected,) = whole.logs.values()
    for cut in range(content.index(b"\n") + 1, len(content), 13):
        store = StoreModel()
        take(store, path, content[:cut])
        assert_paired(logged(store))
        take(store, path, content)
        assert_paired(logged(store))
        assert take(store, path, content) == 0
        (log,) = store.logs.values()
        late = {event.key for event in log if event.type == "tool/late-result"}
        assert {event.key for event in log} - late == {event.key for event in expected}


records_of_claude = st.lists(
    st.sampled_from(
        [
            lambda n: user(n, "prompt"),
            lambda n: user(n, f"prompt {n}"),
            lambda n: user(n, [text("[Request interrupted by user]")]),
            lambda n: assistant(n, text("word"), id=f"msg-{n // 3}"),
            lambda n: assistant(n, call(f"toolu-{n % 5}"), id=f"msg-{n // 2}"),
            lambda n: assistant(n, call(f"toolu-{n}"), call(f"toolu-{n + 1}")),
            lambda n: user(n, [result(f"toolu-{n - 1}"), result(f"toolu-{n % 5}", f"output {n}")]),
        ]
    ),
    max_size=14,
).map(lambda makers: [make(number) for number, make in enumerate(makers)])

records_of_codex = st.lists(
    st.sampled_from(
        [
            lambda n: said(n, "user", "prompt"),
            lambda n: said(n, "assistant", "word", id=f"msg-{n // 2}"),
            lambda n: shown(n, "user_message", message="prompt"),
            lambda n: shown(n, "task_started"),
            lambda n: shown(n, "task_complete"),
            lambda n: shown(0, "turn_aborted"),
            lambda n: item(n, "function_call", call_id=f"call-{n % 4}", name="shell", arguments="{}"),
            lambda n: item(n, "function_call_output", call_id=f"call-{(n - 1) % 4}", output=f"{n}"),
        ]
    ),
    max_size=14,
).map(lambda makers: [meta(), *(make(number) for number, make in enumerate(makers, 1))])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(records_of_claude.filter(bool) | records_of_codex, st.lists(st.integers(1, 14), max_size=3))
def test_any_session_imported_in_any_pieces_is_sound(tmp_path: Path, records: list[Json], counts: list[int]) -> None:
    """Whatever was said in whatever order, growing step by step leaves one log that is paired and has everything."""
    path = tmp_path / "session.jsonl"
    store = StoreModel()
    for count in [*sorted(counts), len(records)]:
        take(store, path, encoded(records[:count]))
        assert_paired(logged(store))
    assert take(store, path, encoded(records)) == 0
    (log,) = store.logs.values()
    keys = {event.key for event in log}
    for event in import_bytes(tmp_path, encoded(records)).only():
        assert event.key in keys
        if event.otherwise is not None:
            stored = next(each for each in log if each.key == event.key)
            assert stored.data == event.data or event.otherwise.key in keys


def test_a_result_that_a_longer_file_brings_is_a_late_one(tmp_path: Path) -> None:
    """The first import had closed its call; the result is kept, and the call has one end."""
    path = tmp_path / "session.jsonl"
    records = [user(0, "go"), assistant(1, call("toolu-1"))]
    store = StoreModel()
    take(store, path, encoded(records))
    assert logged(store)[-2:] == [
        ("tool/finished", {"id": "toolu-1", "output": None, "error": "TOOL_OUTCOME_UNKNOWN"}),
        ("turn/end", {"turn": 1, "reason": "interrupted"}),
    ]
    records += [user(2, [result("toolu-1", "at last")]), assistant(3, text("Done.")), user(4, "Thanks.")]
    assert take(store, path, encoded(records)) == 5
    added = logged(store)[-5:]
    assert [type for type, _ in added] == [
        *("tool/late-result", "assistant/message", "turn/start", "user/message", "turn/end")
    ]
    assert added[0][1]["output"] == "at last"
    assert take(store, path, encoded(records)) == 0


def test_a_shorter_copy_of_what_is_stored_adds_nothing(tmp_path: Path) -> None:
    """Its end presumes what the store knows better."""
    path = tmp_path / "session.jsonl"
    store = StoreModel()
    take(store, path, encoded(conversation()))
    for count in range(1, len(conversation())):
        assert take(store, path, encoded(conversation()[:count])) == 0


def test_a_line_that_was_mended_is_added(tmp_path: Path) -> None:
    """The records around it, and their events, are known already."""
    path = tmp_path / "session.jsonl"
    store = StoreModel()
    records: list[Json | bytes] = [user(0, "one"), b"torn", assistant(2, text("three"))]
    take(store, path, encoded(records))
    records[1] = assistant(1, text("two"))
    assert take(store, path, encoded(records)) == 1
    assert [event.data["text"] for event in store.logs[KEY] if event.type == "assistant/message"] == ["three", "two"]


@both_formats
def test_keys_do_not_depend_on_where_a_file_lies_or_what_stands_around(
    tmp_path: Path, make: Callable[[], list[Json]]
) -> None:
    """Damage between the records changes no key."""
    records = make()
    damaged = [each for record in records for each in (record, b"torn", b"")]
    keys = [event.key for event in import_records(tmp_path, records).only()]
    assert [event.key for event in import_records(tmp_path, damaged).only()] == keys
