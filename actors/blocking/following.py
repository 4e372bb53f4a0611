"""Following for plain programs: each `next` waits for an event."""

from __future__ import annotations

from ..reading.following import Following
from ..records import Event
from .loop import Loop


class BlockingFollowing:
    """`Following`, as a plain iterator; after an error that says so, as of damaged events, the next `next` goes on."""

    def __init__(self, loop: Loop, following: Following) -> None:
        self._loop = loop
        self._following = following

    def __iter__(self) -> BlockingFollowing:
        return self

    def __next__(self) -> Event:
        return self._loop.call(self._following.__anext__)
