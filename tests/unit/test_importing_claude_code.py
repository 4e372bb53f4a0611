"""Unit: what records of Claude Code become, and that nothing of them is lost, doubled or made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..session_files import (
    SESSION,
    assistant,
    call,
    claude,
    conversation,
    encoded,
    import_path,
    import_records,
    result,
    text,
    time_text,
    user,
)

KEY = f"claude-code:{SESSION}"


def test_a_session_becomes_events_in_the_order_of_its_file(tmp_path: Path) -> None:
    """Prompts, answers, calls and results have their core types, the rest is opaque, and exchanges are closed."""
    imported = import_records(tmp_path, conversation())
    assert imported.types() == [
        *("turn/start", "user/message", "assistant/message", "assistant/message", "assistant/message"),
        *("tool/started", "claude-code/progress", "tool/finished", "assistant/message", "turn/end"),
        *("turn/start", "user/message", "assistant/message", "tool/started", "tool/finished", "assistant/message"),
        *("claude-code/summary", "turn/end"),
    ]
    assert imported.problems() == []
    assert [end["reason"] for end in imported.of_type("turn/end")] == ["completed", "completed"]


def test_the_header_says_where_a_session_comes_from(tmp_path: Path) -> None:
    """Key, directory, title, time of creation, origin and labels are those of the records."""
    header = import_records(tmp_path, conversation()).headers[KEY]
    assert (header.cwd, header.title, header.parent_key) == ("/home/ines/harbour", "Boats in the harbour", None)
    assert header.created == 1772614800000
    assert header.origin == {"tool": "claude-code", "version": "2.0.14", "file": "session.jsonl"}
    assert header.labels == {"imported": "claude-code", "branch": "main"}


def test_messages_keep_text_and_every_block(tmp_path: Path) -> None:
    """Plain text is text alone; other blocks stand in the content, calls there by their id only."""
    imported = import_records(tmp_path, conversation())
    first, second = imported.of_type("user/message")
    assert (first["text"], second["text"]) == ("List the boats.", "Which is older?")
    assert "content" not in first | second
    answers = imported.of_type("assistant/message")
    assert answers[0]["content"] == [{"type": "thinking", "thinking": "ls, then", "signature": "s"}]
    assert answers[1]["text"] == "I'll look."
    assert answers[2]["content"] == [{"type": "tool_use", "id": "toolu-1"}]
    assert answers[4]["content"] == [text("I'll ask the register."), {"type": "tool_use", "id": "toolu-2"}]
    assert {answer["model"] for answer in answers} == {"opus-x"}


def test_calls_and_results_are_paired_by_id(tmp_path: Path) -> None:
    """A call has name and arguments, its result the output, and says if it failed."""
    imported = import_records(tmp_path, conversation())
    started, finished = imported.of_type("tool/started"), imported.of_type("tool/finished")
    assert started[0] == {"id": "toolu-1", "name": "Bash", "arguments": {"command": "ls"}, "effect": "once"}
    assert (finished[0]["output"], finished[0].get("error")) == ("anna\nbertha\n", None)
    assert (finished[1]["output"], finished[1]["error"]) == ([text("1911")], "TOOL_FAILED")


def test_nothing_of_a_record_is_lost(tmp_path: Path) -> None:
    """Members without a place of their own stay in the source of the record's first event."""
    imported = import_records(tmp_path, conversation())
    source = imported.of_type("tool/finished")[0]["source"]
    assert source["toolUseResult"] == {"stdout": "anna\nbertha\n"}
    assert (source["uuid"], source["timestamp"]) == ("uuid-5", time_text(5))
    assert imported.of_type("assistant/message")[0]["source"]["requestId"] == "req-1"


def test_the_usage_of_one_answer_in_several_records_counts_once(tmp_path: Path) -> None:
    """Three records of one answer that all report its usage: one event has it, three have the blocks."""
    answers = import_records(tmp_path, conversation()).of_type("assistant/message")[:3]
    assert {answer["message_id"] for answer in answers} == {"msg-a"}
    assert ["usage" in answer for answer in answers] == [True, False, False]
    assert answers[0]["usage"] == {"input_tokens": 7, "output_tokens": 90, "cache": {"read": 1000}}


