"""Unit: what records of Codex become, in the present form and in the older one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..session_files import (
    CODEX_SESSION,
    Json,
    codex,
    encoded,
    import_path,
    import_records,
    item,
    meta,
    rollout,
    said,
    shown,
    time_text,
)

KEY = f"codex:{CODEX_SESSION}"
PARENT = "0199aaaa-0000-7000-8000-00000000000f"


def test_a_session_becomes_events_in_the_order_of_its_file(tmp_path: Path) -> None:
    """Items have core types, all that is shown is opaque, and exchanges are as the program declared them."""
    imported = import_records(tmp_path, rollout())
    assert imported.types() == [
        *("codex/session-meta", "user/message", "codex/turn-context", "turn/start", "codex/user-message"),
        *("codex/task-started", "user/message", "codex/reasoning", "tool/started", "tool/finished"),
        *("tool/started", "tool/finished", "codex/token-count", "codex/agent-message", "assistant/message"),
        *("codex/task-complete", "turn/end", "turn/start", "codex/task-started", "user/message", "tool/started"),
        *("codex/turn-aborted", "tool/finished", "turn/end"),
    ]
    assert imported.problems() == []
    assert [end["reason"] for end in imported.of_type("turn/end")] == ["completed", "aborted"]


def test_the_header_says_where_a_session_comes_from(tmp_path: Path) -> None:
    """Key, directory, title, time of creation, origin and labels are those of the first record."""
    header = import_records(tmp_path, rollout()).headers[KEY]
    assert (header.cwd, header.title, header.parent_key) == ("/home/ines/harbour", "List the boats.", None)
    assert header.created == 1772614800000
    assert header.origin == {"tool": "codex", "version": "0.50.1", "file": "session.jsonl"}
    assert header.labels == {"imported": "codex", "branch": "main"}


def test_messages_and_calls_have_their_content(tmp_path: Path) -> None:
    """Text, model and ids are mapped, arguments are read from their text, a failed output says so."""
    imported = import_records(tmp_path, rollout())
    context, prompt, second = imported.of_type("user/message")
    assert (context["meta"], prompt["text"], second["text"]) == (True, "List the boats.", "Which is older?")
    (answer,) = imported.of_type("assistant/message")
    assert (answer["text"], answer["message_id"], answer["model"]) == ("Two.", "msg-1", "gpt-x")
    assert [(each["name"], each["arguments"]) for each in imported.of_type("tool/started")] == [
        ("shell", {"command": ["ls"], "timeout": 3}),
        ("apply_patch", {"input": "*** Begin Patch"}),
        ("shell", {"input": "not JSON"}),
    ]
    assert [(each["output"], each.get("error")) for each in imported.of_type("tool/finished")] == [
        ("anna\nbertha\n", None),
        ({"content": "no", "success": False}, "TOOL_FAILED"),
        (None, "TOOL_OUTCOME_UNKNOWN"),
    ]


def test_what_is_opaque_is_kept_whole(tmp_path: Path) -> None:
    """Every record that has no core type is an event's data, member for member."""
    records = [*rollout(), codex("zz-future-kind", 20, {"a": [1]}), item(21, "web_search_call", status="completed")]
    imported = import_records(tmp_path, records)
    kept = [json.dumps(event.data) for event in imported.only() if event.type.startswith("codex/")]
    opaque = [each for each in records if json.dumps(each) in kept]
    assert len(kept) == len(opaque) == 12
    assert imported.types()[-2:] == ["codex/zz-future-kind", "codex/web-search-call"]


