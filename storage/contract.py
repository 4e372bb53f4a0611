"""What every backend owes, clause by clause, as tests that anybody can run on a backend of theirs.

A clause's number stands in its test's name. What speaks of processes, or of the values that a caller hands in, is
beyond a backend and isn't here. In a test module of yours, with pytest:

    import pytest
    from turnkeeper.storage.contract import BackendContract

    class TestMine(BackendContract):
        @pytest.fixture
        def store(self, tmp_path): ...    # yields a StoreInContract: a new, empty store

Nothing is imported here that isn't needed to use a backend; pytest's assertions say more after
`pytest.register_assert_rewrite("turnkeeper.storage.contract")`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol, TypeVar

from .backend import Backend, BackendReader
from .errors import (
    Ambiguous,
    Conflict,
    Exists,
    Fenced,
    InvalidFork,
    InvalidLine,
    NotFound,
    SessionBusy,
    StorageError,
    StoreFull,
    TooLarge,
)
from .exact_json import encode_event
from .limits import BATCH_BYTES_MAX, RUNS_MAX
from .requests import Append, Appended, Grant, Granted, Page, Patch, Request, Result, StoredEvent

Kind = TypeVar("Kind", bound=StorageError)


class StoreInContract(Protocol):
    """One store of the backend under test, with at most one writer at a time."""

    alive: set[str]
    """Tokens of the owners that live; the `is_gone` that the backend is given says that all others are gone."""

    now: int
    """What the clock that the backend is given says, in ms."""

    is_full: bool
    """Whether the file system has no space left."""

    def open(self) -> Backend:
        """Open the store to write; it is closed, or its writer dead, by now."""
        ...

    def reader(self) -> BackendReader:
        """Open the store to read, beside its writer if it has one."""
        ...

    def close(self) -> None:
        """Close the writer in order."""
        ...

    def die(self) -> None:
        """Let the writer end as SIGKILL does: nothing is written or tidied up any more."""
        ...


# -- requests


def owner(token: str) -> dict[str, Any]:
    """Make an owner; whether it lives is the store's `alive` to say."""
    return {"boot": "b", "pid": 1, "start": 1, "host": "here", "token": token}


def event(stream: str, seq: int, text: str = "hello", *, time: int = 1_700_000_000_000) -> bytes:
    """Make one event's line."""
    return encode_event(stream, seq, time, "user/message", {"text": text})


def events(stream: str, first: int, count: int, text: str = "hello") -> bytes:
    """Make several events' lines."""
    return b"".join(event(stream, seq, text) for seq in range(first, first + count))


def creation(stream: str, lines: bytes, **header: Any) -> Append:
    """Make a stream's first append."""
    return Append(stream, 1, 0, lines, {"kind": "session", "owner": owner(stream), **header}, create=True)


def fork(child: str, parent: str, seq: int, lines: bytes = b"", **header: Any) -> Append:
    """Make a fork's first append."""
    patch = {"kind": "session", "owner": owner(child), "parent": parent, "parent_seq": seq, **header}
    return Append(child, 1, seq, lines, patch, create=True)


# -- answers


def answer_to(backend: Backend, request: Request) -> Result:
    """Commit one request."""
    (answer,) = backend.commit([request])
    return answer


def appended(backend: Backend, request: Append | Patch) -> Appended:
    """Commit what must be stored."""
    answer = answer_to(backend, request)
    assert isinstance(answer, Appended), f"{request}: {answer!r}"
    return answer


def granted(backend: Backend, request: Grant) -> Granted:
    """Commit what must be granted."""
    answer = answer_to(backend, request)
    assert isinstance(answer, Granted), f"{request}: {answer!r}"
    return answer


def refused(kind: type[Kind], answer: Result) -> Kind:
    """Check that an answer is this refusal, and give it."""
    assert isinstance(answer, kind), f"{answer!r} is no {kind.__name__}"
    return answer