def test_usage_that_grows_while_an_answer_is_written_sums_up_to_the_last(tmp_path: Path) -> None:
    """A later record of the answer adds what the earlier ones had not counted, nested counters too."""
    usages = [
        {"input_tokens": 3, "output_tokens": 1, "tier": "standard", "cache": {"read": 5, "written": 0}},
        {"input_tokens": 3, "output_tokens": 1, "tier": "standard", "cache": {"read": 5, "written": 0}},
        {"input_tokens": 3, "output_tokens": 263, "tier": "standard", "cache": {"read": 5, "written": 8}},
    ]
    records = [user(0, "go")] + [
        assistant(n, text(f"part {n}"), id="msg-a", usage=usage) for n, usage in enumerate(usages, 1)
    ]
    answers = import_records(tmp_path, records).of_type("assistant/message")
    assert [answer.get("usage") for answer in answers] == [
        usages[0],
        None,
        {"output_tokens": 262, "cache": {"written": 8}},
    ]


def test_a_history_that_is_replayed_with_new_ids_counts_once(tmp_path: Path) -> None:
    """Records that say the same under new ids are skipped, and totals stay as they were."""
    records = conversation()
    replayed = [
        each | {"uuid": f"again-{n}"} for n, each in enumerate(records) if each["type"] in ("user", "assistant")
    ]
    once, twice = import_records(tmp_path, records), import_records(tmp_path, records + replayed)
    assert [event.key for event in twice.only()] == [event.key for event in once.only()]
    assert twice.report.skipped == len(replayed)


def test_a_replay_with_a_higher_final_usage_adds_the_difference(tmp_path: Path) -> None:
    """The last usage of an answer wins, also when its blocks are known already."""
    first = assistant(1, text("yes"), id="msg-a", usage={"output_tokens": 2})
    final = first | {"uuid": "again", "message": first["message"] | {"usage": {"output_tokens": 50}}}
    answers = import_records(tmp_path, [user(0, "ok?"), first, final]).of_type("assistant/message")
    assert [(answer["text"], answer["usage"]["output_tokens"]) for answer in answers] == [("yes", 2), ("", 48)]


def test_usage_that_is_reported_lower_later_takes_nothing_back(tmp_path: Path) -> None:
    """Counters only grow: what was counted stays, and only what exceeds it is added."""
    records = [assistant(n, text(str(n)), id="msg-a", usage={"output_tokens": t}) for n, t in enumerate([5, 2, 6])]
    answers = import_records(tmp_path, records).of_type("assistant/message")
    assert [answer.get("usage") for answer in answers] == [{"output_tokens": 5}, None, {"output_tokens": 1}]


def test_a_result_that_is_written_again_counts_once(tmp_path: Path) -> None:
    """Also in a record that says more than the first; another output of the same call is a late result, once."""
    records = [user(0, "go"), assistant(1, call("toolu-1"))]
    outputs = ["done", "done", "no, this", "done", "no, this"]
    records += [user(n, [result("toolu-1", output)], toolUseResult=n) for n, output in enumerate(outputs, 2)]
    imported = import_records(tmp_path, records)
    assert [each["output"] for each in imported.of_type("tool/finished")] == ["done"]
    assert [each["output"] for each in imported.of_type("tool/late-result")] == ["no, this"]
    assert imported.report.skipped == 3


def test_an_opaque_record_written_twice_counts_once(tmp_path: Path) -> None:
    """The same bytes under the same id are a repetition; without an id they are two records."""
    progress, snapshot = claude("progress", 1), {"type": "file-history-snapshot", "messageId": "m"}
    imported = import_records(tmp_path, [user(0, "go"), progress, progress, snapshot, snapshot])
    assert imported.types().count("claude-code/progress") == 1
    assert imported.types().count("claude-code/file-history-snapshot") == 2


def test_the_same_prompt_said_twice_is_two_prompts(tmp_path: Path) -> None:
    """Only a record equal in all but its id is a repetition; at another time or after another record it's not."""
    imported = import_records(tmp_path, [user(0, "go on"), assistant(1, text("hm")), user(2, "go on")])
    assert len(imported.of_type("user/message")) == 2


