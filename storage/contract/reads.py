"""What is read: bytes, bounds, what isn't there, the order of the whole store, and what a read costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..backend import Backend
from ..errors import NotFound
from ..requests import Append, Appended, Grant, Patch
from .asking import answer_to, appended, creation, event, events, owner, raised, refused
from .looking import content, listed, page, reading, reopened, scanned
from .processes import running_elsewhere
from .stores import StoreInContract


class ReadClauses:
    """Clauses B1 to B3, B10 and B23."""

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
            for wrong in (-1, 1.5, 2.0, "1"):
                for name in ("start", "stop", "limit"):
                    raised(ValueError, lambda name=name, wrong=wrong: reader.read("a", **{name: wrong}))  # type: ignore[misc]
                raised(ValueError, lambda wrong=wrong: reader.read_last("a", wrong))  # type: ignore[misc]

    def test_b2_a_read_ends_where_its_lines_have_the_size_that_was_asked_for(self, store: StoreInContract) -> None:
        """With the event that reaches it, wherever its run ends; at least one event, and all where there are fewer."""
        backend = store.open()
        appended(backend, creation("a", events("a", 0, 4)))
        appended(backend, Append("a", 1, 4, events("a", 4, 4)))
        appended(backend, Append("f", 1, 6, events("f", 6, 3), {"parent": "a", "parent_seq": 6}, create=True))
        size = len(event("a", 0)) - 1
        cases: list[tuple[dict[str, int], Sequence[int]]] = [
            ({"size_max": 1}, [0]),
            ({"size_max": size}, [0]),
            ({"size_max": size + 1}, [0, 1]),
            ({"start": 3, "size_max": 2 * size}, [3, 4]),
            ({"start": 3, "size_max": 3 * size, "limit": 2}, [3, 4]),
            ({"start": 7, "size_max": 9 * size}, [7]),
            ({"size_max": 0}, []),
        ]
        for bounds, expected in cases:
            assert [stored.seq for stored in page(store, "a", **bounds).events] == list(expected), bounds
        for start, size_max, expected in [(4, size, [4]), (4, 3 * size, [4, 5, 6]), (4, 99 * size, [4, 5, 6, 7, 8])]:
            assert [stored.seq for stored in page(store, "f", start=start, size_max=size_max).events] == expected
        with reading(store) as reader:
            raised(ValueError, lambda: reader.read("a", size_max=-1))

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
                assert reader.scan(3).events == whole[3:]
                assert reader.scan(6) == ([], 6, [])
                assert reader.scan(60) == ([], 60, [])
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

    # -- B23

    def test_b23_reading_a_suffix_costs_the_suffix(self, store: StoreInContract) -> None:
        """The newest events of a long stream, and of a long store, cost about what they do where there is little."""
        backend = store.open()
        appended(backend, creation("short", events("short", 0, 20)))
        with reading(store) as reader:
            little = _cost(store, lambda: reader.read_last("short", 10)), _cost(store, lambda: reader.scan(10))
        appended(backend, creation("long", event("long", 0)))
        _fill(backend, "long")
        appended(backend, Append("short", 1, 20, events("short", 20, 10)))
        with reading(store) as reader:
            whole = _cost(store, lambda: reader.read("long", limit=1_000_000))
            much = (
                _cost(store, lambda: reader.read_last("long", 10)),
                _cost(store, lambda: reader.scan(backend.next_position - 11)),
            )
        assert whole > _FILLED_BYTES, "what is counted are the bytes that are read"
        assert max(much) < max(little) + _FILLED_BYTES // 8, (little, much, whole)

    def test_b23_opening_costs_the_tail(self, store: StoreInContract) -> None:
        """After the death of its writer a long store is opened at about the cost of a short one with the same tail."""
        costs = []
        for filled in (False, True):
            with running_elsewhere(lambda filled=filled: _end_in_a_tail(store, f"tail-{filled:d}", filled)):  # type: ignore[misc]
                pass
            costs.append(_cost(store, store.open))
            assert page(store, f"tail-{filled:d}").head == 30
            store.close()
        assert costs[1] < costs[0] + _FILLED_BYTES // 8, costs


_FILLED_BYTES = 4_000_000
_FILLED_COMMITS = 100
_LINES_A_COMMIT = 40


def _fill(backend: Backend, stream: str) -> None:
    """Append many bytes to a stream that has one event, in many commits."""
    text = "x" * (_FILLED_BYTES // _FILLED_COMMITS // _LINES_A_COMMIT)
    for commit in range(_FILLED_COMMITS):
        first = 1 + commit * _LINES_A_COMMIT
        appended(backend, Append(stream, 1, first, events(stream, first, _LINES_A_COMMIT, text)))
        backend.between_commits()


def _end_in_a_tail(store: StoreInContract, stream: str, filled: bool) -> Backend:
    """Fill a store and close it, or don't; then make a tail that its writer won't close."""
    backend = store.open()
    if filled:
        appended(backend, creation("long", event("long", 0)))
        _fill(backend, "long")
        store.close()
        backend = store.open()
    appended(backend, creation(stream, event(stream, 0)))
    for seq in range(1, 30):
        appended(backend, Append(stream, 1, seq, event(stream, seq)))
    return backend


def _cost(store: StoreInContract, work: Callable[[], object]) -> int:
    before = store.cost()
    work()
    return store.cost() - before