def raised(kind: type[Kind], call: Callable[[], object]) -> Kind:
    """Check that a call raises this error, and give it."""
    try:
        found = call()
    except kind as error:
        return error
    raise AssertionError(f"{found!r} came, and no {kind.__name__}")


# -- what readers see


@contextmanager
def reading(store: StoreInContract) -> Iterator[BackendReader]:
    """Open the store to read for the body."""
    with closing(store.reader()) as reader:
        yield reader


def page(store: StoreInContract, id: str, **bounds: Any) -> Page:
    """Read a stream, whole unless there are bounds; nothing of it may be missing."""
    with reading(store) as reader:
        found = reader.read(id, **({"limit": 1_000_000} | bounds))
    assert found.missing == []
    return found


def content(store: StoreInContract, id: str) -> bytes:
    """Read all of a stream's lines."""
    return b"".join(stored.line + b"\n" for stored in page(store, id).events)


def places(store: StoreInContract, id: str, **bounds: Any) -> list[tuple[str, int]]:
    """Read a stream; give under which id and number each event is stored."""
    return [(stored.stream, stored.seq) for stored in page(store, id, **bounds).events]


def listed(store: StoreInContract, **filters: Any) -> list[str]:
    """List the streams' ids."""
    with reading(store) as reader:
        return [row.id for row in reader.rows(1000, **filters)]


def scanned(store: StoreInContract, size_max: int) -> list[StoredEvent]:
    """Read the whole store by position, in pieces."""
    found: list[StoredEvent] = []
    after = 0
    with reading(store) as reader:
        while True:
            more, reached = reader.scan(after, size_max)
            if reached == after:
                return found
            found += more
            after = reached


def reopened(store: StoreInContract) -> Iterator[Backend]:
    """Give the store again, as it is, closed and opened, and after its writer's death."""
    store.close()
    yield store.open()
    store.die()
    yield store.open()


