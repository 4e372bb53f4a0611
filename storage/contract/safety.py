"""What nothing that goes wrong may change: failures, a full disk, a strange clock, versions to come."""

from __future__ import annotations

from ..errors import Conflict, Failed, InvalidLine, StoreFull
from ..requests import Append, Appended, Grant, Patch, Request
from .asking import appended, creation, event, events, fork, owner, raised
from .looking import content, listed, reopened, scanned
from .stores import StoreInContract


class SafetyClauses:
    """Clauses B6, B18, B21, B22 and B24."""

    def test_b6_a_failure_says_that_the_outcome_is_unknown(self, store: StoreInContract) -> None:
        """Refused is certainly not stored, and needs no disk; what failed may be, so whoever is told sends it again.

        As after an answer that was lost: either way the same lines are stored once, and answered as the first time.
        """
        appended(store.open(), creation("a", event("a", 0)))
        head = 1
        for outcome in ("stored", "not stored", "answer lost"):
            store.close()
            backend = store.open()
            position = backend.next_position
            sent: list[Request] = [
                Append("a", 1, head, events("a", head, 2), {"title": outcome}),
                creation(f"s-{head}", event(f"s-{head}", 0)),
            ]
            if outcome == "answer lost":
                backend.commit(sent)
            else:
                store.fail_next_commit(stored=outcome == "stored")
                refusals = backend.commit([Append("a", 1, 99, event("a", 99)), Append("a", 1, head, b"no line")])
                assert [type(refusal) for refusal in refusals] == [Conflict, InvalidLine]
                for _ in range(2):
                    raised(Failed, lambda backend=backend, sent=sent: backend.commit(sent))  # type: ignore[misc]
            store.die()
            backend = store.open()
            assert backend.next_position == position + (0 if outcome == "not stored" else 3), outcome
            expected = [Appended(head, head + 2, position + 1), Appended(0, 1, position + 2)]
            assert backend.commit(sent) == backend.commit(sent) == expected
            assert backend.row("a").summary["title"] == outcome
            head += 2
        assert content(store, "a") == events("a", 0, head)

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