def test_records_of_one_id_with_different_content_are_both_kept(tmp_path: Path) -> None:
    """An id that was used twice loses nothing; the very same bytes under it are a repetition."""
    records = [user(0, "one"), user(0, "two", parentUuid=None), user(0, "two", parentUuid=None)]
    imported = import_records(tmp_path, records)
    assert [each["text"] for each in imported.of_type("user/message")] == ["one", "two"]
    assert imported.report.skipped == 1


def test_a_call_without_a_result_is_closed_where_the_next_prompt_begins(tmp_path: Path) -> None:
    """Its outcome is unknown and its exchange interrupted; a result that comes after all is a late one."""
    records = [
        user(0, "go"),
        assistant(1, call("toolu-1"), call("toolu-2")),
        user(2, [result("toolu-2")]),
        user(3, "never mind"),
        user(4, [result("toolu-1", "too late")]),
    ]
    imported = import_records(tmp_path, records)
    assert [(each["id"], each.get("error")) for each in imported.of_type("tool/finished")] == [
        ("toolu-2", None),
        ("toolu-1", "TOOL_OUTCOME_UNKNOWN"),
    ]
    assert [end["reason"] for end in imported.of_type("turn/end")] == ["interrupted", "completed"]
    (late,) = imported.of_type("tool/late-result")
    assert (late["id"], late["output"]) == ("toolu-1", "too late")


def test_calls_are_paired_when_all_results_are_lost(tmp_path: Path) -> None:
    """Every call of a file without results gets one that says so."""
    records = [each for each in conversation() if "tool_result" not in json.dumps(each)]
    finished = import_records(tmp_path, records).of_type("tool/finished")
    assert [each["error"] for each in finished] == ["TOOL_OUTCOME_UNKNOWN"] * 2


def test_a_result_whose_call_is_missing_is_a_late_one(tmp_path: Path) -> None:
    """Nothing is made up to go with it, and it isn't lost."""
    imported = import_records(tmp_path, [user(0, "go"), user(1, [result("toolu-9", "who asked?")])])
    assert "tool/finished" not in imported.types()
    assert imported.of_type("tool/late-result")[0]["output"] == "who asked?"


def test_an_exchange_that_the_user_broke_off_is_aborted(tmp_path: Path) -> None:
    """It ends at the record that says so, which begins no exchange itself."""
    records = [user(0, "go"), assistant(1, call("toolu-1")), user(2, [text("[Request interrupted by user]")])]
    imported = import_records(tmp_path, records)
    assert imported.types()[-3:] == ["user/message", "tool/finished", "turn/end"]
    assert imported.of_type("turn/end") == [{"turn": 1, "reason": "aborted"}]


def test_what_a_sub_agent_was_told_to_break_off_ends_no_exchange(tmp_path: Path) -> None:
    """Its interruption is its own."""
    stop = user(1, [text("[Request interrupted by user]")], isSidechain=True)
    imported = import_records(tmp_path, [user(0, "go"), stop, assistant(2, text("done"))])
    assert imported.types() == ["turn/start", "user/message", "user/message", "assistant/message", "turn/end"]


def test_what_comes_with_a_result_begins_no_exchange(tmp_path: Path) -> None:
    """Results come first, then the words beside them; what else the record says stands once."""
    together = user(2, [text("and hurry"), result("toolu-1"), result("toolu-2")])
    imported = import_records(tmp_path, [user(0, "go"), assistant(1, call("toolu-1"), call("toolu-2")), together])
    assert imported.types()[-4:] == ["tool/finished", "tool/finished", "user/message", "turn/end"]
    assert imported.of_type("user/message")[1] == {"text": "and hurry"}
    assert ["source" in each for each in imported.of_type("tool/finished")] == [True, False]


def test_a_role_that_contradicts_the_type_is_kept(tmp_path: Path) -> None:
    """As when a key stands twice in a record and the last one counts."""
    odd = user(1, "said by whom?") | {"type": "assistant"}
    (answer,) = import_records(tmp_path, [user(0, "go"), odd]).of_type("assistant/message")
    assert answer["source"]["message"] == {"role": "user"}


