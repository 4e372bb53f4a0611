"""Unit: what a model is to see of a session, folded from its events, however they stand there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.actors.reading.messages import WAITING_MAX, Message, MessageFold
from turnkeeper.actors.records import Event
from turnkeeper.storage.requests import Gap

Said = tuple[str, dict[str, Any]]
"""An event's type and data."""

UNKNOWN = {"output": None, "error": "TOOL_OUTCOME_UNKNOWN"}
NOT_STARTED = {"output": None, "error": "TOOL_NOT_STARTED"}
NONE = "a=TOOL_NOT_STARTED"


def numbered(log: Iterable[Said]) -> list[Event]:
    """Number events from 0."""
    return [Event(1, "a", seq, type, data, 0) for seq, (type, data) in enumerate(log)]


def folded(log: Iterable[Said]) -> list[Message]:
    """Fold a whole log."""
    fold = MessageFold()
    messages = [message for event in numbered(log) for message in fold.fold(event)]
    return messages + fold.end()


def shown(log: Iterable[Said]) -> list[str]:
    """Tell the messages of a log in short: user, assistant with its calls, results."""
    return [_in_short(message) for message in folded(log)]


def _in_short(message: Message) -> str:
    if message["role"] == "user":
        return f"u:{message['text']}"
    if message["role"] == "assistant":
        return f"a:{message['text']}({','.join(call['id'] for call in message['tool_calls'])})"
    return f"{message['id']}={message.get('error') or message['output']}"


def user(text: str) -> Said:
    """Say something as a person."""
    return "user/message", {"text": text}


def answer(text: str, *calls: str) -> Said:
    """Answer as a model, with calls."""
    return "assistant/message", {"text": text, "tool_calls": [{"id": id, "name": "bash"} for id in calls]}


def chunk(text: str, **more: str) -> Said:
    """Stream a piece of an answer."""
    return "assistant/chunk", {"text": text, **more}


def started(id: str) -> Said:
    """Begin a call."""
    return "tool/started", {"id": id, "name": "bash", "arguments": {"of": id}}


def finished(id: str, output: Any = "ok", **more: str) -> Said:
    """Give a call's result."""
    return "tool/finished", {"id": id, "output": output, **more}


START: Said = ("turn/start", {"turn": 1})
END: Said = ("turn/end", {"turn": 1, "reason": "completed"})


# -- What a message has


def test_a_turn_becomes_its_messages() -> None:
    """Roles, numbers and members; a call gets what its message and its start say of it."""
    call = {"id": "a", "name": "bash", "arguments": {"cmd": "ls"}}
    log: list[Said] = [
        START,
        ("user/message", {"text": "look", "content": [{"image": 1}], "mine": True}),
        ("assistant/message", {"text": "yes", "tool_calls": [call], "usage": {"input_tokens": 3}}),
        ("tool/started", {"id": "a", "name": "bash", "arguments": {"other": 1}, "effect": "read"}),
        ("my/note", {"text": "no message"}),
        ("tool/finished", {"id": "a", "output": ["x"], "error": "TOOL_FAILED"}),
        ("assistant/message", {"text": "done"}),
        END,
    ]
    assert folded(log) == [
        {"role": "user", "seq": 1, "text": "look", "content": [{"image": 1}], "mine": True},
        {"role": "assistant", "seq": 2, "text": "yes", "tool_calls": [call], "usage": {"input_tokens": 3}},
        {"role": "tool", "seq": 5, "id": "a", "name": "bash", "output": ["x"], "error": "TOOL_FAILED"},
        {"role": "assistant", "seq": 6, "text": "done", "tool_calls": []},
    ]


def test_what_an_import_adds_is_left_out() -> None:
    """The record it was made from, its key, and the messages and calls of a sub-agent in the middle."""
    aside = {"sidechain": True}
    log: list[Said] = [
        ("user/message", {"text": "one", "source": {"x": 1}, "import_key": "k", "gap": "two are missing"}),
        ("user/message", {"text": "aside", **aside}),
        ("assistant/message", {"text": "aside", **aside}),
        ("tool/started", {"id": "a", "name": "bash", "arguments": {}, **aside}),
        ("tool/finished", {"id": "a", "output": "x", **aside}),
        ("claude-code/progress", {"text": "no"}),
    ]
    assert folded(log) == [{"role": "user", "seq": 0, "text": "one", "gap": "two are missing"}]


def test_an_event_that_is_formed_oddly_harms_nothing() -> None:
    """Logs hold what other versions and programs wrote: text that is none is empty, a call without an id is none."""
    log: list[Said] = [
        ("user/message", {"text": 7}),
        ("assistant/message", {"tool_calls": [7, {"name": "x"}, {"id": 5}, {"id": "a", "name": None}]}),
        ("assistant/message", {"text": None, "tool_calls": "abc"}),
        ("assistant/chunk", {"text": 7}),
        ("tool/started", {"name": "x"}),
        ("tool/finished", {"id": ["a"]}),
        ("tool/finished", {"id": "a"}),
    ]
    assert shown(log) == ["u:", "a:(a)", "a=None", "a:()"]


