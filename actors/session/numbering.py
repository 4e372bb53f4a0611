"""How a session's events get their numbers: in the order of the calls, each with what it changes of the summary.

An event that can be numbered at once is, without a turn of the loop. One that has to wait (for space, for a blob, for
the answer to a keyed one) lets none that was called for later go before it, and what was written before the call is cut
before it. Numbering only buffers; whoever wants more waits for the store by what is here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from time import time_ns
from typing import TYPE_CHECKING, Any

import anyio

from turnkeeper.storage.errors import TooLarge
from turnkeeper.storage.exact_json import Surrogates, decode_event, encode_data, encode_event
from turnkeeper.storage.limits import LINE_BYTES_MAX, PATCH_BYTES_MAX

from ..blob_references import EVENT_BYTES_MAX, is_plain
from ..client.chunks import Chunks
from ..client.owned_stream import OwnedStream
from ..errors import TurnOpen, copy_of
from ..folding import FOLDED, FOLDED_PATCH_BYTES, TURN_END, TURN_START, TurnState
from ..log_summary import LogSummary
from ..names import check_key
from ..vocabulary import Word
from .owned_inbox import OwnedInbox

if TYPE_CHECKING:
    from ..client.client import Client


class Numbering:
    """The numbering of one opened session. `state`, `summary` and `inbox` follow the events that are numbered here.

    `order` is held by the call whose events are numbered next.
    """

    def __init__(
        self,
        client: Client,
        stream: OwnedStream,
        *,
        state: TurnState,
        summary: LogSummary,
        inbox: OwnedInbox,
        chunks: Chunks,
    ) -> None:
        self._id = stream.id
        self._client = client
        self._stream = stream
        self._state = state
        self._summary = summary
        self._inbox = inbox
        self._chunks = chunks
        self._vocabulary = client.vocabulary
        self._words = client.vocabulary.words
        self.order = anyio.Lock()

    # -- Events of the program

    async def append(
        self,
        type: str,
        data: Mapping[str, Any],
        key: str | None = None,
        time: int | None = None,
        text: Surrogates = "strict",
        accepting: int | None = None,
    ) -> int:
        """Do as `Session.append`; with `accepting`, the event takes that message of the inbox."""
        stream = self._stream
        word = self._words.get(type) or self._vocabulary.word(type)
        if word.check is not None:
            word.check(type, data)
        if type == TURN_START:
            self.check_no_turn()
        if accepting is not None:
            self._inbox.check()
            self._inbox.taken_with(accepting)
        if time is None:
            time = time_ns() // 1_000_000
        if key is None and stream.takes_at_once:
            if stream.has_text:
                self._chunks.cut()
            line = encode_event(self._id, stream.head, time, type, data, text=text, bytes_max=EVENT_BYTES_MAX)
            if is_plain(line):
                if word.marks_summary or accepting is not None:
                    return self._take_marking(line, word, data, accepting=accepting)
                return stream.add(line)
        else:
            stream.take_failure()
            line = encode_event(self._id, 0, time, type, data, text=text, bytes_max=EVENT_BYTES_MAX)
        if key is None:
            return await self._append_in_turn(line, word, accepting)
        return await self._append_once(line, word, key)

    async def _append_in_turn(self, line: bytes, word: Word, accepting: int | None) -> int:
        async with self.in_turn() as mark:
            line, blobs = await self._placed(line, word.type)
            await self.wait_room()
            self._chunks.cut(mark)
            if word.type == TURN_START:
                self.check_no_turn()
            data = decode_event(line)["data"] if word.type in FOLDED else {}
            return self._take_marking(self._renumbered(line), word, data, blobs, accepting)

    async def _append_once(self, line: bytes, word: Word, key: str) -> int:
        """Append a line that is stored once for its key: nothing later is numbered until it is answered."""
        type = word.type
        check_key(key, type)
        if type in (TURN_START, TURN_END):
            raise ValueError(f"{type} takes no key: a turn begins and ends once anyway")
        stream = self._stream
        async with self.in_turn() as mark:
            line, blobs = await self._placed(line, type)
            await self.wait_room()
            self._chunks.cut(mark)
            given = stream.head
            marks = self._marks_of(given, word, blobs)
            line = self._renumbered(line)
            stream.add_keyed(line, key, marks or None)
            await self.wait_until(lambda: not stream.barred)
            if isinstance(stream.keyed_answer, Exception):
                raise copy_of(stream.keyed_answer)
            if stream.keyed_answer is None:
                stream.raise_failure()  # ownership, or the store, was lost before the answer
            if stream.keyed_answer == given:
                self._summary.take(marks)
                self._state.fold(given, type, decode_event(line)["data"])
            return stream.keyed_answer

    async def _placed(self, line: bytes, type: str) -> tuple[bytes, list[str]]:
        """Put into a blob what is too large for a line; give the line that is to be stored and the blobs it names."""
        if is_plain(line):
            return line, []
        return await self._client.blobs.place(line, type, self._id)

    def _renumbered(self, line: bytes) -> bytes:
        """Put the present number into a line that was encoded before others that go before it."""
        rest = line[line.index(b',"time":') :]
        line = b'{"stream":"%b","seq":%d%b' % (self._id.encode(), self._stream.head, rest)
        if len(line) > LINE_BYTES_MAX:
            raise TooLarge("event 0", len(line), LINE_BYTES_MAX)
        return line

    # -- Events of our own making

    def take_together(self, events: Sequence[tuple[str, Mapping[str, Any]]], time: int | None = None) -> None:
        """Number and buffer events of our own making, whose changes of the summary come with the last of them."""
        now = time_ns() // 1_000_000 if time is None else time
        stream, patch, lines = self._stream, dict[str, Any](), list[bytes]()
        stream.cut_text()
        for seq, (type, data) in enumerate(events, stream.head):
            patch |= self._state.fold(seq, type, data) or {}
            lines.append(encode_event(self._id, seq, now, type, data, text="replace"))
        for line in lines[:-1]:
            stream.add(line)
        # Many lines are sent from within the call: the last one brings its patch, or it may go without.
        stream.add(lines[-1], patch or None)

    async def cut_text(self) -> None:
        """Cut the text that was written so far, behind the calls before it. Raises as `flush` does."""
        if self._stream.may_number:
            self._chunks.cut()
            return
        async with self.in_turn() as mark:
            await self.wait_until(lambda: not self._stream.barred)
            self._chunks.cut(mark)

    # -- Order

    @asynccontextmanager
    async def in_turn(self) -> AsyncIterator[int]:
        """Wait until the calls before this one are numbered; those after it wait for the body's end.

        Gives the mark before which text was written before this call, to be cut when the body may number.
        """
        stream = self._stream
        mark = self._chunks.mark()
        stream.calls_queued += 1
        try:
            async with self.order:
                yield mark
        finally:
            stream.calls_queued -= 1

    def check_no_turn(self) -> None:
        """Raise TurnOpen if a turn is open."""
        if self._state.open_turn is not None:
            self._stream.check_owned()
            raise TurnOpen(self._id, self._state.open_turn)

    # -- Summary

    def _take_marking(
        self,
        line: bytes,
        word: Word,
        data: Mapping[str, Any],
        blobs: Sequence[str] = (),
        accepting: int | None = None,
    ) -> int:
        """Number and buffer an event, and change the summary with it as its type wants, and the message that it takes.

        Raises TooLarge, AlreadyAccepted, TooFarAhead.
        """
        stream = self._stream
        if not word.is_recorded and not blobs and accepting is None:
            return stream.add(line, self._state.fold(stream.head, word.type, data))
        accepted = None if accepting is None else self._inbox.taken_with(accepting)
        marks = self._marks_of(stream.head, word, blobs)
        self._summary.take(marks)
        if accepted is not None:
            self._inbox.accepted = accepted
            marks |= accepted.as_patch()
        marks |= self._state.fold(stream.head, word.type, data) or {}
        return stream.add(line, marks or None)

    def _marks_of(self, seq: int, word: Word, blobs: Sequence[str]) -> dict[str, Any]:
        """Give what event `seq` changes of the summary beside the turn. Raises TooLarge if there is no room for it."""
        marks = self._summary.patch(seq, word) or {}
        if blobs:
            marks["blobs"] = blobs
        reservation = self._stream.reservation
        if marks and reservation is not None:
            # The session's first events bring its header, too, and all of it is one patch.
            size = len(encode_data("session's header", {**reservation["create"], **marks})) + FOLDED_PATCH_BYTES
            if size > PATCH_BYTES_MAX:
                raise TooLarge("the session's header and what its first events add to it", size, PATCH_BYTES_MAX)
        return marks

    # -- Waiting

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds. Raises a refusal, or the first failure to store that comes."""
        await self._client.wait_until(self._stream, condition)

    async def wait_stored(self) -> None:
        """Wait until all that is numbered now is durable. Raises as `flush` does."""
        stream, client = self._stream, self._client
        target = stream.head
        client.link.request_flush(stream)
        seen = stream.failures
        stream.waiting += 1
        try:
            # A keyed line that turns out to be known gives its number back: then the head is all there is.
            while stream.acknowledged < target and stream.acknowledged < stream.head:
                if stream.refusal is not None or stream.failures != seen:
                    stream.raise_failure()
                await client.wait_change(stream)
        finally:
            stream.waiting -= 1

    async def wait_room(self) -> None:
        """Wait until a line can be numbered and buffered, with the order lock held."""
        stream, link = self._stream, self._client.link
        while True:
            stream.take_failure()
            if stream.takes_lines:
                return
            link.request_flush(stream)
            if stream.barred:
                await self._client.wait_change(stream)
            else:
                await self._client.wait_space()

    async def wait_unbarred(self) -> None:
        """Wait until a line can be numbered, full buffer or not, with the order lock held. Raises a refusal."""
        stream = self._stream
        while stream.barred:
            await self._client.wait_change(stream)
        stream.check_owned()