def test_the_first_record_names_a_forked_session(tmp_path: Path) -> None:
    """The parent's own first record, copied behind it, changes nothing; what was before the fork is marked."""
    records = [
        meta(second=50, forked_from_id=PARENT),
        meta(PARENT),
        said(1, "user", "old"),
        said(2, "assistant", "old answer"),
        said(51, "user", "new"),
    ]
    imported = import_records(tmp_path, records)
    assert list(imported.headers) == [KEY]
    assert imported.headers[KEY].parent_key == f"codex:{PARENT}"
    messages = [event.data for event in imported.only() if event.type.endswith("/message")]
    assert [(each["text"], each.get("replayed", False)) for each in messages] == [
        ("old", True),
        ("old answer", True),
        ("new", False),
    ]


@pytest.mark.parametrize(
    "members",
    [
        {"parent_thread_id": PARENT},
        {"source": {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1}}}},
    ],
)
def test_a_sub_agents_session_names_its_parent(tmp_path: Path, members: Json) -> None:
    """Both ways of saying who started it are understood, and nothing counts as replayed."""
    imported = import_records(tmp_path, [meta(**members), said(1, "user", "go")])
    assert imported.headers[KEY].parent_key == f"codex:{PARENT}"
    assert "replayed" not in imported.of_type("user/message")[0]


def test_a_damaged_first_record_does_not_give_a_fork_its_parents_name(tmp_path: Path) -> None:
    """The file's name says whose it is when its first record can't."""
    path = tmp_path / f"rollout-2026-03-04T09-00-00-{CODEX_SESSION}.jsonl"
    path.write_bytes(encoded([b'{"timestamp":"2026', meta(PARENT), said(1, "user", "go")]))
    assert list(import_path(path).events) == [KEY]


def test_a_good_first_record_names_the_session_whatever_the_file_is_called(tmp_path: Path) -> None:
    """A file that was copied under another session's name is what it says itself."""
    path = tmp_path / f"rollout-2026-03-04T09-00-00-{PARENT}.jsonl"
    path.write_bytes(encoded([meta(), meta(PARENT), said(1, "user", "go")]))
    assert list(import_path(path).events) == [KEY]


def test_a_file_without_a_first_record_is_named_by_its_name(tmp_path: Path) -> None:
    """By the id in it if it has one, else by all of it."""
    for name, identity in ((f"rollout-x-{CODEX_SESSION}", CODEX_SESSION), ("kept", "kept")):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(encoded([said(1, "user", "go")]))
        assert list(import_path(path).events) == [f"codex:{identity}"]


def test_the_given_name_of_a_thread_is_the_title(tmp_path: Path) -> None:
    """The latest one."""
    names = [shown(n, "thread_name_updated", thread_name=name) for n, name in enumerate(["One", "Two"], 20)]
    assert import_records(tmp_path, [*rollout(), *names]).headers[KEY].title == "Two"


def test_an_item_with_an_id_that_comes_again_counts_once(tmp_path: Path) -> None:
    """Unchanged it is a repetition, whenever it is written again; with other content it is another one."""
    first = said(5, "assistant", "yes", id="msg-9")
    records = [*rollout(), first, said(6, "assistant", "yes", id="msg-9"), said(7, "assistant", "no", id="msg-9")]
    imported = import_records(tmp_path, records)
    assert [each["text"] for each in imported.of_type("assistant/message")] == ["Two.", "yes", "no"]
    assert imported.report.skipped == 1


def test_equal_records_without_an_id_are_all_kept(tmp_path: Path) -> None:
    """Nothing says that they are the same one."""
    records = [meta(), said(1, "user", "go on"), said(1, "user", "go on"), said(1, "user", "go on")]
    assert len(import_records(tmp_path, records).of_type("user/message")) == 3


def test_without_declarations_a_prompt_after_an_answer_begins_an_exchange(tmp_path: Path) -> None:
    """Older files only hold items; two prompts without an answer between them are of one exchange."""
    records = [
        meta(),
        said(1, "user", "go"),
        said(2, "user", "and be quick"),
        said(3, "assistant", "done"),
        said(4, "user", "again"),
        said(5, "assistant", "done again"),
    ]
    imported = import_records(tmp_path, records)
    assert imported.types() == [
        *("codex/session-meta", "turn/start", "user/message", "user/message", "assistant/message", "turn/end"),
        *("turn/start", "user/message", "assistant/message", "turn/end"),
    ]
    assert [end["reason"] for end in imported.of_type("turn/end")] == ["completed", "completed"]