def test_events_that_cant_be_read_are_a_message_of_their_own() -> None:
    """It says which and why, in its place, behind the results of calls that were open."""
    fold = MessageFold()
    log = numbered([answer("x", "a"), started("a")])
    messages = [message for event in log for message in fold.fold(event)]
    messages += fold.note_gap(Gap(2, 3, "bytes are bad", "f", 7))
    messages += fold.fold(Event(1, "a", 5, "tool/finished", {"id": "a", "output": 1}, 0))
    assert [message["role"] for message in messages] == ["assistant", "tool", "gap"]
    assert messages[-1] == {"role": "gap", "seq": 2, "events": 3, "text": "3 events are missing here: bytes are bad"}


# -- Calls and results


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ([answer("", "a", "b"), finished("b", 2), finished("a", 1)], ["a:(a,b)", "a=1", "b=2"]),
        ([answer("", "a"), started("a"), user("wait"), finished("a", 1)], ["a:(a)", "a=1", "u:wait"]),
        ([answer("x", "a"), answer("y", "b"), finished("b", 2), finished("a", 1)], ["a:x(a)", "a=1", "a:y(b)", "b=2"]),
        ([answer("", "a"), finished("a", 1), finished("a", 2)], ["a:(a)", "a=1"]),
        ([answer("", "a"), finished("a", 1), ("tool/late-result", finished("a", 2)[1])], ["a:(a)", "a=1"]),
        ([finished("a", 1), user("x")], ["u:x"]),
        ([answer("", "a", "a"), finished("a", 1)], ["a:(a)", "a=1"]),
        ([answer("", "a"), answer("", "a"), finished("a", 1)], ["a:(a)", "a=1", "a:()"]),
        ([answer("", "a"), finished("a", 1), answer("", "a"), finished("a", 2)], ["a:(a)", "a=1", "a:()"]),
        ([answer("x", "a"), finished("a", 1), started("a"), finished("a", 2)], ["a:x(a)", "a=1", "a:(a)", "a=2"]),
        ([answer("x", "a"), finished("a", 1), END, START, answer("", "a"), END], ["a:x(a)", "a=1", "a:(a)", NONE]),
        ([finished("a", 1), started("a"), END, answer("", "a")], ["a:(a)", "a=TOOL_OUTCOME_UNKNOWN", "a:(a)", NONE]),
    ],
    ids=str,
)
def test_each_call_has_its_one_result_behind_its_message(log: list[Said], expected: list[str]) -> None:
    """In the calls' order; whatever came in between goes behind, a second result goes, a used id may come again."""
    assert shown(log) == expected


@pytest.mark.parametrize("end", [[], [END], [START], [END, finished("a", "late")]], ids=["log", "end", "start", "late"])
def test_a_call_without_a_result_gets_the_error_that_closing_would_give(end: list[Said]) -> None:
    """By whether its body had begun; at a turn's end, at the next one's start, or where the log ends."""
    messages = folded([answer("", "a", "b"), started("a"), *end])
    assert messages[1:] == [
        {"role": "tool", "seq": None, "id": "a", "name": "bash", **UNKNOWN},
        {"role": "tool", "seq": None, "id": "b", "name": "bash", **NOT_STARTED},
    ]


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ([started("a"), finished("a", 1)], ["a:(a)", "a=1"]),
        ([answer("x"), started("a"), started("b"), finished("b", 2), finished("a", 1)], ["a:x(a,b)", "a=1", "b=2"]),
        ([started("a"), finished("a", 1), started("b"), finished("b", 2)], ["a:(a)", "a=1", "a:(b)", "b=2"]),
        ([answer("x"), user("y"), started("a"), finished("a", 1)], ["a:x()", "u:y", "a:(a)", "a=1"]),
        ([started("a"), answer("x", "a", "b"), finished("a", 1), finished("b", 2)], ["a:x(a,b)", "a=1", "b=2"]),
        ([started("a"), answer("x"), finished("a", 1)], ["a:x(a)", "a=1"]),
        ([started("a"), answer("x", "b"), finished("b", 2), finished("a", 1)], ["a:(a)", "a=1", "a:x(b)", "b=2"]),
        ([started("a"), finished("a", 1), answer("x", "a")], ["a:x(a)", "a=1"]),
        ([started("a"), finished("a", 1), answer("x")], ["a:(a)", "a=1", "a:x()"]),
        ([started("a"), finished("a", 1), user("y"), answer("x", "a")], ["a:(a)", "a=1", "u:y", "a:x()"]),
    ],
    ids=str,
)
def test_a_call_that_no_message_named_belongs_to_the_one_before_it(log: list[Said], expected: list[str]) -> None:
    """If nothing but calls came since; else to a message of its own, which may still get its text."""
    assert shown(log) == expected


