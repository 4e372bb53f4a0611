"""End to end: text, numbers, times and chains that broke other programs' sessions, in ours; on either backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.actors.blocking import BlockingRuntime, BlockingSession, connect
from turnkeeper.actors.errors import InvalidValue
from turnkeeper.actors.importing import ImportReport, read_sessions
from turnkeeper.actors.records import Event
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.runtime.cli.import_storing import ImportedSessions

from ..command_line import CommandLine
from ..session_files import SESSION, Json, assistant, call, claude, compact, encoded, result, text, user

both_backends = pytest.mark.parametrize("kept_by", ["journal", "sqlite"])

UNKNOWN = "TOOL_OUTCOME_UNKNOWN"


@pytest.fixture
def place(tmp_path: Path, kept_by: str) -> str:
    """The store, as programs and commands name it."""
    return f"{'sqlite:' if kept_by == 'sqlite' else ''}{tmp_path}/store"


def ways_to_read(rt: BlockingRuntime, session: BlockingSession) -> list[list[Event]]:
    """Give a session's events in every way in which a program can have them."""
    session.flush()
    follower = rt.follow(session.id, after=0)
    return [
        list(session.read()),
        list(session.events()),
        list(rt.read(session.id)),
        list(rt.events(session.id)),
        [next(follower) for _ in range(session.head)],
    ]


# -- Text and numbers


@both_backends
def test_text_that_breaks_line_readers_is_one_event_and_comes_back(place: str) -> None:
    """Other separators, controls, NULs, quotes and characters beyond 16 bits: read, walked, followed, in messages."""
    odd = ["a\u2028b\u2029c\u0085d", "\x00\x0b\x0c\x1c\r\n", '"}\n{"stream":', "\U0001f680\ufeff\uffff", "\u0301e"]
    with connect(place) as rt, rt.create_session() as session:
        for each in odd:
            session.append("user/message", {"text": each, each: [each]})
        for events in ways_to_read(rt, session):
            assert [event.data for event in events] == [{"text": each, each: [each]} for each in odd]
        assert [message["text"] for message in session.messages()] == odd


@both_backends
def test_half_a_character_is_refused_or_mended_as_was_asked(place: str) -> None:
    """A lone surrogate can't be sent on: refused with its place, or U+FFFD; so messages can always be encoded."""
    cut = "cut emoji \ud83d here"
    with connect(place) as rt, rt.create_session() as session:
        with pytest.raises(InvalidValue, match=r"at \$\.text: a lone surrogate at character 10; text='replace' mends"):
            session.append("user/message", {"text": cut})
        session.append("user/message", {"text": cut, "large\udfff": ["x" * 300_000, "\udc00"]}, text="replace")
        session.append("tool/started", {"id": "c\ud83d", "name": "bash"}, text="replace")
        with session.turn():
            session.tool_started("a", "bash", {})
            session.tool_finished("a", "mended anyway?", error="no: \ufffd")
        messages = list(session.messages())
        assert messages[0]["text"] == "cut emoji \ufffd here"
        assert messages[0]["large\ufffd"][1] == "\ufffd"
        assert [message["id"] for message in messages if message["role"] == "tool"] == ["c\ufffd", "a"]
        str(messages).encode()


@both_backends
def test_numbers_keep_every_digit_or_are_refused(place: str) -> None:
    """All of 64 bits and any double pass exactly; what JSON readers would round or can't read is refused by path."""
    exact = [2**53 + 1, 2**63, 2**64 - 1, -(2**63), 0.1, 1e-320, -0.0, 1.7976931348623157e308]
    with connect(place) as rt, rt.create_session() as session:
        session.append("user/message", {"text": "", "numbers": exact})
        for wrong in (2**64, -(2**63) - 1, 10**5000, float("nan"), float("inf"), -float("inf")):
            with pytest.raises(InvalidValue, match=r"event 0 \(my/n\) at \$\.in\[1\]: "):
                session.append("my/n", {"in": [0, wrong]})
        for events in ways_to_read(rt, session):
            assert [repr(event.data["numbers"]) for event in events] == [repr(exact)]
        assert repr(next(session.messages())["numbers"]) == repr(exact)


