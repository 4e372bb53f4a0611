"""What is deleted, and what goes on from a part of another stream."""

from __future__ import annotations

from typing import Any

from ..errors import Conflict, Deleted, Exists, InvalidFork, InvalidLine, NotFound, SessionBusy
from ..requests import Append, Appended, Grant, Granted, Patch
from .asking import answer_to, appended, creation, event, events, fork, owner, raised, refused
from .looking import listed, page, places, reading, reopened
from .stores import StoreInContract


class DeletionClauses:
    """Clauses B11, B12 and B17."""

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

    def test_b11_what_a_living_owner_has_is_not_deleted(self, store: StoreInContract) -> None:
        """Who asks is told who has it; once that one has released it or is gone it can be, and nobody is granted it."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        store.alive |= {"a", "second"}
        assert refused(SessionBusy, answer_to(backend, Patch("a", {"deleted": 5}))).owner == owner("a")
        appended(backend, Patch("a", {"deleted": None, "title": "t"}))
        answers = backend.commit([Append("a", 1, 1, b"", {"owner": None}), Patch("a", {"deleted": 5})])
        assert [type(answer) for answer in answers] == [Appended, Appended]
        for backend in reopened(store):
            for takeover in (False, True):
                assert refused(Deleted, answer_to(backend, Grant("a", owner("second"), takeover))).wanted == "a"
        appended(backend, Patch("a", {"deleted": None}))
        answers = backend.commit([Grant("a", owner("second")), Patch("a", {"deleted": 6})])
        assert [type(answer) for answer in answers] == [Granted, SessionBusy]
        store.alive.clear()
        answers = backend.commit([Patch("a", {"deleted": 7}), Grant("a", owner("second"))])
        assert [type(answer) for answer in answers] == [Appended, Deleted]
        assert backend.row("a").summary["deleted"] == 7

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

    def test_b12_the_mark_of_a_deleted_beginning_is_never_taken_back(self, store: StoreInContract) -> None:
        """Not by nothing, by less, or by what is no number; and what isn't stored yet can't be deleted."""
        backend = store.open()
        appended(backend, creation("a", events("a", 0, 4)))
        appended(backend, Append("a", 1, 4, b"", {"deleted_to": None}))
        assert "deleted_to" not in backend.row("a").summary
        appended(backend, Append("a", 1, 4, event("a", 4), {"deleted_to": 5}))
        marks: list[Any] = [None, 0, 2]
        for mark in marks:
            appended(backend, Append("a", 1, 5, b"", {"deleted_to": mark}))
        backend.commit([Append("a", 1, 5, b"", {"deleted_to": mark}) for mark in marks])
        for wrong in (6, -1, 1.0, "5", True, [5]):
            refused(InvalidLine, answer_to(backend, Append("a", 1, 5, b"", {"deleted_to": wrong})))
        for again in reopened(store):
            assert again.row("a").summary["deleted_to"] == 5
            assert page(store, "a").events == []

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

    def test_b17_forks_of_forks_of_forks_are_read_through(self, store: StoreInContract) -> None:
        """More of them than a program can call itself: each gives its event, from wherever the reading starts."""
        backend = store.open()
        appended(backend, creation("s0", event("s0", 0)))
        chain = [fork(f"s{number}", f"s{number - 1}", number, event(f"s{number}", number)) for number in range(1, 1500)]
        for first in range(0, len(chain), 100):
            assert all(isinstance(answer, Appended) for answer in backend.commit(chain[first : first + 100]))
        assert places(store, "s1499") == [(f"s{number}", number) for number in range(1500)]
        assert places(store, "s1499", start=3, limit=2) == [("s3", 3), ("s4", 4)]

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
