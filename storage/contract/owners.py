"""Who may write: a stream has one owner, a store one writer."""

from __future__ import annotations

from ..backend import Backend
from ..errors import Fenced, SessionBusy, StoreRefused
from ..requests import Append, Appended, Grant, Granted
from .asking import answer_to, appended, creation, event, events, granted, owner, raised, refused
from .looking import content, page, reading, reopened
from .processes import REFUSED, exit_code_elsewhere, running_elsewhere
from .stores import StoreInContract


class OwnerClauses:
    """Clauses B9 and B19."""

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

    def test_b9_a_grant_says_where_an_owner_left_off_who_didnt_give_back(self, store: StoreInContract) -> None:
        """The first such place stands, whoever comes then, until an owner takes it away."""
        backend = store.open()
        appended(backend, creation("a", events("a", 0, 2)))
        assert "abandoned" not in granted(backend, Grant("a", owner("a"))).summary
        assert granted(backend, Grant("a", owner("second"))).summary["abandoned"] == 2
        appended(backend, Append("a", 3, 2, event("a", 2)))
        assert granted(backend, Grant("a", owner("third"), takeover=True)).summary["abandoned"] == 2
        for backend in reopened(store):
            assert backend.row("a").summary["abandoned"] == 2
        appended(backend, Append("a", 4, 3, b"", {"abandoned": None, "owner": None}))
        assert "abandoned" not in granted(backend, Grant("a", owner("fourth"))).summary
        assert granted(backend, Grant("a", owner("fifth"))).summary["abandoned"] == 3

    def test_b19_one_process_writes_to_a_store(self, store: StoreInContract) -> None:
        """Another one is told who does, and may read; when that one was killed, its place is free at once."""
        with running_elsewhere(lambda: _serve(store)) as other:
            assert str(other.pid) in str(raised(StoreRefused, store.open))
            assert content(store, "a") == events("a", 0, 3)
            other.kill()
            backend = store.open()
        assert appended(backend, Append("a", 1, 3, event("a", 3))).head == 4
        assert content(store, "a") == events("a", 0, 4)

    def test_b19_an_open_store_refuses_a_forked_child(self, store: StoreInContract) -> None:
        """Writer and reader say so, instead of harming the parent's files."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        with reading(store) as reader:
            for use in (lambda: backend.commit([Append("a", 1, 1, event("a", 1))]), lambda: reader.row("a")):
                assert exit_code_elsewhere(use) == REFUSED
        assert appended(backend, Append("a", 1, 1, event("a", 1))).head == 2


def _serve(store: StoreInContract) -> Backend:
    backend = store.open()
    appended(backend, creation("a", events("a", 0, 3)))
    return backend