@both_backends
def test_nesting_is_kept_to_its_limit_and_refused_beyond(place: str) -> None:
    """512 levels come back in every way, and any number above is an error and no crash."""
    with connect(place) as rt, rt.create_session() as session:
        deep: Any = []
        for _ in range(510):
            deep = [deep]
        session.append("user/message", {"text": "", "deep": deep})
        for levels in (1, 20_000):
            for _ in range(levels):
                deep = [deep]
            with pytest.raises(InvalidValue, match="nested over 512 levels deep"):
                session.append("my/n", {"text": "", "deep": deep})
        for events in ways_to_read(rt, session):
            assert len(events) == 1
        assert len(list(session.messages())) == 1


# -- Time


@both_backends
def test_times_order_nothing(place: str) -> None:
    """Events that say they are older, equally old or from another century stay in the order of their calls."""
    times = [1_700_000_000_000, 1_699_999_996_400, 0, 1_700_000_000_000, 4_000_000_000_000, None, 1_500_000_000_000]
    with connect(place) as rt, rt.create_session() as session:
        for n, time in enumerate(times):
            session.append("user/message", {"text": str(n)}, time=time)
            session.flush()
        for events in ways_to_read(rt, session):
            assert [event.data["text"] for event in events] == [str(n) for n in range(len(times))]
            assert [event.time for event, time in zip(events, times, strict=True) if time is not None] == [
                time for time in times if time is not None
            ]
        assert [message["text"] for message in session.messages()] == [str(n) for n in range(len(times))]


@both_backends
def test_a_thousand_events_of_one_millisecond_keep_their_order(place: str) -> None:
    """Numbers order, and nothing else."""
    with connect(place) as rt, rt.create_session() as session:
        for n in range(1000):
            session.append("my/n", {"n": n}, time=1_700_000_000_000)
        for events in ways_to_read(rt, session):
            assert [event.data["n"] for event in events] == list(range(1000))


# -- Chains and forks


@both_backends
def test_a_fork_holds_exactly_what_stood_before_its_number_and_once(place: str) -> None:
    """Counted in all events, hidden ones too; what was folded away twice is there twice, and not four times."""
    with connect(place) as rt, rt.create_session() as parent:
        for n in range(30):
            if n in (7, 15):
                parent.snapshot({"n": n})
            elif n % 3:
                parent.append("user/message", {"text": str(n)})
            else:
                parent.append("my/hidden", {"n": n})
        with parent.fork(at=10) as fork:
            events = [event for event in fork.events() if event.type != "session/forked"]
            assert [event.seq for event in events] == list(range(10))
            assert [message["seq"] for message in fork.messages()] == [1, 2, 4, 5, 8]
        with parent.fork(at=30) as fork, fork.fork() as grandchild:
            for each in (fork, grandchild):
                assert sum(event.type == "snapshot" for event in each.events()) == 2
                assert list(each.messages()) == list(parent.messages())


@both_backends
def test_an_interrupted_call_is_answered_once_and_for_all(place: str) -> None:
    """Calls that a crash left open get one result each, however often the session is opened after that."""
    seed: list[tuple[str, dict[str, Any]]] = [
        ("turn/start", {"turn": 1}),
        ("assistant/message", {"text": "", "tool_calls": [{"id": id, "name": "bash"} for id in "abc"]}),
        ("tool/started", {"id": "a", "name": "bash"}),
        ("tool/started", {"id": "b", "name": "bash"}),
        ("tool/finished", {"id": "b", "output": 1}),
    ]
    with connect(place) as rt:
        events = [Event(0, "x", seq, type, data, 0) for seq, (type, data) in enumerate(seed)]
        with rt.create_session(key="k", seed=events) as session:
            messages = list(session.messages())
        assert [(each["id"], each.get("error")) for each in messages[1:]] == [
            ("a", UNKNOWN),
            ("b", None),
            ("c", "TOOL_NOT_STARTED"),
        ]
        for _ in range(2):
            with rt.open_session("k") as session:
                assert (session.head, list(session.messages())) == (8, messages)


# -- Imports


