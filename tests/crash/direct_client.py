"""A client whose writer is in the same process and the same loop: what it sends is carried out when it waits.

So what is written through the client's own code comes to a simulated disk, and can end in any operation on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from turnkeeper.actors.client.link import Link
from turnkeeper.actors.client.owned_stream import OwnedStream
from turnkeeper.actors.ids import new_token
from turnkeeper.actors.protocol import OPEN, error_to_wire
from turnkeeper.actors.writer.openings import Openings
from turnkeeper.actors.writer.requests import appends_from_wire, opening_from_wire
from turnkeeper.runtime.frames import FrameDecoder
from turnkeeper.storage.errors import StorageError
from turnkeeper.storage.journal import Journal
from turnkeeper.storage.reading import Reader
from turnkeeper.storage.requests import Grant, Granted, Result

from ..simulated_disk import SimulatedDisk

Answer = TypeVar("Answer")


class DirectClient:
    """Has of `Client` what a repair needs."""

    def __init__(self, path: Path, journal: Journal, disk: SimulatedDisk) -> None:
        self.link = Link(clock=lambda: 0.0)
        self.reads = self.blobs = self
        self._journal = journal
        self._openings = Openings(journal, lambda who: True)
        self._reader = Reader(str(path), journal._index, disk, contextlib.ExitStack())
        self._decoder = FrameDecoder()

    async def call(self, function: Callable[[Reader], Answer]) -> Answer:
        """Read."""
        return function(self._reader)

    async def named_by(self, line: bytes) -> list[str]:
        """Name the blobs of a line: there are none here."""
        return []

    async def open_stream(
        self, wanted: str, *, create: Mapping[str, Any], known: Sequence[str]
    ) -> tuple[OwnedStream, dict[str, Any]]:
        """Ask for a stream; it is granted or reserved at once."""
        owner = {"boot": "b", "pid": 1, "start": 1, "host": "here", "token": new_token()}
        header = {**create, "owner": owner}
        message: dict[str, Any] = {"op": OPEN, "wanted": wanted, "owner": owner, "takeover": False, "create": header}
        message["known"] = list(known)
        request = self.link.ask(message)
        self._exchange()
        if request.error is not None:
            raise request.error
        assert request.reply is not None
        return self.link.own_opened(request), request.reply

    async def wait_change(self, stream: OwnedStream) -> None:
        """Let the writer answer."""
        self._exchange()

    async def wait_until(self, stream: OwnedStream, condition: Callable[[], bool]) -> None:
        """Let the writer answer until the condition holds."""
        while not condition():
            self._exchange()

    def _exchange(self) -> None:
        messages = self._decoder.feed(self.link.next_output())
        assert messages, "waits for nothing"
        for message in messages:
            if isinstance(message, list):
                results = self._journal.commit(appends_from_wire(message[1]))
                self.link.receive([message[0], [_on_the_wire(result) for result in results]])
            else:
                self.link.receive({"re": message["id"], **self._open(message)})
            self._journal.between_commits()

    def _open(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        decision = self._openings.decide(opening_from_wire(message), self)
        if not isinstance(decision, Grant):
            return error_to_wire(decision) if isinstance(decision, StorageError) else decision
        (result,) = self._journal.commit([decision])
        assert isinstance(result, Granted), result
        return {"stream": decision.stream, "new": False, **result._asdict()}


def _on_the_wire(result: Result) -> Any:
    return error_to_wire(result) if isinstance(result, StorageError) else list(result)


def finished(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Carry out what never waits for a loop, and give what it returns."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: Answer = end.value
        return answer
    finally:
        work.close()
    raise AssertionError("it waits for something")