@pytest.mark.parametrize(
    "aside",
    [
        user(2, "Caveat: …", isMeta=True),
        user(2, "This session is being continued.", isCompactSummary=True),
        user(2, "<local-command-stdout>ok</local-command-stdout>"),
        user(2, "Look into the sails.", isSidechain=True, parentUuid=None),
    ],
    ids=["meta", "compaction", "command output", "sub-agent"],
)
def test_what_nobody_typed_begins_no_exchange(tmp_path: Path, aside: dict[str, Any]) -> None:
    """It is kept as a message within the exchange."""
    imported = import_records(tmp_path, [user(0, "go"), assistant(1, text("…")), aside])
    assert imported.types().count("turn/start") == 1
    prompt, message = imported.of_type("user/message")
    assert (prompt.get("meta"), prompt.get("sidechain")) == (None, None)
    assert ("meta" in message) == ("isMeta" in aside or "isCompactSummary" in aside)
    assert ("sidechain" in message) == aside["isSidechain"]


def test_a_missing_parent_leaves_a_mark_and_loses_nothing(tmp_path: Path) -> None:
    """At three places the parent is nowhere: every record is kept, three are marked and reported."""
    records = [user(0, "go")] + [assistant(n, text(str(n))) for n in range(1, 10)]
    for n in (2, 5, 9):
        records[n]["parentUuid"] = f"nowhere-{n}"
    imported = import_records(tmp_path, records)
    answers = imported.of_type("assistant/message")
    assert [answer["text"] for answer in answers] == [str(n) for n in range(1, 10)]
    assert [answer["gap"] for answer in answers if "gap" in answer] == ["nowhere-2", "nowhere-5", "nowhere-9"]
    assert [line for line, why in imported.problems() if "parent" in why] == [3, 6, 10]


def test_progress_at_the_end_of_a_branch_takes_nothing_from_the_answers(tmp_path: Path) -> None:
    """Order is that of the file, so a forked chain of parents changes nothing."""
    records = [
        user(0, "u1"),
        assistant(1, text("a1")),
        user(2, "u2", parentUuid="uuid-1"),
        assistant(3, text("a2")),
        claude("progress", 4, parentUuid="uuid-1"),
    ]
    imported = import_records(tmp_path, records)
    messages = [event.data["text"] for event in imported.only() if event.type.endswith("/message")]
    assert messages == ["u1", "a1", "u2", "a2"]
    assert imported.problems() == []


def test_records_of_another_session_are_a_session_of_their_own(tmp_path: Path) -> None:
    """They are not mixed in, the place where they begin is reported once, and each session keeps its order."""
    strangers = [each | {"sessionId": "another"} if "sessionId" in each else each for each in conversation()]
    mixed = [record for pair in zip(conversation(), strangers, strict=True) for record in pair]
    imported = import_records(tmp_path, mixed)
    assert list(imported.events) == [KEY, "claude-code:another"]
    assert [line for line, why in imported.problems() if "another session" in why] == [2]
    alone = import_records(tmp_path, conversation()).types()
    assert [event.type for event in imported.events[KEY] if event.type != "claude-code/summary"] == [
        type for type in alone if type != "claude-code/summary"
    ]


def test_a_record_without_a_session_id_belongs_to_the_session_before_it(tmp_path: Path) -> None:
    """And to no other, though another session's records stand around it."""
    summary = {"type": "summary", "summary": "s", "leafUuid": "l"}
    imported = import_records(tmp_path, [user(0, "a"), user(1, "b", sessionId="another"), summary, user(2, "c")])
    assert "claude-code/summary" not in [event.type for event in imported.events[KEY]]
    assert [event.type for event in imported.events["claude-code:another"]].count("claude-code/summary") == 1


