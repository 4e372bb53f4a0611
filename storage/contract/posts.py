"""What anybody may add to streams that nobody owns: numbered where it is stored, once for its key."""

from __future__ import annotations

from dataclasses import replace

from ..errors import (
    BlobMissing,
    Conflict,
    Exists,
    Failed,
    Fenced,
    InvalidFork,
    InvalidLine,
    NotFound,
    TooLarge,
    WrongKind,
)
from ..limits import LINE_BYTES_MAX
from ..requests import Append, Appended, Grant, Patch, Request
from .asking import answer_to, appended, creation, event, fork, granted, owner, post, raised, refused
from .looking import content, listed, reading, reopened
from .stores import StoreInContract


class PostClauses:
    """Clauses B3 to B5, B8 to B10, B16 and B22, of posts."""

    def test_b3_the_first_post_makes_its_stream(self, store: StoreInContract) -> None:
        """With the header that it brings, under epoch 0; later headers change nothing, and a refused one makes none."""
        backend = store.open()
        refused(InvalidLine, answer_to(backend, post("No Id", "k")))
        refused(InvalidLine, answer_to(backend, replace(post("i", "k"), tail=b"{}")))
        raised(NotFound, lambda: backend.row("i"))
        assert appended(backend, post("i", "k")) == Appended(0, 1, 1)
        assert appended(backend, replace(post("i", "l"), header={"kind": "other"})) == Appended(1, 2, 2)
        for backend in reopened(store):
            assert backend.row("i")[:4] == ("i", 2, 0, 2)
            assert backend.row("i").summary == {"kind": "inbox"}
        assert content(store, "i") == event("i", 0) + event("i", 1)

    def test_b5_posts_and_appends_of_one_commit_are_answered_in_order(self, store: StoreInContract) -> None:
        """Each post gets the next number, whoever posts, and a refused neighbour takes none."""
        backend = store.open()
        requests: list[Request] = [
            creation("a", event("a", 0)),
            post("i", "k"),
            replace(post("i", "bad"), tail=b'"time":1,"type":"x/y","data":[]}\n'),
            post("i", "l"),
            post("j", "k"),
            post("i", "k"),
            post("i", "k", "else"),
        ]
        answers = backend.commit(requests)
        assert [type(answer) for answer in answers] == [
            Appended,
            Appended,
            InvalidLine,
            Appended,
            Appended,
            Appended,
            Conflict,
        ]
        assert [answer.first for answer in answers if isinstance(answer, Appended)] == [0, 0, 1, 0, 0]
        assert content(store, "i") == event("i", 0) + event("i", 1)

    def test_b5_any_number_of_posts_to_one_stream_is_stored(self, store: StoreInContract) -> None:
        """More keys than one patch holds."""
        backend = store.open()
        answers = backend.commit([post("i", f"key {number}") for number in range(300)])
        assert [answer.first for answer in answers if isinstance(answer, Appended)] == list(range(300))
        for backend in reopened(store):
            assert appended(backend, post("i", "key 299")).first == 299

    def test_b5_posts_that_are_joined_are_stored_together(self, store: StoreInContract) -> None:
        """However many there are and whatever of them is refused; a commit that fails before its end stores neither."""
        backend = store.open()
        pairs = [(post("i", f"key {number}"), post("j", f"key {number}", joined=True)) for number in range(200)]
        requests: list[Request] = [each for pair in pairs for each in pair]
        store.fail_next_commit(stored=False)
        raised(Failed, lambda: backend.commit(requests[:2]))
        store.die()
        backend = store.open()
        for stream in "ij":
            raised(NotFound, lambda stream=stream: backend.row(stream))  # type: ignore[misc]
        requests[2:2] = [post("i", "key 0", "else"), post("j", "new", joined=True)]
        answers = backend.commit(requests)
        assert [type(answer) for answer in answers] == [Appended, Appended, Conflict, *[Appended] * 399]
        for backend in reopened(store):
            assert (backend.row("i").head, backend.row("j").head) == (200, 201)

    def test_b8_a_post_is_stored_once_for_its_key(self, store: StoreInContract) -> None:
        """Sent again at any time it gets its number; other content under its key conflicts, and names the key."""
        backend = store.open()
        first = appended(backend, post("i", "k", "once", time=5))
        appended(backend, post("i", "l"))
        for backend in reopened(store):
            assert appended(backend, post("i", "k", "once", time=9)) == first
            assert refused(Conflict, answer_to(backend, post("i", "k", "else"))).key == "k"
        assert backend.next_position == 3

    def test_b8_a_post_that_is_no_event_is_refused(self, store: StoreInContract) -> None:
        """Two events, a raw newline, a lost end, anything before the time, too long a line, a patch with a name."""
        backend = store.open()
        appended(backend, post("i", "k"))
        whole = post("i", "l")
        for tail in (
            whole.tail + event("i", 2),
            b'"time":1,"type":"x/y","data":{"t":"one\ntwo"}}\n',
            whole.tail[:-1],
            b'"more":1,' + whole.tail,
            b"",
        ):
            refused(InvalidLine, answer_to(backend, replace(whole, tail=tail)))
        long = whole.tail.replace(b"hello", b"x" * LINE_BYTES_MAX)
        refused(TooLarge, answer_to(backend, replace(whole, tail=long)))
        refused(InvalidLine, answer_to(backend, replace(whole, patch={"key": "name"})))
        refused(BlobMissing, answer_to(backend, replace(whole, patch={"blobs": ["0" * 64]})))
        assert content(store, "i") == event("i", 0)
        assert appended(backend, whole).first == 1

    def test_b9_nobody_can_own_a_stream_without_owner(self, store: StoreInContract) -> None:
        """No grant, no append under an epoch, no fork; and no post goes to a stream that has an owner."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        appended(backend, post("i", "k"))
        for backend in reopened(store):
            refusal = refused(WrongKind, answer_to(backend, Grant("i", owner("t"), takeover=True)))
            assert (refusal.id, refusal.kind) == ("i", "inbox")
            refused(Fenced, answer_to(backend, Append("i", 1, 1, event("i", 1))))
            refused(Exists, answer_to(backend, creation("i", event("i", 0, "other"))))
            refused(InvalidFork, answer_to(backend, fork("c", "i", 1)))
            refused(Exists, answer_to(backend, post("a", "k")))
            assert backend.row("i")[:3] == ("i", 1, 0)
        appended(backend, Patch("i", {"deleted": 5}))
        assert listed(store) == ["a"]

    def test_b9_a_post_in_a_streams_name_is_its_owners(self, store: StoreInContract) -> None:
        """Who was taken over can't post in its name any more, also within one commit; what was stored is answered."""
        backend = store.open()
        appended(backend, creation("a", event("a", 0)))
        refused(NotFound, answer_to(backend, post("i", "k", author=("b", 1))))
        first = appended(backend, post("i", "k", author=("a", 1)))
        late = post("i", "l", author=("a", 1))
        answers = backend.commit([Grant("a", owner("second")), late, post("i", "m", author=("a", 2))])
        assert [type(answer) for answer in answers[1:]] == [Fenced, Appended]
        for backend in reopened(store):
            refusal = refused(Fenced, answer_to(backend, late))
            assert (refusal.stream, (refusal.owner or {}).get("token")) == ("a", "second")
            assert appended(backend, post("i", "k", author=("a", 1))) == first

    def test_b16_a_stream_without_owner_answers_to_its_whole_id(self, store: StoreInContract) -> None:
        """A beginning that it shares with another stream's id is that one's; it is listed by its kind and counted."""
        backend = store.open()
        appended(backend, creation("inboard-owl", event("inboard-owl", 0)))
        appended(backend, post("inbox-owl", "k"))
        for again in reopened(store):
            assert (again.statistics()["streams"], again.statistics()["ownerless"]) == (2, 1)
            with reading(store) as reader:
                for resolve in (again.resolve, reader.resolve):
                    assert resolve("inbo") == "inboard-owl"
                    assert resolve("inbox-owl") == "inbox-owl"
                    raised(NotFound, lambda resolve=resolve: resolve("inbox"))  # type: ignore[misc]
        assert listed(store, kind="inbox") == ["inbox-owl"]
        granted(again, Grant("inboard-owl", owner("t")))
        assert again.statistics()["ownerless"] == 1

    def test_b22_a_full_disk_takes_no_post(self, store: StoreInContract) -> None:
        """StoreFull, unless it is stored already; with space again it is stored once."""
        backend = store.open()
        appended(backend, post("i", "k"))
        store.is_full = True
        requests: list[Request] = [post("i", "k"), post("i", "l"), post("j", "k")]
        assert [type(answer).__name__ for answer in backend.commit(requests)] == ["Appended", "StoreFull", "StoreFull"]
        store.is_full = False
        assert [answer[0] for answer in backend.commit(requests) if isinstance(answer, Appended)] == [0, 1, 0]
