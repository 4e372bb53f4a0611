"""The client's side of the writer's protocol, without I/O: what to send next, and what an answer means.

A link outlives its connections. Whatever drives it takes `next_output` whenever `wake` was called, hands what arrives
to `receive`, says `lost` when a connection has ended, and calls `tick` at `alarm`. All streams that want to be sent
when `next_output` is called go in one frame, so that everything that one turn of the loop flushes is one commit's.

After a lost connection everything unanswered goes out again, in order: control requests first (what they ask is the
same when asked twice), then each stream's unanswered group, byte for byte. A stream that is only reserved, which the
writer forgot with the connection, asks for its reservation before its first lines go.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from turnkeeper.runtime.frames import FrameError, encode_frame
from turnkeeper.storage.errors import BlobMissing, Exists, StorageError

from ..protocol import ERROR, OPEN, RELEASE, error_from_wire
from .control_request import Request
from .owned_stream import Entry, OwnedStream

WINDOW_SECONDS = 0.2
"""How long the first event that nobody flushed waits for company."""

FRAME_BYTES_AIM = 1024 * 1024
"""Lines in one frame, in bytes, at which the next streams go in the next frame."""

COMPANY_STREAMS_MIN = 32
"""How many streams have to wait at least before a frame goes out within a turn of the loop that may bring more."""

BUFFER_BYTES_MAX = 32 * 1024 * 1024
"""Lines that wait or are unanswered, over all streams of a link; with this many an append waits."""


class Link:
    """The state of one client: its streams, what is unanswered, what is to be sent. `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.wake: Callable[[], object] | None = None
        self.wake_alarm: Callable[[], object] | None = None
        self.wake_space: Callable[[], object] | None = None
        self.put_blob_again: Callable[[OwnedStream, BlobMissing], object] | None = None
        self.blobs_named: Callable[[Sequence[str]], object] | None = None
        self.buffered_bytes = 0
        self.refusal: Exception | None = None
        self._clock = clock
        self._streams: set[OwnedStream] = set()
        self._dirty: list[OwnedStream] = []
        self._frame_numbers = count(1)
        self._frames: deque[tuple[int, list[OwnedStream]]] = deque()
        self._last_frame_streams = 0
        self._unanswered = 0
        self._request_numbers = count(1)
        self._requests: dict[int, Request] = {}
        self._unsent_requests: deque[Request] = deque()
        self._timers: list[tuple[float, int, OwnedStream]] = []
        self._timer_numbers = count()

    # -- Streams

    @property
    def is_full(self) -> bool:
        """Say whether an append has to wait for space in the buffer."""
        return self.buffered_bytes >= BUFFER_BYTES_MAX

    @property
    def streams(self) -> list[OwnedStream]:
        """The streams that are open through this link."""
        return list(self._streams)

    def own(self, id: str, epoch: int, head: int, reservation: dict[str, Any] | None = None) -> OwnedStream:
        """Keep a stream from now on. `reservation` is the request that reserved it, if nothing of it is stored."""
        stream = OwnedStream(self, id, epoch, head, reservation)
        self._streams.add(stream)
        return stream

    def release(self, stream: OwnedStream) -> Request | None:
        """Give a stream up once everything of it is stored; nothing may be added to it from now on.

        Returns the request that gives a mere reservation back, or None: then the stream settles when it is released.
        """
        if stream.text is not None and not stream.barred:
            stream.text.cut()
        stream.leaving = True
        if stream.reservation is not None and stream.is_settled:
            self._streams.discard(stream)
            token = stream.reservation["owner"]["token"]
            return self.ask({"op": RELEASE, "stream": stream.id, "token": token}, for_caller=True)
        stream.patch({"owner": None})
        self.request_flush(stream)
        return None

    def lose(self, stream: OwnedStream, refusal: StorageError) -> None:
        """Let go of a stream that the writer says is another's now. Nothing of it may wait to be stored."""
        stream.end(refusal)
        self._streams.discard(stream)

    def request_flush(self, stream: OwnedStream) -> None:
        """Send what the stream has as soon as its unanswered group, if there is one, is answered."""
        stream.wanted = True
        if not (stream.queued or stream.flying or stream.asking or stream.putting_blob):
            stream.queued = True
            self._dirty.append(stream)
            self._wake_up()

    def begin_window(self, stream: OwnedStream) -> None:
        """Note that a first line waits: unless it is flushed before, it is sent when the window ends.

        Behind a refused group it goes when that is tried again.
        """
        if not (stream.retries and stream.timed):
            self._send_later(stream, WINDOW_SECONDS)

    def retry_later(self, stream: OwnedStream, delay: float) -> None:
        """Send the stream's refused group again after `delay` seconds, or with its next flush if that is earlier."""
        stream.wanted = True
        self._send_later(stream, delay)

    # -- Blobs

    def forget_blobs(self, digests: Sequence[str]) -> None:
        """Tell whoever drives the link that these blobs are named by what is stored: nobody will ask for them again."""
        if self.blobs_named is not None:
            self.blobs_named(digests)

    def put_again(self, stream: OwnedStream, missing: BlobMissing) -> None:
        """Have a blob put again that a stream's group names; the driver says by `blob_settled` what came of it."""
        if self.put_blob_again is None:
            self.blob_settled(stream, missing)
        else:
            self.put_blob_again(stream, missing)

    def blob_settled(self, stream: OwnedStream, failure: StorageError | None) -> None:
        """Send the group again whose blob was put again; or refuse it, if it couldn't be, as the writer had done."""
        stream.putting_blob = False
        if stream.sent is None:
            return  # the stream has ended meanwhile
        if failure is None:
            self.request_flush(stream)
            return
        if not isinstance(failure, BlobMissing):
            stream.blobs_put_again = frozenset()
        stream.refuse(failure)
        if stream.refusal is not None:
            self._streams.discard(stream)

    # -- Time

    @property
    def alarm(self) -> float | None:
        """The time at which `tick` has something to do, on the link's clock; None if there is nothing."""
        return self._timers[0][0] if self._timers else None

    def tick(self) -> None:
        """Send what has waited long enough."""
        now = self._clock()
        while self._timers and self._timers[0][0] <= now:
            _, _, stream = heapq.heappop(self._timers)
            stream.timed = False
            if stream.is_settled and not stream.has_text:
                continue
            if stream.due > now:
                self._set_timer(stream)
                continue
            if stream.text is not None and not stream.text.cut_in_time():
                self._send_later(stream, WINDOW_SECONDS)
            if not stream.is_settled:
                self.request_flush(stream)

    def _send_later(self, stream: OwnedStream, delay: float) -> None:
        stream.due = self._clock() + delay
        if not stream.timed:
            self._set_timer(stream)

    def _set_timer(self, stream: OwnedStream) -> None:
        # One entry a stream at most: a stream that is flushed all the time costs a look per window, not per event.
        stream.timed = True
        heapq.heappush(self._timers, (stream.due, next(self._timer_numbers), stream))
        if self._timers[0][2] is stream and self.wake_alarm is not None:
            wake, self.wake_alarm = self.wake_alarm, None
            wake()

    # -- Control requests

    def ask(self, message: dict[str, Any], *, for_caller: bool = False) -> Request:
        """Ask the writer something; what is asked has to mean the same when it is asked twice."""
        number = next(self._request_numbers)
        request = Request({**message, "id": number}, for_caller=for_caller)
        if self.refusal is not None:
            request.error = self.refusal
            return request
        self._requests[number] = request
        self._unsent_requests.append(request)
        self._wake_up()
        return request

    def abandon(self, request: Request) -> None:
        """Take no interest any more in a request. What an opening may still be granted is released at once."""
        if request.message["op"] != OPEN:
            request.wake = None
            return
        request.for_caller = False
        request.wake = lambda: self._release_unwanted(request)
        if request.is_answered:
            self._release_unwanted(request)

    def _release_unwanted(self, request: Request) -> None:
        if request.reply is not None:
            self.release(self.own_opened(request))

    def own_opened(self, request: Request) -> OwnedStream:
        """Keep the stream that an answered opening has brought."""
        reply = request.reply
        assert reply is not None
        return self.own(reply["stream"], reply["epoch"], reply["head"], request.message if reply["new"] else None)

    # -- What the driver does

    @property
    def goes_at_once(self) -> bool:
        """Say whether what waits should go now, rather than with what the rest of this turn of the loop brings.

        A lone stream's flush finds no company. And once as many streams wait as are unanswered, the writer would only
        wait with us: it commits these while we go on with the others.
        """
        if not self._frames and self._last_frame_streams <= 1:
            return True
        return len(self._dirty) >= max(COMPANY_STREAMS_MIN, self._unanswered)

    def next_output(self) -> bytes:
        """Give the bytes to send next, empty if there are none."""
        parts = [encode_frame(request.message) for request in self._unsent_requests]
        self._unsent_requests.clear()
        if self._dirty and (entries := self._take_dirty()):
            parts.append(encode_frame([self._frames[-1][0], entries]))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take_dirty(self) -> list[Entry]:
        entries: list[Entry] = []
        streams: list[OwnedStream] = []
        size = taken = 0
        for stream in self._dirty:
            if size >= FRAME_BYTES_AIM:
                break
            taken += 1
            stream.queued = False
            if stream.flying or stream.asking:
                continue
            entry = stream.next_entry()
            if entry is not None:
                stream.flying = True
                entries.append(entry)
                streams.append(stream)
                size += len(entry[3])
        del self._dirty[:taken]
        if entries:
            self._frames.append((next(self._frame_numbers), streams))
            self._last_frame_streams = len(streams)
            self._unanswered += len(streams)
        return entries

    def receive(self, message: Any) -> None:
        """Take one message of the writer. Raises FrameError if it is no answer to anything that was sent.

        That what was sent is no request, which would be sent again and again, ends everything with the writer's words.
        """
        if message.__class__ is list and len(message) == 2 and message[1].__class__ is list:
            self._take_results(*message)
        elif message.__class__ is dict and message.get("re") in self._requests:
            self._take_reply(message)
        elif message.__class__ is dict and message.get("op") == ERROR:
            self.end(error_from_wire(message))
        else:
            raise FrameError(f"the writer sent what is no answer: {message!r:.100}")

    def _take_reply(self, message: dict[str, Any]) -> None:
        request = self._requests[message["re"]]
        is_error = "error" in message
        if not is_error and request.message["op"] == OPEN and not _is_opening(message):
            raise FrameError(f"the writer's answer to an opening can't be read: {message!r:.100}")
        del self._requests[message["re"]]
        request.answer(None if is_error else message, error_from_wire(message) if is_error else None)

    def _take_results(self, number: Any, results: Any) -> None:
        if not self._frames or self._frames[0][0] != number or len(results) != len(self._frames[0][1]):
            raise FrameError(f"the writer answered frame {number!r:.20}, which isn't the one that is due")
        _, streams = self._frames.popleft()
        self._unanswered -= len(streams)
        for stream, result in zip(streams, results, strict=True):
            if not stream.flying:
                continue
            if result.__class__ is list and len(result) == 3:
                stream.acknowledge(result[0], result[2])
            elif result.__class__ is dict:
                stream.refuse(error_from_wire(result))
            else:
                raise FrameError(f"the writer sent what is no result: {result!r:.100}")
            if stream.wanted and stream.sent is None:
                self.request_flush(stream)
            if stream.refusal is not None or (stream.leaving and stream.is_settled):
                self._streams.discard(stream)
        self._tell_space()

    def lost(self) -> None:
        """Take note that the connection has ended: everything unanswered goes out again on the next one."""
        self._frames.clear()
        self._unanswered = 0
        self._unsent_requests = deque(self._requests.values())
        for stream in self._streams:
            was_flying, stream.flying = stream.flying, False
            if stream.reservation is not None and not stream.asking:
                self._reserve_again(stream)
            elif was_flying:
                self.request_flush(stream)

    def _reserve_again(self, stream: OwnedStream) -> None:
        stream.asking = True
        request = self.ask(stream.reservation or {})
        request.wake = lambda: self._reserved_again(stream, request)

    def _reserved_again(self, stream: OwnedStream, request: Request) -> None:
        stream.asking = False
        if request.error is not None:
            stream.end(request.error)
            self._streams.discard(stream)
            return
        reply = request.reply
        assert reply is not None
        if not reply["new"]:
            # Its first group was stored and the answer was lost: sending it again, as it was, brings that answer. Later
            # groups go under the epoch that asking gave. With nothing sent, the id has become somebody else's.
            if stream.sent is None:
                stream.end(Exists(stream.id))
                return
            stream.epoch = reply["epoch"]
        if stream.wanted or stream.sent is not None:
            self.request_flush(stream)

    def fail(self, error: Exception) -> None:
        """Tell all who wait, and the owners of what isn't stored yet, that the store can't be reached at present."""
        for stream in self._streams:
            if not stream.is_settled:
                stream.fail(error)
        for number, request in list(self._requests.items()):
            if request.for_caller:
                del self._requests[number]
                request.answer(None, error)
        self._unsent_requests = deque(each for each in self._unsent_requests if not each.is_answered)

    def end(self, refusal: Exception, *, wake: bool = True) -> None:
        """Make every later call and request raise `refusal`; what isn't acknowledged is dropped.

        Without `wake` nobody who waits is told: after a fork those are the parent's.
        """
        self.refusal = refusal
        for stream in self._streams:
            if not wake:
                stream.wake = None
            stream.end(refusal)
        for request in self._requests.values():
            request.answer(None, refusal, wake=wake)
        self._streams.clear()
        self._requests.clear()
        if wake:
            self._tell_space()

    def _tell_space(self) -> None:
        if self.wake_space is not None and not self.is_full:
            wake, self.wake_space = self.wake_space, None
            wake()

    def _wake_up(self) -> None:
        if self.wake is not None:
            self.wake()


def _is_opening(reply: dict[str, Any]) -> bool:
    """Say whether this is what an opening is answered with."""
    form = {"stream": str, "epoch": int, "head": int, "summary": dict, "new": bool}
    return all(isinstance(reply.get(name), kind) for name, kind in form.items())