class BackendContract:
    """The clauses. Each test begins with a new store, from the fixture `store`."""

    # -- B1 to B3: reading what is there, and what isn't

    def test_b1_what_was_appended_is_read_back(self, store: StoreInContract) -> None:
        """Lines come back byte for byte, and the header value for value, also after a restart."""
        text = 'U+2028 \u2028, NEL \x85, form feed \f, CR \r, NUL \0, quote ", emoji 🚀'
        lines = events("a", 0, 2, text) + event("a", 2)
        header = {"title": "Ünïcode", "labels": {"team": "red"}, "created": 2**53 + 1, "deep": [{"x": [None, 0.1]}]}
        backend = store.open()
        assert appended(backend, creation("a", lines, **header)) == Appended(0, 3, 3)
        for again in reopened(store):
            assert content(store, "a") == lines
            assert again.row("a").summary == {"kind": "session", "owner": owner("a"), **header}
            assert again.row("a")[:4] == ("a", 3, 1, 3)

    def test_b2_bounds_of_a_read(self, store: StoreInContract) -> None:
        """Whole, from and to the middle, one, none, beyond the end: never an error, and each tells the head."""
        backend = store.open()
        appended(backend, creation("a", events("a", 0, 3)))
        for seq in range(3, 9, 2):
            appended(backend, Append("a", 1, seq, events("a", seq, 2)))
        cases: list[tuple[dict[str, int], Sequence[int]]] = [
            ({}, range(9)),
            ({"start": 4}, range(4, 9)),
            ({"stop": 4}, range(4)),
            ({"start": 4, "stop": 5}, [4]),
            ({"start": 4, "stop": 4}, []),
            ({"start": 5, "stop": 4}, []),
            ({"limit": 0}, []),
            ({"start": 3, "limit": 4}, range(3, 7)),
            ({"start": 9}, []),
            ({"start": 50}, []),
            ({"stop": 50}, range(9)),
        ]
        for bounds, expected in cases:
            found = page(store, "a", **bounds)
            assert [stored.seq for stored in found.events] == list(expected), bounds
            assert found.head == 9
        with reading(store) as reader:
            assert [stored.seq for stored in reader.read_last("a", 2).events] == [7, 8]
            assert len(reader.read_last("a", 50).events) == 9
            for bounds in ({"start": -1}, {"stop": -1}, {"limit": -1}):
                try:
                    reader.read("a", **bounds)
                except ValueError:
                    continue
                raise AssertionError(f"{bounds} is no error")

    def test_b3_an_unknown_stream_is_not_found_and_stays_unknown(self, store: StoreInContract) -> None:
        """Reading and looking up make nothing, whatever was asked for."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        for wanted in ("b", "", "No Id", "\ud800", "x" * 65):
            for look in (backend.row, backend.resolve):
                raised(NotFound, lambda look=look, wanted=wanted: look(wanted))  # type: ignore[misc]
            with reading(store) as reader:
                for read in (reader.read, reader.row, reader.resolve):
                    raised(NotFound, lambda read=read, wanted=wanted: read(wanted))  # type: ignore[misc]
                raised(NotFound, lambda reader=reader, wanted=wanted: reader.read_last(wanted, 1))  # type: ignore[misc]
        refused(NotFound, answer_to(backend, Append("b", 1, 0, event("b", 0))))
        refused(NotFound, answer_to(backend, Grant("b", owner("t"))))
        refused(NotFound, answer_to(backend, Patch("b", {"title": "t"})))
        assert listed(store, include_deleted=True) == ["a"]

    # -- B4 to B10: appending

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
        refused(TooLarge, answer_to(backend, Append("a", 1, 1, long)))
        refused(TooLarge, answer_to(backend, Append("a", 1, 1, b"", {"title": "x" * 5000})))
        assert content(store, "a") == event("a", 0)
        appended(backend, Append("a", 1, 1, b"".join(event("a", seq, "x" * 900_000) for seq in range(1, 9))))

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
            assert appended(backend, Append("a", 1, 3, event("a", 3, "once"), key="k")).first == 1
            refused(Conflict, answer_to(backend, Append("a", 1, 3, event("a", 3, "else"), key="k")))
        refused(InvalidLine, answer_to(backend, Append("a", 1, 3, events("a", 3, 2), key="other")))
        assert len(page(store, "a").events) == 3
        assert appended(backend, creation("b", event("b", 0), labels={})).head == 1
        assert appended(backend, Append("b", 1, 1, event("b", 1, "once"), key="k")).first == 1, "a key is its stream's"

    def test_b9_a_superseded_owner_is_fenced_though_its_number_is_right(self, store: StoreInContract) -> None:
        """The epoch decides; what the old owner had stored stays acknowledged, what it had not never is."""
        backend = store.open()
        appended(backend, creation("a", events("a", 0, 2)))
        grant = granted(backend, Grant("a", owner("second")))
        assert (grant.epoch, grant.head, grant.summary["owner"]) == (2, 2, owner("second"))
        for backend in reopened(store):
            refused(Fenced, answer_to(backend, Append("a", 1, 2, event("a", 2))))
            assert appended(backend, Append("a", 1, 0, events("a", 0, 2))).head == 2
        appended(backend, Append("a", 2, 2, event("a", 2)))
        assert refused(Fenced, answer_to(backend, Append("a", 1, 2, event("a", 2)))).stored == 0
        assert len(page(store, "a").events) == 3

    def test_b9_a_living_owner_keeps_its_stream(self, store: StoreInContract) -> None:
        """Who asks is told who owns it; takeover takes it; a dead, released or own opening stands in nobody's way."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        store.alive |= {"a", "second"}
        assert refused(SessionBusy, answer_to(backend, Grant("a", owner("second")))).owner == owner("a")
        assert granted(backend, Grant("a", owner("second"), takeover=True)).epoch == 2
        assert granted(backend, Grant("a", owner("second"))).epoch == 3
        appended(backend, Append("a", 3, 1, b"", {"owner": None}))
        assert granted(backend, Grant("a", owner("third"))).epoch == 4
        late, new = Append("a", 4, 1, event("a", 1)), Append("a", 5, 1, event("a", 1))
        answers = backend.commit([Grant("a", owner("fourth")), new, late, Grant("a", owner("fifth"))])
        assert [type(answer) for answer in answers] == [Granted, Appended, Fenced, Granted]
        assert backend.row("a")[:3] == ("a", 2, 6)

    def test_b10_positions_are_the_order_of_commits(self, store: StoreInContract) -> None:
        """Each event has the next position; a scan gives all, once, in order, in pieces of any size."""
        backend = store.open()
        backend.commit([creation("a", event("a", 0)), creation("b", events("b", 0, 2))])
        backend.commit([Append("b", 1, 2, event("b", 2)), Append("a", 1, 1, event("a", 1)), Grant("b", owner("x"))])
        backend.commit([Append("a", 1, 2, event("a", 2)), Grant("b", owner("y"))])
        whole = scanned(store, 1_000_000)
        for _ in reopened(store):
            assert scanned(store, 1_000_000) == whole
            assert [stored.position for stored in whole] == list(range(1, 7))
            assert [stored.seq for stored in whole if stored.stream == "a"] == [0, 1, 2]
            assert scanned(store, 1) == whole
            with reading(store) as reader:
                assert reader.next_position() == 7
                assert reader.scan(3)[0] == whole[3:]
                assert reader.scan(6) == ([], 6)
                assert reader.scan(60) == ([], 60)
        assert sorted(page(store, "b").events) == [stored for stored in whole if stored.stream == "b"]

    def test_b10_what_is_answered_is_readable(self, store: StoreInContract) -> None:
        """A reader that was open before sees it too."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        with reading(store) as reader:
            for seq in range(1, 20):
                appended(backend, Append("a", 1, seq, event("a", seq)))
                assert reader.row("a").head == seq + 1
                assert reader.read_last("a", 1).events[0].line + b"\n" == event("a", seq)
                assert reader.next_position() == seq + 2
                backend.between_commits()

    # -- B11, B12: deletion

    def test_b11_a_number_is_never_used_twice(self, store: StoreInContract) -> None:
        """The head survives deletion of the stream and of all its events, and reopening."""
        backend = store.open()
        appended(backend, creation("a", events("a", 0, 3)))
        appended(backend, Append("a", 1, 3, b"", {"deleted_to": 3}))
        appended(backend, Patch("a", {"deleted": 5}))
        for backend in reopened(store):
            assert (backend.row("a").head, page(store, "a").events) == (3, [])
            assert refused(Conflict, answer_to(backend, Append("a", 1, 0, event("a", 0, "other")))).expected == 3
            refused(Exists, answer_to(backend, creation("a", event("a", 0, "other"))))
        assert appended(backend, Append("a", 1, 3, event("a", 3))).head == 4
        assert places(store, "a") == [("a", 3)]

    def test_b12_a_deleted_beginning_never_comes_back(self, store: StoreInContract) -> None:
        """Reads start behind it, bounds inside it give what survives, and a smaller mark changes nothing."""
        backend = store.open()
        appended(backend, creation("a", events("a", 0, 10)))
        marks = (6, 4, 2)
        backend.commit([Append("a", 1, 10, b"", {"deleted_to": mark}) for mark in marks[:2]])
        appended(backend, Append("a", 1, 10, b"", {"deleted_to": marks[2]}))
        for again in reopened(store):
            assert [seq for _, seq in places(store, "a")] == [6, 7, 8, 9]
            assert [seq for _, seq in places(store, "a", start=1, stop=8)] == [6, 7]
            assert [seq for _, seq in places(store, "a", limit=2)] == [6, 7]
            assert places(store, "a", stop=5) == []
            with reading(store) as reader:
                assert len(reader.read_last("a", 8).events) == 4
            backend = again
        assert appended(backend, Append("a", 1, 10, event("a", 10))).head == 11

    def test_b12_what_a_fork_needs_is_kept(self, store: StoreInContract) -> None:
        """Deleting the parent, or its beginning, takes nothing from a fork that is there."""
        backend = store.open()
        appended(backend, creation("p", events("p", 0, 10)))
        appended(backend, fork("c", "p", 3, event("c", 3)))
        appended(backend, Append("p", 1, 10, b"", {"deleted_to": 4}))
        refused(InvalidFork, answer_to(backend, fork("d", "p", 4)))
        appended(backend, Patch("p", {"deleted": 1}))
        refused(InvalidFork, answer_to(backend, fork("d", "p", 6)))
        for _ in reopened(store):
            assert places(store, "c") == [("p", 0), ("p", 1), ("p", 2), ("c", 3)]

    # -- B14, B15: nothing more than was asked for

    def test_b14_what_goes_in_and_comes_out_is_nobody_elses(self, store: StoreInContract) -> None:
        """Changing a patch after its commit, or what was answered, changes nothing that is stored."""
        backend = store.open()
        labels = {"team": "red"}
        patch: dict[str, Any] = {"owner": owner("a"), "labels": labels}
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

    # -- B16: names and lists

    def test_b16_names_resolve_by_id_key_and_unique_prefix(self, store: StoreInContract) -> None:
        """Ambiguous names its candidates, and a deleted stream answers to its whole id alone."""
        backend = store.open()
        ids = ("brave-otter-1", "brave-owl-2")
        backend.commit([creation(id, event(id, 0), key=f"issue {id[-1]}") for id in ids])
        for again in reopened(store):
            with reading(store) as reader:
                for look in (again.resolve, reader.resolve):
                    assert {look(name) for name in ("brave-otter-1", "issue 1", "brave-ot")} == {"brave-otter-1"}
                    error = raised(Ambiguous, lambda look=look: look("brave"))  # type: ignore[misc]
                    assert error.candidates == list(ids)
                    raised(NotFound, lambda look=look: look("issue"))  # type: ignore[misc]
            backend = again
        appended(backend, Patch("brave-owl-2", {"deleted": 5}))
        assert (backend.resolve("brave"), backend.resolve("brave-owl-2")) == ids
        raised(NotFound, lambda: backend.resolve("issue 2"))
        appended(backend, Patch("brave-owl-2", {"deleted": None}))
        assert backend.resolve("issue 2") == "brave-owl-2"

    def test_b16_a_taken_id_or_key_exists(self, store: StoreInContract) -> None:
        """A first append with a taken name is told who has it, also within one commit, also if that one is deleted."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0), key="issue 1"))
        appended(backend, Patch("a", {"deleted": 5}))
        answers = backend.commit(
            [
                creation("a", event("a", 0, "other")),
                creation("b", event("b", 0), key="issue 1"),
                creation("c", event("c", 0), key="issue 2"),
                creation("d", event("d", 0), key="issue 2"),
            ]
        )
        assert [type(answer) for answer in answers] == [Exists, Exists, Appended, Exists]
        assert [(each.id, each.what) for each in answers if isinstance(each, Exists)] == [
            ("a", "id"),
            ("a", "key"),
            ("c", "key"),
        ]

    def test_b16_a_list_is_by_recency_of_commit_and_paged(self, store: StoreInContract) -> None:
        """Exact after each append; pages are cut by position and id, and deleted streams are left out."""
        backend = store.open()
        ids = [f"s-{number}" for number in range(7)]
        backend.commit([creation(id, event(id, 0)) for id in ids])
        assert listed(store) == ids[::-1]
        appended(backend, Append("s-2", 1, 1, event("s-2", 1)))
        appended(backend, Patch("s-1", {"title": "no event, so no activity"}))
        expected = ["s-2", *(id for id in ids[::-1] if id != "s-2")]
        for again in reopened(store):
            backend = again
            assert listed(store) == expected
            with reading(store) as reader:
                found: list[str] = []
                before: tuple[int, str] | None = None
                while rows := reader.rows(2, before):
                    found += [row.id for row in rows]
                    before = (rows[-1].position, rows[-1].id)
                assert found == expected
                assert reader.rows(0) == []
        appended(backend, Patch("s-3", {"deleted": 1}))
        assert listed(store) == [id for id in expected if id != "s-3"]
        assert listed(store, include_deleted=True) == expected
        assert places(store, "s-3") == [("s-3", 0)]

    def test_b16_lists_are_filtered_by_what_the_summary_says(self, store: StoreInContract) -> None:
        """By label, working directory, parent and kind; a page is full although some don't fit."""
        backend = store.open()
        appended(backend, creation("p", event("p", 0), cwd="/a", labels={"team": "red"}))
        appended(backend, creation("q", event("q", 0), cwd="/b", labels={"team": "red"}))
        appended(backend, fork("c", "p", 1, event("c", 1), cwd="/b"))
        assert listed(store, label=("team", "red")) == ["q", "p"]
        assert listed(store, cwd="/b") == ["c", "q"]
        assert listed(store, parent="p", cwd="/b") == ["c"]
        assert listed(store, kind="task") == []
        with reading(store) as reader:
            assert [row.id for row in reader.rows(1, cwd="/a")] == ["p"]

    def test_b16_only_its_owner_changes_the_rest_of_a_summary(self, store: StoreInContract) -> None:
        """Title, labels and deletion are anyone's and whole values; None removes; the rest needs the epoch."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0), labels={"x": "1", "y": "2"}, open_turn=0))
        assert appended(backend, Patch("a", {"title": "new", "labels": {"x": "3"}})) == Appended(1, 1, 0)
        refused(InvalidLine, answer_to(backend, Patch("a", {"title": "t", "owner": None})))
        refused(Fenced, answer_to(backend, Append("a", 7, 1, b"", {"open_turn": None})))
        appended(backend, Append("a", 1, 1, b"", {"open_turn": None}))
        expected = {"kind": "session", "owner": owner("a"), "title": "new", "labels": {"x": "3"}}
        for backend in reopened(store):
            assert backend.row("a").summary == expected

    # -- B17: forks

    def test_b17_a_fork_reads_its_parents_beginning_and_then_its_own(self, store: StoreInContract) -> None:
        """One numbering, through any number of levels; what the parent does later is not its child's."""
        backend = store.open()
        appended(backend, creation("p", events("p", 0, 10)))
        assert appended(backend, fork("c", "p", 3, event("c", 3))) == Appended(3, 4, 11)
        appended(backend, Append("c", 1, 4, event("c", 4)))
        appended(backend, Append("p", 1, 10, event("p", 10)))
        appended(backend, fork("d", "c", 4, event("d", 4)))
        assert appended(backend, fork("e", "c", 2)) == Appended(2, 2, 0)
        for backend in reopened(store):
            assert places(store, "c") == [("p", 0), ("p", 1), ("p", 2), ("c", 3), ("c", 4)]
            assert places(store, "c", start=2, stop=4) == [("p", 2), ("c", 3)]
            assert places(store, "c", start=1, limit=1) == [("p", 1)]
            assert places(store, "d") == [("p", 0), ("p", 1), ("p", 2), ("c", 3), ("d", 4)]
            assert places(store, "e") == [("p", 0), ("p", 1)]
            assert (backend.row("e").head, len(places(store, "p"))) == (2, 11)
            assert appended(backend, fork("c", "p", 3, event("c", 3))) == Appended(3, 4, 11), "sent again"
        assert listed(store) == ["d", "p", "c"], "a stream without events of its own isn't listed"
        assert appended(backend, Append("e", 1, 2, event("e", 2))).head == 3
        assert listed(store)[0] == "e"

    def test_b17_a_fork_that_cannot_be_is_refused(self, store: StoreInContract) -> None:
        """An unknown parent, a place beyond its head or inside its open turn, and a number that isn't the fork's."""
        backend = store.open()
        appended(backend, creation("p", events("p", 0, 10), open_turn=8))
        for parent, seq in (("missing", 0), ("p", 11), ("p", 9)):
            refusal = refused(InvalidFork, answer_to(backend, fork("c", parent, seq)))
            assert (refusal.parent, refusal.seq) == (parent, seq)
        refused(InvalidFork, answer_to(backend, fork("c", "p", -1)))
        patch = {"parent": "p", "parent_seq": 3}
        refused(Conflict, answer_to(backend, Append("c", 1, 0, event("c", 0), patch, create=True)))
        raised(NotFound, lambda: backend.row("c"))
        appended(backend, fork("c", "p", 8))

    # -- B18 to B24

    def test_b18_types_that_nobody_knows_survive_byte_for_byte(self, store: StoreInContract) -> None:
        """Whatever is a line of this stream and number is kept, and what it says is nobody's business here."""
        line = b'{"stream":"a","seq":0,"time":1,"type":"future/kind","more":[1e400],"data":{"$batch":1, "h" : "0"}}\n'
        appended(store.open(), creation("a", line))
        for _ in reopened(store):
            assert content(store, "a") == line

    def test_b21_what_was_acknowledged_never_changes(self, store: StoreInContract) -> None:
        """Later appends, grants, forks and patches leave every earlier event and its position as they were."""
        backend = store.open()
        backend.commit([creation("a", events("a", 0, 5)), creation("b", events("b", 0, 5))])
        before = scanned(store, 1_000_000)
        for seq in range(5, 40):
            backend.commit([Append("a", 1, seq, event("a", seq)), Grant("b", owner(f"t{seq}"))])
            backend.between_commits()
        backend.commit([fork("c", "a", 7, event("c", 7)), Patch("a", {"title": "t"})])
        for _ in reopened(store):
            assert scanned(store, 1_000_000)[: len(before)] == before

    def test_b22_a_full_disk_is_told_and_loses_nothing(self, store: StoreInContract) -> None:
        """Who would write gets StoreFull, what is stored is acknowledged, and with space again all goes on."""
        backend = store.open()
        appended(backend, creation("a", events("a", 0, 2)))
        store.is_full = True
        requests: list[Request] = [
            Append("a", 1, 2, event("a", 2)),
            Append("a", 1, 3, event("a", 3)),
            Append("a", 1, 1, event("a", 1)),
            Append("a", 1, 0, event("a", 0, "other")),
            creation("b", event("b", 0)),
            Grant("a", owner("second")),
            Append("a", 1, 2, event("b", 2)),
        ]
        kinds = [type(answer) for answer in backend.commit(requests)]
        assert kinds[:3] == [StoreFull, StoreFull, Appended]
        assert kinds[4:] == [StoreFull, StoreFull, InvalidLine]
        backend.between_commits()
        assert content(store, "a") == events("a", 0, 2)
        store.is_full = False
        assert [type(answer) for answer in backend.commit(requests[:2])] == [Appended, Appended]
        assert content(store, "a") == events("a", 0, 4)
        assert (backend.row("a").epoch, backend.next_position) == (1, 5)

    def test_b24_a_clock_that_steps_back_changes_no_order(self, store: StoreInContract) -> None:
        """Recency is the order of commits; the time is only told."""
        backend = store.open()
        for id, now in (("a", 5000), ("b", 1000), ("c", 1000)):
            store.now = now
            appended(backend, creation(id, event(id, 0)))
        for again in reopened(store):
            assert listed(store) == ["c", "b", "a"]
            assert [again.row(id).active for id in "abc"] == [5000, 1000, 1000]

    def test_an_open_store_refuses_a_forked_child(self, store: StoreInContract) -> None:
        """Writer and reader say so, instead of harming the parent's files."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        with reading(store) as reader:
            for use in (lambda: backend.commit([Append("a", 1, 1, event("a", 1))]), lambda: reader.row("a")):
                assert _exit_code_in_child(use) == _REFUSED
        assert appended(backend, Append("a", 1, 1, event("a", 1))).head == 2


_REFUSED = 7


def _exit_code_in_child(use: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            use()
        except RuntimeError:
            os._exit(_REFUSED)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def is_gone_by(alive: set[str]) -> Callable[[Mapping[str, Any]], bool]:
    """Make the `is_gone` that a store's `alive` stands for."""
    return lambda who: who["token"] not in alive