def test_two_sessions_on_one_line_whose_newline_was_lost_are_told_apart(tmp_path: Path) -> None:
    """Each record goes to its own session."""
    first, second = encoded([user(0, "mine")]).strip(), encoded([user(1, "yours", sessionId="another")]).strip()
    imported = import_records(tmp_path, [first + second])
    texts = {key: [e.data["text"] for e in events if "text" in e.data] for key, events in imported.events.items()}
    assert texts == {KEY: ["mine"], "claude-code:another": ["yours"]}


def test_a_sub_agents_own_file_is_a_child_session(tmp_path: Path) -> None:
    """Its records carry an agent's id; its key is its own and names its parent."""
    records = [
        user(0, "Count the masts.", isSidechain=True, agentId="a1b2"),
        assistant(1, text("Three."), isSidechain=True, agentId="a1b2"),
    ]
    imported = import_records(tmp_path, records)
    header = imported.headers[f"{KEY}/a1b2"]
    assert (header.parent_key, header.title) == (KEY, "Count the masts.")
    assert imported.types() == ["turn/start", "user/message", "assistant/message", "turn/end"]
    assert "sidechain" not in imported.of_type("user/message")[0]


def test_a_forked_session_names_what_it_was_forked_from(tmp_path: Path) -> None:
    """Lineage is kept; the copied records are the fork's own."""
    records = [user(0, "go", forkedFrom={"sessionId": "before", "messageUuid": "x"}), assistant(1, text("…"))]
    imported = import_records(tmp_path, records)
    assert imported.headers[KEY].parent_key == "claude-code:before"
    assert len(imported.only()) == 4


@pytest.mark.parametrize(
    ("more", "title"),
    [
        ([{"type": "ai-title", "aiTitle": "Made up", "sessionId": SESSION}], "Made up"),
        (
            [
                {"type": "custom-title", "customTitle": "Chosen", "sessionId": SESSION},
                {"type": "ai-title", "aiTitle": "Made up", "sessionId": SESSION},
            ],
            "Chosen",
        ),
        ([{"type": "summary", "summary": "Another day", "leafUuid": "not here"}], "List the boats."),
        ([], "List the boats."),
    ],
    ids=["made by the program", "chosen", "summary of another conversation", "none"],
)
def test_the_title_is_the_best_there_is(tmp_path: Path, more: list[dict[str, Any]], title: str) -> None:
    """A chosen title over a made one, over a summary of this conversation, over the first prompt."""
    assert import_records(tmp_path, [*more, user(0, "List\n the  boats.")]).headers[KEY].title == title


def test_a_command_makes_a_readable_title(tmp_path: Path) -> None:
    """The mark-up around a command's name is left out."""
    said = "<command-message>…</command-message><command-name>/plan</command-name>\n<command-args>a dock</command-args>"
    assert import_records(tmp_path, [user(0, said)]).headers[KEY].title == "/plan a dock"


def test_records_before_the_first_session_id_belong_to_it(tmp_path: Path) -> None:
    """A summary at the beginning of the file goes to the session that follows."""
    imported = import_records(tmp_path, [{"type": "summary", "summary": "s", "leafUuid": "l"}, user(0, "go")])
    assert list(imported.events) == [KEY]
    assert imported.types()[0] == "claude-code/summary"


def test_a_file_without_any_session_id_is_named_by_its_name(tmp_path: Path) -> None:
    """Claude Code names its files by the session."""
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(encoded([{"type": "summary", "summary": "s", "leafUuid": "l"}]))
    assert list(import_path(path).events) == [KEY]


@pytest.mark.parametrize(
    "record",
    [
        {"type": "zz-future-kind", "v": 9, "payload": {"a": [1, None, 2.5]}, "sessionId": SESSION},
        claude("user", 1, message="error"),
        claude("user", 1, message={"role": "user", "contenst": []}),
        claude("assistant", 1),
        claude("system", 1, subtype="compact_boundary", content="Compacted"),
        {"silly": "this"},
        {"type": 5, "sessionId": SESSION},
    ],
)
def test_what_is_unknown_or_odd_is_kept_whole(tmp_path: Path, record: dict[str, Any]) -> None:
    """The event's data is the record, member for member, in its order."""
    imported = import_records(tmp_path, [user(0, "go"), record])
    (event,) = [each for each in imported.only() if each.type.startswith("claude-code/")]
    assert json.dumps(event.data) == json.dumps(record)


