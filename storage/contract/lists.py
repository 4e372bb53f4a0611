"""What streams there are: their names, and lists of them."""

from __future__ import annotations

from ..errors import Ambiguous, Deleted, Exists, Fenced, InvalidLine, NotFound
from ..requests import Append, Appended, Patch
from .asking import answer_to, appended, creation, event, fork, owner, post, raised, refused
from .looking import content, listed, places, reading, reopened
from .stores import StoreInContract


class ListClauses:
    """Clause B16."""

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
        for name in ("issue 2", "brave-ow"):
            assert raised(Deleted, lambda name=name: backend.resolve(name)).wanted == "brave-owl-2"  # type: ignore[misc]
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

    def test_b16_a_list_asks_for_directories_and_for_members(self, store: StoreInContract) -> None:
        """Directories as they were spelled or as they were, whatever is there, and nothing by what can't be stored."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0), cwd="/link", cwd_real="/a"))
        appended(backend, creation("b", event("b", 0), cwd='/b "ü"', owner=None))
        appended(backend, creation("c", event("c", 0), cwd="/c", cwd_real='/b "ü"', title="/a"))
        assert listed(store, cwd="/a") == listed(store, cwd="/link") == ["a"]
        assert listed(store, cwd=['/b "ü"', "/link"]) == ["c", "b", "a"]
        assert listed(store, having="owner", cwd=("/a", '/b "ü"')) == ["c", "a"]
        assert (
            listed(store, cwd="\ud800") == listed(store, label=("\ud800", "x")) == listed(store, title="\ud800") == []
        )

    def test_b16_few_of_many_are_listed_in_order(self, store: StoreInContract) -> None:
        """Wherever they stand, paged, and not those that an append has moved away from there."""
        backend = store.open()
        ids = [f"s-{number}" for number in range(3000)]
        for first in range(0, 3000, 500):
            wanted = ids[first : first + 500]
            backend.commit(
                [creation(id, event(id, 0), labels={"few": "1" if id[-3:] == "007" else "0"}) for id in wanted]
            )
        appended(backend, Append("s-1007", 1, 1, event("s-1007", 1)))
        appended(backend, Append("s-7", 1, 1, b"", {"labels": {"few": "1"}}))
        expected = ["s-1007", "s-2007", "s-7"]
        assert listed(store, label=("few", "1")) == expected
        with reading(store) as reader:
            newest, next_one = reader.rows(2, label=("few", "1"))
            assert [newest.id, next_one.id] == expected[:2]
            rest = reader.rows(5, (next_one.position, next_one.id), label=("few", "1"), kind="session")
            assert [row.id for row in rest] == expected[2:]

    def test_b16_ids_are_listed_by_their_beginnings(self, store: StoreInContract) -> None:
        """In their order, with those that nobody owns and those that are deleted; by what can be no id, none."""
        backend = store.open()
        backend.commit(
            [creation("task-b", event("task-b", 0)), post("task-a", "k"), post("task-c-1", "k"), post("t", "k")]
        )
        appended(backend, Append("task-b", 1, 1, b"", {"owner": None}))
        appended(backend, Patch("task-b", {"deleted": 5}))
        with reading(store) as reader:
            assert reader.ids_beginning("task-", 9) == ["task-a", "task-b", "task-c-1"]
            assert reader.ids_beginning("task-", 2) == ["task-a", "task-b"]
            assert reader.ids_beginning("task-c-1", 9) == ["task-c-1"]
            assert [reader.ids_beginning(wrong, 9) for wrong in ("task-d", "Task", "\ud800", "x" * 99)] == [[]] * 4

    def test_b16_only_its_owner_changes_the_rest_of_a_summary(self, store: StoreInContract) -> None:
        """Title, labels and deletion are anyone's; None removes; the rest needs the epoch, and gives whole values."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0), labels={"x": "1", "y": "2"}, open_turn=0))
        assert appended(backend, Patch("a", {"title": "new", "labels": {"x": "3", "y": None}})) == Appended(1, 1, 0)
        refused(InvalidLine, answer_to(backend, Patch("a", {"title": "t", "owner": None})))
        refused(Fenced, answer_to(backend, Append("a", 7, 1, b"", {"open_turn": None})))
        appended(backend, Append("a", 1, 1, b"", {"open_turn": None}))
        expected = {"kind": "session", "owner": owner("a"), "title": "new", "labels": {"x": "3"}}
        for backend in reopened(store):
            assert backend.row("a").summary == expected

    def test_b16_who_changes_labels_changes_no_other(self, store: StoreInContract) -> None:
        """Each is merged with what is there, also within one commit, and with what their owner said in it."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0), labels={"x": "1"}))
        backend.commit(
            [
                Patch("a", {"labels": {"y": "2"}}),
                Append("a", 1, 1, event("a", 1), {"labels": {"z": "3", "w": "4"}}),
                Patch("a", {"labels": {"x": "5", "w": None}}),
                Patch("a", {"labels": {"v": "6"}, "title": "t"}),
            ]
        )
        for again in reopened(store):
            backend = again
            assert backend.row("a").summary["labels"] == {"x": "5", "z": "3", "v": "6"}
        appended(backend, Patch("a", {"labels": {"x": None, "z": None, "v": None, "never": None}}))
        appended(backend, creation("b", event("b", 0), labels={"x": "1"}))
        appended(backend, Patch("b", {"labels": None}))
        for again in reopened(store):
            assert [again.row(id).summary.get("labels") for id in "ab"] == [None, None]

    def test_b16_a_damaged_stream_is_one_marked_row(self, store: StoreInContract) -> None:
        """It hides no other: all are listed and found, and the others are read and gone on with as ever."""
        backend = store.open()
        ids = ("a", "b", "c")
        backend.commit([creation(id, event(id, 0), labels={"team": "red"}) for id in ids])
        for id in ids:
            appended(backend, Append(id, 1, 1, event(id, 1)))
        appended(backend, Append("c", 1, 2, event("c", 2)))
        store.close()
        store.damage("b")
        store.open()
        for backend in reopened(store):
            with reading(store) as reader:
                rows = {row.id: row for row in reader.rows(10)}
                assert set(rows) == set(ids)
                assert [id for id in ids if rows[id].summary.get("damaged")] == ["b"]
                assert reader.row("b") == backend.row("b") == rows["b"]
                assert (reader.resolve("b"), backend.resolve("b")) == ("b", "b")
            assert {"a", "c"} <= set(listed(store, label=("team", "red")))
            assert content(store, "a") == b"".join(event("a", seq) for seq in range(rows["a"].head))
            head = rows["a"].head
            assert appended(backend, Append("a", 1, head, event("a", head))).head == head + 1
