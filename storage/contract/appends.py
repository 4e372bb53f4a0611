"""What is appended: all or nothing, refused alone, once however often it is sent, and nothing that JSON can't hold."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from ..backend import Backend
from ..errors import Conflict, Fenced, InvalidLine, InvalidValue, NotFound, TooLarge
from ..exact_json import decode_event, encode_event
from ..limits import BATCH_BYTES_MAX, DEPTH_MAX, INTEGER_MAX, INTEGER_MIN, LINE_BYTES_MAX, RUNS_MAX
from ..requests import Append, Appended, Grant, Patch, Request
from .asking import answer_to, appended, creation, event, events, granted, owner, raised, refused
from .looking import content, listed, page, reading, reopened
from .stores import StoreInContract


class AppendClauses:
    """Clauses B4, B5, B7, B8 and B13 to B15."""

    def test_b4_an_append_is_all_or_nothing(self, store: StoreInContract) -> None:
        """One wrong line of many, and none is stored; what was answered is whole after the writer's death."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        wrong = event("a", 1) + event("a", 2) + event("a", 4)
        assert refused(InvalidLine, answer_to(backend, Append("a", 1, 1, wrong, {"title": "t"}))).seq == 3
        assert "title" not in backend.row("a").summary
        appended(backend, Append("a", 1, 1, events("a", 1, 500), {"title": "t"}))
        store.die()
        backend = store.open()
        assert content(store, "a") == event("a", 0) + events("a", 1, 500)
        assert backend.row("a").summary["title"] == "t"

    def test_b4_a_line_that_is_not_its_event_is_refused(self, store: StoreInContract) -> None:
        """A raw newline, a foreign id or number, a lost end, a line that looks like a file's own: none is stored."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        for line in (
            b'{"stream":"a","seq":1,"time":1,"type":"x/y","data":{"t":"one\ntwo"}}\n',
            b'{"stream":"a","seq":2,"time":1,"type":"x/y","data":{}}\n',
            b'{"stream":"ab","seq":1,"time":1,"type":"x/y","data":{}}\n',
            b'{"seq":1,"stream":"a","time":1,"type":"x/y","data":{}}\n',
            b'{"stream":"a","seq":1,"time":1,"type":"x/y","data":{}}',
            b'{"stream":"a","seq":1,"time":1,"type":"x/y","data":"end"}\n',
            b'{"$batch":3,"position":1,"time":1,"bytes":0,"streams":[],"prev":"00000000","h":"00000000"}\n',
            b"\n",
        ):
            refused(InvalidLine, answer_to(backend, Append("a", 1, 1, line)))
        refused(InvalidLine, answer_to(backend, creation("No Id", event("No Id", 0))))
        assert content(store, "a") == event("a", 0)

    def test_b4_what_is_too_large_is_refused(self, store: StoreInContract) -> None:
        """A line, an append and a patch each have a limit, which the refusal names."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        many = b"".join(event("a", seq, "x" * 1_000_000) for seq in range(1, 10))
        refusal = refused(TooLarge, answer_to(backend, Append("a", 1, 1, many)))
        assert (refusal.size, refusal.limit) == (len(many), BATCH_BYTES_MAX)
        long = event("a", 1, "x").replace(b'"x"', b'"' + b"x" * 1_100_000 + b'"')
        for lines in (long, long + event("a", 2), event("a", 1) + long.replace(b'"seq":1,', b'"seq":2,')):
            assert refused(TooLarge, answer_to(backend, Append("a", 1, 1, lines))).size == len(long)
        refused(TooLarge, answer_to(backend, Append("a", 1, 1, b"", {"title": "x" * 5000})))
        assert content(store, "a") == event("a", 0)
        fitting = event("a", 1, "x" * (LINE_BYTES_MAX - len(event("a", 1, ""))))
        assert appended(backend, Append("a", 1, 1, fitting)).head == 2
        appended(backend, Append("a", 1, 2, b"".join(event("a", seq, "x" * 900_000) for seq in range(2, 10))))

    def test_b4_a_patch_that_storage_can_not_go_by_is_refused(self, store: StoreInContract) -> None:
        """Stored, it would end every writer that reads it; the rest of a summary is its programs', and anything."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0), key="mine"))
        wrong: list[dict[str, Any]] = [
            {"owner": "me"},
            {"owner": [1]},
            {"labels": ["red"]},
            {"open_turn": "0"},
            {"open_turn": -1},
            {"parent": 5},
            {"parent_seq": 1},
            {"key": "other"},
            {"keys": {"0" * 32: 0}},
        ]
        for patch in wrong:
            refused(InvalidLine, answer_to(backend, Append("a", 1, 1, event("a", 1), patch)))
        headers: list[dict[str, Any]] = [{"key": 5}, {"labels": "red"}, {"keys": {}}]
        for header in headers:
            refused(InvalidLine, answer_to(backend, creation("b", event("b", 0), **header)))
        refused(InvalidLine, answer_to(backend, Patch("a", {"labels": "red"})))
        assert (content(store, "a"), listed(store, include_deleted=True)) == (event("a", 0), ["a"])
        appended(
            backend, Append("a", 1, 1, b"", {"open_turn": 0, "mine": [{"x": None}], "owner": None, "labels": None})
        )
        expected = {"kind": "session", "key": "mine", "open_turn": 0, "mine": [{"x": None}]}
        for again in reopened(store):
            assert again.row("a").summary == expected

    def test_b5_one_refusal_leaves_its_neighbours_alone(self, store: StoreInContract) -> None:
        """Results come in the order of the requests, whatever becomes of the others."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        requests: list[Request] = [
            creation("b", event("b", 0)),
            Append("a", 1, 5, event("a", 5)),
            Append("missing", 1, 0, event("missing", 0)),
            Append("a", 9, 1, event("a", 1)),
            Append("a", 1, 1, event("b", 1)),
            Append("a", 1, 1, event("a", 1)),
        ]
        kinds = [type(answer) for answer in backend.commit(requests)]
        assert kinds == [Appended, Conflict, NotFound, Fenced, InvalidLine, Appended]
        assert (len(page(store, "a").events), len(page(store, "b").events)) == (2, 1)

    def test_b5_any_number_of_requests_is_one_list_of_answers(self, store: StoreInContract) -> None:
        """More streams than a batch holds, and more bytes."""
        backend = store.open()
        streams = [f"s-{number}" for number in range(RUNS_MAX + 10)]
        answers = backend.commit([creation(stream, event(stream, 0)) for stream in streams])
        assert [answer[2] if isinstance(answer, Appended) else answer for answer in answers] == [
            number + 1 for number in range(len(streams))
        ]
        large = [Append(stream, 1, 1, event(stream, 1, "x" * 900_000)) for stream in streams[:12]]
        assert all(isinstance(answer, Appended) for answer in backend.commit(large))
        assert backend.next_position == len(streams) + 13

    def test_b7_another_number_than_the_head_conflicts(self, store: StoreInContract) -> None:
        """A gap, a repeat with other bytes and a stale number name the head, and write nothing."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        position = backend.next_position
        for first in (0, 2, 3, 9):
            refusal = refused(Conflict, answer_to(backend, Append("a", 1, first, event("a", first, "other"))))
            assert (refusal.stream, refusal.expected, refusal.stored) == ("a", 1, 0)
        refused(Conflict, answer_to(backend, Append("a", 1, 2, b"", {"title": "t"})))
        assert backend.next_position == position
        assert (content(store, "a"), "title" in backend.row("a").summary) == (event("a", 0), False)

    def test_b7_an_answer_tells_of_its_own_lines_alone(self, store: StoreInContract) -> None:
        """A head behind them and the position of the last; 0 without lines, whatever was committed beside them."""
        backend = store.open()
        keyed = Append("a", 1, 2, event("a", 2), key="k")
        commits: list[list[Request]] = [
            [
                creation("a", events("a", 0, 2)),
                keyed,
                Append("a", 1, 3, b"", {"title": "t"}),
                Patch("a", {"title": "u"}),
            ],
            [Append("a", 1, 3, events("a", 3, 2)), keyed, Append("a", 1, 5, b""), Append("a", 1, 0, event("a", 0))],
        ]
        assert [backend.commit(requests) for requests in commits] == [
            [Appended(0, 2, 2), Appended(2, 3, 3), Appended(3, 3, 0), Appended(3, 3, 0)],
            [Appended(3, 5, 5), Appended(2, 3, 3), Appended(5, 5, 0), Appended(0, 1, 1)],
        ]

    def test_b8_the_same_lines_again_are_stored_once(self, store: StoreInContract) -> None:
        """Whole, split, merged, with new ones behind them, within one commit, over restarts: as the first time."""
        backend = store.open()
        first = creation("a", events("a", 0, 2))
        assert appended(backend, first) == appended(backend, first) == Appended(0, 2, 2)
        again = Append("a", 1, 1, events("a", 1, 2))
        assert backend.commit([again, again, Append("a", 1, 2, events("a", 2, 2))]) == [
            Appended(1, 3, 3),
            Appended(1, 3, 3),
            Appended(2, 4, 4),
        ]
        for backend in reopened(store):
            assert appended(backend, Append("a", 1, 0, events("a", 0, 4))) == Appended(0, 4, 4)
            assert appended(backend, Append("a", 1, 2, event("a", 2))) == Appended(2, 3, 3)
            assert backend.next_position == 5
        assert content(store, "a") == events("a", 0, 4)

    def test_b8_every_refusal_says_how_many_lines_are_stored(self, store: StoreInContract) -> None:
        """Some leading lines may be stored already though the rest can't be."""
        backend = store.open()
        appended(backend, creation("a", events("a", 0, 3)))
        mixed = event("a", 1) + event("a", 2, "other")
        refusal = refused(Conflict, answer_to(backend, Append("a", 1, 1, mixed)))
        assert (refusal.expected, refusal.stored) == (3, 1)
        granted(backend, Grant("a", owner("second")))
        fenced = refused(Fenced, answer_to(backend, Append("a", 1, 1, events("a", 1, 3))))
        assert (fenced.stored, (fenced.owner or {}).get("token")) == (2, "second")

    def test_b8_a_line_with_a_known_key_is_stored_once(self, store: StoreInContract) -> None:
        """The old number is the answer, whatever is offered now; other content under the same key conflicts."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        keyed = Append("a", 1, 1, event("a", 1, "once", time=5), key="k")
        later = Append("a", 1, 2, event("a", 2, "once", time=9), key="k")
        answers = backend.commit([keyed, later, Append("a", 1, 2, event("a", 2))])
        assert answers == [Appended(1, 2, 2), Appended(1, 2, 2), Appended(2, 3, 3)]
        for backend in reopened(store):
            assert appended(backend, Append("a", 1, 3, event("a", 3, "once"), key="k")) == Appended(1, 2, 2)
            refused(Conflict, answer_to(backend, Append("a", 1, 3, event("a", 3, "else"), key="k")))
        refused(InvalidLine, answer_to(backend, Append("a", 1, 3, events("a", 3, 2), key="other")))
        assert len(page(store, "a").events) == 3
        assert appended(backend, creation("b", event("b", 0), labels={})).head == 1
        assert appended(backend, Append("b", 1, 1, event("b", 1, "once"), key="k")).first == 1, "a key is its stream's"

    # -- B13: what JSON can't hold

    def test_b13_what_json_can_not_hold_is_refused_before_anything_is_written(self, store: StoreInContract) -> None:
        """With the event's number in the call, its type and a path to the value; nothing of the call is stored."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        before = backend.statistics()
        circle: list[Any] = []
        circle.append(circle)
        cases: list[tuple[Any, str]] = [
            *((number, "$.x") for number in (float("nan"), float("inf"), float("-inf"))),
            *((number, "$.x") for number in (INTEGER_MAX + 1, INTEGER_MIN - 1)),
            *((value, "$.x") for value in (b"bytes", {1}, datetime.now(UTC), Decimal(1), "\ud800", {1: "one"})),
            ({"y": [0, [2**64]]}, "$.x.y[1][0]"),
            (circle, "$.x[0]"),
        ]
        for value, path in cases:
            error = raised(InvalidValue, lambda value=value: _append_values(backend, "good", value))  # type: ignore[misc]
            assert (error.event, error.type, error.path) == (1, "x/y", path)
        raised(InvalidValue, lambda: _append_values(backend, _nested(DEPTH_MAX + 1)))
        assert (backend.statistics(), content(store, "a")) == (before, event("a", 0))

    def test_b13_what_json_can_hold_comes_back_exactly(self, store: StoreInContract) -> None:
        """The greatest and smallest numbers, the deepest nesting and every character there is."""
        characters = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000, 17), 0x10FFFF)))
        numbers = (INTEGER_MAX, INTEGER_MIN, 2**53 + 1, 0.1, -0.0, 5e-324, 1.7976931348623157e308, 1e23)
        values: tuple[Any, ...] = (*numbers, characters, {"": {}}, [], None, True, _nested(DEPTH_MAX - 1))
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        assert _append_values(backend, *values).head == 1 + len(values)
        for _ in reopened(store):
            found = [decode_event(stored.line)["data"]["x"] for stored in page(store, "a", start=1).events]
            assert [repr(each) for each in found] == [repr(each) for each in values]

    # -- B14, B15: nothing more than was asked for

    def test_b14_what_goes_in_and_comes_out_is_nobody_elses(self, store: StoreInContract) -> None:
        """Changing a patch after its commit, or what was answered, changes nothing that is stored."""
        backend = store.open()
        labels = {"team": "red"}
        patch: dict[str, Any] = {"owner": None, "labels": labels}
        appended(backend, Append("a", 1, 0, event("a", 0), patch, create=True))
        labels["team"] = "blue"
        patch["title"] = "t"
        grant = granted(backend, Grant("a", owner("second")))
        for summary in (grant.summary, backend.row("a").summary):
            summary["labels"]["team"] = "green"
        with reading(store) as reader:
            reader.row("a").summary["labels"]["team"] = "green"
            assert reader.row("a").summary == {"owner": owner("second"), "labels": {"team": "red"}}
        assert backend.row("a").summary == {"owner": owner("second"), "labels": {"team": "red"}}

    def test_b15_an_empty_append_stores_nothing(self, store: StoreInContract) -> None:
        """Not even a commit; and a stream that would have no event isn't made."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        before = backend.statistics()
        assert appended(backend, Append("a", 1, 1, b"")) == Appended(1, 1, 0)
        refused(Conflict, answer_to(backend, creation("b", b"")))
        assert backend.commit([]) == []
        assert backend.statistics() == before
        assert listed(store, include_deleted=True) == ["a"]


def _append_values(backend: Backend, *values: Any) -> Appended:
    """Append an event for each value to the stream `a`, which has one event, as a caller does: encoded, then sent."""
    lines = b"".join(
        encode_event("a", 1 + number, 1_700_000_000_000, "x/y", {"x": value}, event=number)
        for number, value in enumerate(values)
    )
    return appended(backend, Append("a", 1, 1, lines))


def _nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value