@pytest.mark.parametrize(
    ("kind", "type"),
    [("Zz Future_Kind!", "zz-future-kind"), ("…", "unknown"), ("x" * 500, "x" * 64), ("queue-operation", None)],
)
def test_opaque_types_are_made_of_plain_words(tmp_path: Path, kind: str, type: str | None) -> None:
    """Whatever a record calls itself, the type is lower-case letters, digits and dashes."""
    imported = import_records(tmp_path, [user(0, "go"), claude(kind, 1)])
    assert f"claude-code/{type or kind}" in imported.types()


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([time_text(5), time_text(1)], [5, 1]),
        ([time_text(5), None], [5, 5]),
        ([time_text(5), ""], [5, 5]),
        ([time_text(5), "2026-13-45T99:00:00Z"], [5, 5]),
        ([time_text(5), 1772614807.5], [5, 7.5]),
        ([time_text(5), 1772614808000], [5, 8]),
        ([time_text(5), "2026-03-04T10:00:09+01:00"], [5, 9]),
        ([time_text(5), -1], [5, 5]),
        ([time_text(5), True], [5, 5]),
        ([time_text(5), 1e300], [5, 5]),
        ([None, time_text(5)], [None, 5]),
    ],
)
def test_bad_times_lose_nothing_and_order_nothing(tmp_path: Path, times: list[Any], expected: list[Any]) -> None:
    """A bad time is the last good one; events stand in the order of the file whatever their times say."""
    imported = import_records(tmp_path, [user(n, f"prompt {n}", timestamp=time) for n, time in enumerate(times)])
    events = [event for event in imported.only() if event.type == "user/message"]
    assert [event.data["text"] for event in events] == ["prompt 0", "prompt 1"]
    start = 1772614800000
    assert [event.time_ms for event in events] == [None if s is None else start + int(s * 1000) for s in expected]


def test_equal_times_keep_every_record_in_order(tmp_path: Path) -> None:
    """A thousand records of one millisecond stay a thousand, in order."""
    records = [user(0, "go")] + [assistant(n, text(str(n)), timestamp=time_text(0)) for n in range(1, 1000)]
    answers = import_records(tmp_path, records).of_type("assistant/message")
    assert [answer["text"] for answer in answers] == [str(n) for n in range(1, 1000)]


@pytest.mark.parametrize("cwd", ["d:\\x\\p", "/p/외주", "/p/a-b/c", "\\\\host\\share"])
def test_a_directory_is_kept_as_it_was_spelled(tmp_path: Path, cwd: str) -> None:
    """No system's paths are taken apart or rewritten."""
    assert import_records(tmp_path, [user(0, "go", cwd=cwd)]).headers[KEY].cwd == cwd


@pytest.mark.parametrize("session", ["x" * 5000, "line\nbreak"])
def test_an_odd_session_id_makes_a_plain_key(tmp_path: Path, session: str) -> None:
    """A key is short and printable, and the same at every import."""
    keys = [list(import_records(tmp_path, [user(0, "go", sessionId=session)]).events) for _ in range(2)]
    assert keys[0] == keys[1]
    assert keys[0][0].isprintable()
    assert len(keys[0][0]) < 100


def test_odd_content_is_taken_as_it_comes(tmp_path: Path) -> None:
    """Blocks that are text, numbers or nothing, and calls without a name or an id, are kept in the content."""
    odd: list[Any] = [
        "plain",
        5,
        None,
        {"type": "tool_use", "name": "X"},
        {"type": "tool_use", "id": "t", "input": [1]},
    ]
    imported = import_records(tmp_path, [user(0, ["a", "b"]), assistant(1, *odd), user(2, [result("t")])])
    assert imported.of_type("user/message")[0]["text"] == "a\nb"
    assert imported.of_type("assistant/message")[0]["content"] == [*odd[:4], {"type": "tool_use", "id": "t"}]
    started = {"id": "t", "name": "unknown", "arguments": {"input": [1]}, "effect": "once"}
    assert imported.of_type("tool/started") == [started]