def imported(tmp_path: Path, place: str, records: list[Json | bytes]) -> str:
    """Import a file of these records; give the session's id."""
    (tmp_path / "session.jsonl").write_bytes(encoded(records))

    async def store() -> str:
        async with open_runtime(place) as rt:
            report = ImportReport()
            sessions = ImportedSessions(place, rt, report, lambda: None)
            for each in read_sessions(tmp_path / "session.jsonl", report):
                await sessions.store(each)
            (row,) = await rt.sessions()
            return row.id

    return anyio.run(store)


def in_short(place: str, id: str) -> list[str]:
    """Tell a session's messages by role and text, and its results by call."""
    with connect(place) as rt:
        messages = list(rt.messages(id))
    str(messages).encode()
    return [
        f"{each['id']}={each.get('error') or each['output']}"
        if each["role"] == "tool"
        else f"{each['role'][0]}:{each['text']}"
        for each in messages
    ]


def test_a_record_of_an_unknown_type_is_kept_through_everything(tmp_path: Path) -> None:
    """Imported, listed, resumed, forked, exported as a line and appended again: its data is the same bytes."""
    unknown = {"type": "zz-future-kind", "v": 9, "payload": {"a": [1, 2.50]}, "timestamp": "2030-01-01T00:00:00.000Z"}
    place = str(tmp_path / "store")
    id = imported(tmp_path, place, [user(0, "one"), unknown | {"sessionId": SESSION}, user(2, "two")])
    cli = CommandLine(tmp_path / "store", tmp_path)

    def kept(session: str) -> bytes:
        out = cli.succeed("session", "show", session, "--json").out
        (line,) = [line for line in out.split("\n") if "zz-future-kind" in line]
        return line[line.index(',"type":') :].encode()

    first = kept(id)
    assert compact(unknown["payload"]) in first
    with connect(place) as rt:
        with rt.open_session(id) as session, session.fork() as fork:
            session.append("user/message", {"text": "resumed"})
        with rt.create_session() as copy:
            copy.append("note/first", {})
    event = '{"type":' + first.decode().removeprefix(',"type":')
    cli.succeed("session", "append", copy.id, stdin=event + "\n")
    assert kept(id) == kept(fork.id) == kept(copy.id) == first
    assert [message.split(":")[0] for message in in_short(place, id)] == ["u", "u", "u"]


@both_backends
def test_progress_between_the_records_cuts_no_conversation(tmp_path: Path, place: str) -> None:
    """Neither a branch of other records nor a parent that was never written hides what was said; the gap is marked."""
    records: list[Json | bytes] = [
        user(0, "u1"),
        assistant(1, text("a1")),
        user(3, "u2", parentUuid="uuid-1"),
        assistant(4, text("a2"), parentUuid="nowhere"),
        claude("progress", 2, data={"x": 1}, parentUuid="uuid-1"),
    ]
    id = imported(tmp_path, place, records)
    assert in_short(place, id) == ["u:u1", "a:a1", "u:u2", "a:a2"]
    with connect(place) as rt:
        assert [message["seq"] for message in rt.messages(id) if "gap" in message] == [
            event.seq for event in rt.events(id) if event.data.get("text") == "a2"
        ]


@both_backends
def test_imported_calls_without_results_are_answered(tmp_path: Path, place: str) -> None:
    """Three calls and one result: each has one in the messages, and opening again adds nothing."""
    records: list[Json | bytes] = [
        user(0, "do"),
        assistant(1, text("x"), call("t1"), call("t2"), call("t3")),
        user(2, [result("t2", "two")]),
        compact(user(3, "and @@ now")).replace(b"@@", rb"\ud83d"),
    ]
    id = imported(tmp_path, place, records)
    expected = ["u:do", "a:x", f"t1={UNKNOWN}", "t2=two", f"t3={UNKNOWN}", "u:and \ufffd now"]
    assert in_short(place, id) == expected
    with connect(place) as rt:
        heads = []
        for _ in range(3):
            with rt.open_session(id) as session:
                heads.append(session.head)
        assert heads == [len(rt.read(id))] * 3
    assert in_short(place, id) == expected
