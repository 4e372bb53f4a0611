"""Unit: the writer's side of inboxes: where a message goes, and who is told of what a commit has done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from turnkeeper.actors.peers import Peer
from turnkeeper.actors.writer.inboxes import NEWS_BYTES_MAX, Inboxes
from turnkeeper.actors.writer.requests import Listening, Sending
from turnkeeper.actors.writer.reservations import Reservations
from turnkeeper.runtime.frames import FrameDecoder
from turnkeeper.storage.contract import creation, event, owner, post
from turnkeeper.storage.errors import Ambiguous, Deleted, NotFound, WrongKind
from turnkeeper.storage.requests import Append, Grant, Patch, Post, Request

from ..stores import StoreInTest, new_store

TAIL = post("inbox-otter", "k").tail


class Listener:
    """A connection that keeps what it is told."""

    def __init__(self) -> None:
        self._decoder = FrameDecoder()
        self._told: list[Any] = []

    def tell(self, frame: bytes) -> None:
        """Keep a frame."""
        self._told += self._decoder.feed(frame)

    @property
    def told(self) -> list[Any]:
        """Take what it was told since it was last asked."""
        told, self._told = self._told, []
        return told


class Commits:
    """A journal with the inboxes beside it, as the writer drives them."""

    def __init__(self, store: StoreInTest) -> None:
        self.journal = store.open()
        self.reservations = Reservations(lambda who: False)
        self.inboxes = Inboxes(self.journal, self.reservations)
        self.commit([creation("otter", event("otter", 0), key="issue 1"), creation("owl", event("owl", 0))])

    def commit(self, requests: Sequence[Request]) -> None:
        """Commit requests and tell those whom it concerns."""
        self.inboxes.tell(requests, self.journal.commit(requests))

    def post(self, *keys: str, text: str = "hello") -> None:
        """Post messages to the otter's inbox, in one commit."""
        self.commit([post("inbox-otter", key, text) for key in keys])

    def listen(self, next: int, *, number: int = 1, session: str = "otter", epoch: int = 1) -> Listener:
        """Listen over a new connection."""
        listener = Listener()
        self.inboxes.listen(cast("Peer", listener), number, Listening(session, epoch, next))
        return listener


@pytest.fixture
def commits(tmp_path: Path) -> Iterator[Commits]:
    """A store with two sessions."""
    with new_store(tmp_path / "store") as store:
        yield Commits(store)


def news(number: int, head: int, *seqs: int, text: str = "hello") -> list[dict[str, Any]]:
    """Make the answer that tells of messages, which come with it."""
    return [{"re": number, "head": head, "lines": b"".join(event("inbox-otter", seq, text) for seq in seqs)}]


def test_a_message_goes_to_the_inbox_of_the_session_that_is_meant(commits: Commits) -> None:
    """By id, beginning or key; with a header for the first one, and with the blobs and the author that it brings."""
    for to in ("otter", "ot", "issue 1"):
        decision = commits.inboxes.decide(Sending(to, TAIL, "k", ["d"], ("owl", 1)))
        assert decision == Post("inbox-otter", TAIL, "k", {"kind": "inbox"}, {"blobs": ["d"]}, ("owl", 1))


def test_a_message_for_what_is_no_session_is_refused(commits: Commits) -> None:
    """Unknown, ambiguous, an inbox itself, and a session that was deleted."""
    commits.post("k")
    commits.commit([Append("owl", 1, 1, b"", {"owner": None}), Patch("owl", {"deleted": 5})])
    commits.commit([creation("otis", event("otis", 0))])
    refusals = {"nobody": NotFound, "ot": Ambiguous, "inbox-otter": WrongKind, "owl": Deleted}
    for to, refusal in refusals.items():
        assert isinstance(commits.inboxes.decide(Sending(to, TAIL, "k", [], None)), refusal), to


def test_a_name_that_is_only_reserved_is_no_beginning_of_another(commits: Commits) -> None:
    """A message for a session of which nothing is stored yet doesn't go to one whose id begins like its key."""
    commits.reservations.reserve("new", "ot", owner("t"), None)
    assert isinstance(commits.inboxes.decide(Sending("ot", TAIL, "k", [], None)), NotFound)
    commits.reservations.settle("new")
    assert isinstance(commits.inboxes.decide(Sending("ot", TAIL, "k", [], None)), Post)


def test_who_listens_gets_the_messages_of_a_commit_with_the_news(commits: Commits) -> None:
    """Those from the number it waits for on, each once; it is told once, and others aren't told at all."""
    first, owl = commits.listen(0), commits.listen(0, session="owl")
    commits.post("k", "l", "k")
    assert first.told == news(1, 2, 0, 1)
    second = commits.listen(2, number=7)
    commits.post("m")
    assert (first.told, second.told, owl.told) == ([], news(7, 3, 2), [])


def test_a_message_that_was_known_is_no_news(commits: Commits) -> None:
    """It was sent again, and stored before."""
    commits.post("k")
    listener = commits.listen(1)
    commits.post("k")
    assert listener.told == []


def test_large_news_come_without_the_messages(commits: Commits) -> None:
    """They are read from the store."""
    listener = commits.listen(0)
    commits.post("k", text="x" * NEWS_BYTES_MAX)
    assert listener.told == news(1, 1)


def test_who_listens_too_late_is_answered_at_once(commits: Commits) -> None:
    """There are messages that it doesn't know; it reads them from the store."""
    commits.post("k", "l")
    assert commits.listen(1, number=5).told == news(5, 2)


def test_an_owner_who_lost_its_session_is_told(commits: Commits) -> None:
    """While it listens, and when it begins to after that; the new owner and others go on listening."""
    before, owl = commits.listen(0), commits.listen(0, session="owl")
    commits.commit([Grant("otter", owner("second"), takeover=True)])
    (told,) = before.told
    assert (told["re"], told["error"], told["args"][1]["token"]) == (1, "Fenced", "second")
    after, new = commits.listen(0, number=2), commits.listen(0, epoch=2)
    assert [each["error"] for each in after.told] == ["Fenced"]
    commits.post("k")
    assert (before.told, owl.told, new.told) == ([], [], news(1, 1, 0))


def test_who_listens_no_more_is_told_nothing(commits: Commits) -> None:
    """Having said so it is answered without news; having ended its connection, not at all."""
    first, second, third = commits.listen(0), commits.listen(0), commits.listen(0)
    commits.inboxes.unlisten(cast("Peer", first), Listening("otter", 1, 0))
    commits.inboxes.forget(cast("Peer", second))
    commits.post("k")
    assert (first.told, second.told, third.told) == (news(1, 0), [], news(1, 1, 0))
