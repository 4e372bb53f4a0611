"""What a client asks its store's node about tasks, without I/O: numbered, answered in any order, asked again elsewhere.

Requests outlive the connection: after a re-attachment all that are unanswered go out once more, to what may be another
node, in the order in which they were asked. So what is asked has to mean the same when it is asked twice. Whoever
drives this takes `next_output` whenever `wake` was called, hands what arrives to `receive`, and says `lost` when the
connection has ended. Who stops waiting abandons his request, and the node is told so, as it may hold something for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnkeeper.runtime.frames import FrameError, encode_frame

from ..protocol import FORGET, error_from_wire
from .control_request import Request


class NodeRequests:
    """One client's requests to the node, whichever process that is. `refusal` is why nothing can be asked any more."""

    def __init__(self) -> None:
        self.wake: Callable[[], object] | None = None
        self.refusal: Exception | None = None
        self._last_number = 0
        self._unanswered: dict[int, tuple[Request, bytes]] = {}
        self._unsent: dict[int, None] = {}
        self._abandoned: list[int] = []

    def ask(self, op: str, **what: Any) -> Request:
        """Ask the node something. The request fails when the store can't be reached.

        Raises FrameError for more than a frame holds, TypeError for what can't cross; then nothing was asked.
        """
        number = self._last_number + 1
        request = Request({"op": op, "id": number, **what}, for_caller=True)
        if self.refusal is not None:
            request.answer(None, self.refusal)
            return request
        frame = encode_frame(request.message)
        self._last_number = number
        self._unanswered[number] = request, frame
        self._unsent[number] = None
        self._wake_up()
        return request

    def abandon(self, request: Request) -> None:
        """Take no interest any more in a request; the node is told, if it has heard of it. What it began goes on."""
        request.wake = None
        self._drop(request.message["id"])

    def _drop(self, number: int) -> None:
        if self._unanswered.pop(number, None) is None:
            return
        if number in self._unsent:
            del self._unsent[number]
        else:
            self._abandoned.append(number)
            self._wake_up()

    # -- What the driver does

    def next_output(self) -> bytes:
        """Give the bytes to send next, empty if there are none."""
        parts = [self._unanswered[number][1] for number in self._unsent]
        self._unsent.clear()
        if self._abandoned:
            parts.append(encode_frame({"op": FORGET, "ids": self._abandoned}))
            self._abandoned = []
        return b"".join(parts)

    def receive(self, message: dict[str, Any]) -> None:
        """Take what the node says, if it answers something; an answer that nobody waits for any more is nothing.

        Raises FrameError if it answers what was never asked.
        """
        if "re" not in message:
            return
        number = message["re"]
        if number.__class__ is not int or not 0 < number <= self._last_number:
            raise FrameError(f"the node answered what nobody asked: {message!r:.100}")
        request, _ = self._unanswered.pop(number, (None, b""))
        self._unsent.pop(number, None)
        if request is not None:
            is_error = "error" in message
            request.answer(None if is_error else message, error_from_wire(message) if is_error else None)

    def lost(self) -> None:
        """Take note that the connection has ended: everything unanswered goes out again on the next one."""
        self._unsent = dict.fromkeys(self._unanswered)
        self._abandoned.clear()

    def fail(self, error: Exception) -> None:
        """Tell all who wait that the store can't be reached at present; what they asked may have been done."""
        for number, (request, _) in list(self._unanswered.items()):
            self._drop(number)
            request.answer(None, error)

    def end(self, refusal: Exception, *, wake: bool = True) -> None:
        """Answer everything with `refusal`, now and from now on.

        Without `wake` nobody who waits is told: after a fork those are the parent's.
        """
        self.refusal = refusal
        unanswered, self._unanswered = self._unanswered, {}
        self._unsent.clear()
        self._abandoned.clear()
        for request, _ in unanswered.values():
            request.answer(None, refusal, wake=wake)

    def _wake_up(self) -> None:
        if self.wake is not None:
            self.wake()