def test_a_prompt_steers_an_exchange_that_was_declared(tmp_path: Path) -> None:
    """It begins none while the task goes on."""
    records = [
        meta(),
        shown(1, "task_started"),
        said(1, "user", "go"),
        said(2, "assistant", "…"),
        said(3, "user", "left!"),
        said(4, "assistant", "ok"),
        shown(5, "task_complete"),
    ]
    assert import_records(tmp_path, records).types().count("turn/start") == 1


def test_an_exchange_that_was_never_completed_is_interrupted(tmp_path: Path) -> None:
    """Where the next one is declared to begin, and at the end of the file."""
    records = [meta()]
    for second in (1, 3):
        records += [shown(second, "task_started"), said(second, "user", "go"), said(second + 1, "assistant", "…")]
    ends = import_records(tmp_path, records).of_type("turn/end")
    assert [end["reason"] for end in ends] == ["interrupted", "interrupted"]


def test_a_failed_exchange_says_why(tmp_path: Path) -> None:
    """Its error has kind and message."""
    error = {"message": "no quota", "codex_error_info": "usage_limit"}
    records = [meta(), shown(1, "task_started"), shown(2, "task_complete", error=error)]
    (end,) = import_records(tmp_path, records).of_type("turn/end")
    assert end == {"turn": 1, "reason": "error", "error": {"type": "usage_limit", "message": "no quota"}}


def test_an_output_after_the_abort_is_a_late_result(tmp_path: Path) -> None:
    """The call was closed where the exchange was broken off."""
    records = [*rollout(), item(14, "function_call_output", call_id="call-3", output="late")]
    (late,) = import_records(tmp_path, records).of_type("tool/late-result")
    assert (late["id"], late["output"]) == ("call-3", "late")


def test_older_files_without_payloads_are_read(tmp_path: Path) -> None:
    """Bare items behind a bare first record give the same events."""
    records: list[Any] = [
        {"id": CODEX_SESSION, "timestamp": time_text(0), "instructions": None, "git": {"branch": "old"}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "ok"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ]
    imported = import_records(tmp_path, records)
    assert imported.headers[KEY].labels["branch"] == "old"
    assert imported.types() == [
        *("codex/session-meta", "codex/unknown", "turn/start", "user/message", "tool/started", "tool/finished"),
        *("assistant/message", "turn/end"),
    ]
    assert imported.of_type("tool/started")[0]["arguments"] == {}


@pytest.mark.parametrize(
    "record",
    [
        item(1, "function_call", name="shell", arguments="{}"),
        item(1, "function_call", call_id=7, name="shell", arguments="{}"),
        item(1, "function_call_output", output="whose?"),
        item(1, "message", role="user"),
        item(1, "message", role="developer", content=[]),
        item(1, "message", content=[]),
        codex("event_msg", 1, {}),
        {"timestamp": time_text(1), "type": "response_item"},
        {"timestamp": time_text(1), "type": "event_msg", "payload": [1]},
    ],
)
def test_odd_records_are_kept_whole(tmp_path: Path, record: Json) -> None:
    """A record that lacks what its kind needs is opaque."""
    imported = import_records(tmp_path, [meta(), record])
    assert [event.data for event in imported.only() if event.line == 2] == [record]


def test_arguments_keep_what_a_double_cannot_hold(tmp_path: Path) -> None:
    """Arguments that JSON readers disagree on stay the text that they were."""
    arguments = '{"n":12345678901234567890123}'
    imported = import_records(tmp_path, [meta(), item(1, "function_call", call_id="c", arguments=arguments)])
    assert imported.of_type("tool/started")[0]["arguments"] == {"input": arguments}
