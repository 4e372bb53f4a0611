"""The writer's side of inboxes: where a message goes, and who is told of it. In memory; the backend stores.

An owner that has nothing left to do listens: it is answered when a message is stored, mostly with the message itself,
so that nobody but the one concerned wakes. It is answered, too, when somebody else was granted its session: an owner
that only waits learns at once that it has lost it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from turnkeeper.runtime.frames import encode_frame
from turnkeeper.storage.backend import Backend
from turnkeeper.storage.errors import Deleted, Fenced, NotFound, StorageError, WrongKind
from turnkeeper.storage.format import event_prefix
from turnkeeper.storage.limits import KIB
from turnkeeper.storage.requests import OWNERLESS, Appended, Grant, Granted, Post, Request, Result, StreamRow

from ..ids import inbox_id
from ..kinds import INBOX, SESSION, kind_of
from ..peers import Peer
from ..protocol import error_to_wire
from .requests import Listening, Sending
from .reservations import Reservations

NEWS_BYTES_MAX = 64 * KIB
"""Messages, in bytes of lines, that come with the news of them; what is larger is read from the store."""


class Listener(NamedTuple):
    """Who waits for an inbox's message `next`, and the number of its request."""

    client: Peer
    number: int
    asked: Listening


class Inboxes:
    """The inboxes of one store. `reservations` are the names of sessions of which nothing is stored yet."""

    def __init__(self, backend: Backend, reservations: Reservations) -> None:
        self._backend = backend
        self._reservations = reservations
        self._listeners: defaultdict[str, list[Listener]] = defaultdict(list)

    # -- Sending

    def decide(self, sending: Sending) -> Post | StorageError:
        """Return what is to be committed for a message, or why it can't be sent."""
        if self._reservations.find(sending.to) is not None:
            return NotFound(sending.to)  # and not a session whose id begins so
        try:
            row = self._backend.row(self._backend.resolve(sending.to))
        except StorageError as error:
            return error
        if row.epoch == OWNERLESS:
            return WrongKind(row.id, kind_of(row), SESSION)
        if row.summary.get("deleted"):
            return Deleted(row.id)
        patch = {"blobs": sending.blobs} if sending.blobs else None
        return Post(inbox_id(row.id), sending.tail, sending.key, {"kind": INBOX}, patch, sending.author)

    # -- Listening

    def listen(self, client: Peer, number: int, asked: Listening) -> None:
        """Answer at once if there is news, else as soon as there is."""
        session, inbox = self._row(asked.session), self._row(inbox_id(asked.session))
        if session is not None and session.epoch != asked.epoch:
            _tell(client, number, error_to_wire(Fenced(session.id, session.summary.get("owner"))))
        elif inbox is not None and inbox.head > asked.next:
            _tell(client, number, _news(inbox.head))
        else:
            self._listeners[inbox_id(asked.session)].append(Listener(client, number, asked))

    def unlisten(self, client: Peer, asked: Listening) -> None:
        """Answer who listens no more, without news."""
        for listener in self._take(inbox_id(asked.session), lambda each: each.client is client and each.asked == asked):
            _tell(client, listener.number, _news(asked.next))

    def forget(self, client: Peer) -> None:
        """Drop what a connection that has ended waited for."""
        for inbox in list(self._listeners):
            self._take(inbox, lambda listener: listener.client is client)

    def tell(self, requests: Sequence[Request], results: Sequence[Result]) -> None:
        """Answer those whom a commit concerns."""
        if not self._listeners:
            return
        posted: defaultdict[str, list[tuple[int, bytes]]] = defaultdict(list)
        for request, result in zip(requests, results, strict=True):
            if request.__class__ is Post and isinstance(result, Appended):
                if request.stream in self._listeners:
                    posted[request.stream].append((result.first, request.tail))
            elif request.__class__ is Grant and isinstance(result, Granted):
                self._tell_fenced(request.stream, result)
        for inbox, tails in posted.items():
            self._tell_news(inbox, dict(tails))

    def _tell_news(self, inbox: str, tails: dict[int, bytes]) -> None:
        head = max(tails) + 1
        for listener in self._take(inbox, lambda each: each.asked.next < head):
            numbers = range(listener.asked.next, head)
            is_whole = all(seq in tails for seq in numbers)
            lines = b"".join(event_prefix(inbox, seq) + tails[seq] for seq in numbers) if is_whole else b""
            _tell(listener.client, listener.number, _news(head, lines if len(lines) <= NEWS_BYTES_MAX else b""))

    def _tell_fenced(self, session: str, granted: Granted) -> None:
        for listener in self._take(inbox_id(session), lambda each: each.asked.epoch != granted.epoch):
            fenced = Fenced(session, granted.summary.get("owner"))
            _tell(listener.client, listener.number, error_to_wire(fenced))

    def _take(self, inbox: str, concerns: Callable[[Listener], bool]) -> list[Listener]:
        """Take out those listeners of an inbox whom something concerns."""
        listeners = self._listeners.pop(inbox, [])
        others = [each for each in listeners if not concerns(each)]
        if others:
            self._listeners[inbox] = others
        return [each for each in listeners if concerns(each)]

    def _row(self, id: str) -> StreamRow | None:
        try:
            return self._backend.row(id)
        except NotFound:
            return None


def _news(head: int, lines: bytes = b"") -> dict[str, Any]:
    """Make the answer that an inbox has `head` messages; `lines` are those that are new, if they are few."""
    return {"head": head, "lines": lines}


def _tell(client: Peer, number: int, answer: dict[str, Any]) -> None:
    client.tell(encode_frame({"re": number, **answer}))