# -- Streamed text


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ([chunk("Hel"), chunk("lo"), answer("Hello")], ["a:Hello()"]),
        ([chunk("Hel"), chunk("lo")], ["a:Hello()"]),
        ([chunk("Hel"), END, START, answer("Anew")], ["a:Hel()", "a:Anew()"]),
        ([chunk("Hel"), user("stop"), answer("ok")], ["a:Hel()", "u:stop", "a:ok()"]),
        ([chunk("I run"), started("a"), finished("a", 1), chunk("fine")], ["a:I run(a)", "a=1", "a:fine()"]),
        ([chunk("I run"), started("a"), answer("I run it", "a"), finished("a", 1)], ["a:I run it(a)", "a=1"]),
        ([chunk("I r"), started("a"), finished("a", 1), answer("I run it", "a")], ["a:I run it(a)", "a=1"]),
        ([chunk("hmm", channel="thinking"), chunk("yes", channel="text")], ["a:yes()"]),
        ([answer("one"), chunk("two")], ["a:one()", "a:two()"]),
    ],
    ids=str,
)
def test_streamed_text_is_a_message_unless_its_message_follows(log: list[Said], expected: list[str]) -> None:
    """Joined, up to whatever else came; other channels, such as thinking, are no answer."""
    assert shown(log) == expected


# -- Any log


ids = st.sampled_from("abc")
texts = st.sampled_from(["", "x", "yy"])
said = st.one_of(
    st.builds(user, texts),
    st.builds(lambda text, calls: answer(text, *calls), texts, st.lists(ids, max_size=3)),
    st.builds(chunk, texts),
    st.builds(started, ids),
    st.builds(finished, ids, st.integers(0, 9)),
    st.builds(lambda id: ("tool/late-result", {"id": id, "output": "late"}), ids),
    st.sampled_from([START, END, ("my/note", {"id": "a"})]),
)


def expected_results(log: list[Said]) -> list[tuple[str, int | None]]:
    """Say of each call in the log which event is its result, by nothing but which calls are open."""
    results: list[tuple[str, int | None]] = []
    waiting: dict[str, int] = {}
    answered: set[str] = set()
    for seq, (type, data) in enumerate(log):
        called = [call["id"] for call in data["tool_calls"]] if type == "assistant/message" else []
        for id in [data["id"]] if type == "tool/started" else called:
            if id not in waiting and (type == "tool/started" or id not in answered):
                waiting[id] = len(results)
                results.append((id, None))
                answered.discard(id)
        if type in ("tool/finished", "tool/late-result"):
            answered.add(data["id"])
            if data["id"] in waiting:
                results[waiting.pop(data["id"])] = (data["id"], seq)
        if type in ("turn/start", "turn/end"):
            waiting.clear()
        if type == "turn/start":
            answered.clear()
    return results


@given(st.lists(said, max_size=40))
def test_any_log_becomes_a_well_formed_conversation(log: list[Said]) -> None:
    """Every call has exactly its result, right behind its message; every message is there once; their order is kept."""
    messages = folded(log)
    assert_well_formed(messages)
    results = [(message["id"], message["seq"]) for message in messages if message["role"] == "tool"]
    assert sorted(results, key=str) == sorted(expected_results(log), key=str)
    for message in messages:
        if message["role"] == "tool" and message["seq"] is not None:
            assert message["output"] == log[message["seq"]][1]["output"]
    numbers = [message["seq"] for message in messages if message["role"] != "tool"]
    assert numbers == sorted(set(numbers))
    appended = [seq for seq, (type, _) in enumerate(log) if type in ("user/message", "assistant/message")]
    assert set(numbers) >= set(appended)
    assert all(log[seq][0] in ("assistant/chunk", "tool/started") for seq in set(numbers) - set(appended))


def assert_well_formed(messages: list[Message]) -> None:
    """Hold that each message's calls are followed by one result each, and that there are no other results."""
    due: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert due, "a result of no call"
            assert message["id"] == due.pop(0)
        else:
            assert not due, "a call without its result"
            due = [call["id"] for call in message.get("tool_calls", [])]
            assert len(set(due)) == len(due)
    assert not due


@pytest.mark.parametrize(
    "endless", [[user("x")], [answer("y", "b"), finished("b")], [started("c{n}")]], ids=["users", "answers", "calls"]
)
def test_a_result_that_never_comes_holds_up_a_bounded_part(endless: list[Said]) -> None:
    """Without turns that end, a call waits for so many messages or calls, then gets its error; the rest goes on."""
    fold, messages = MessageFold(), list[Message]()
    log: list[Said] = [answer("", "a"), started("a")]
    for n in range(3 * WAITING_MAX):
        log += [(type, {**data, "id": data["id"].format(n=n)} if "id" in data else data) for type, data in endless]
    for event in numbered(log):
        messages += fold.fold(event)
        assert len(fold._waiting) <= WAITING_MAX
        assert len(fold._open) <= WAITING_MAX + 1
    messages += fold.end()
    assert_well_formed(messages)
    assert messages[1] == {"role": "tool", "seq": None, "id": "a", "name": "bash", **UNKNOWN}
