"""Text that a session gets token by token, joined into chunks: one event where there were a thousand tokens.

A chunk is cut, which gives it a number and makes it a line of its stream, when it is large enough or its window ends,
and always before anything else of the session is numbered: the order of events stays the order of calls. While calls
wait for their turn to be numbered, text waits behind them: a *mark* says how much of it belongs before a call. What is
cut is buffered, sent and kept like every other line; what isn't yet is the session's live value on the bus.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import time_ns
from typing import Any, Final

from turnkeeper.storage.errors import InvalidValue, TooLarge
from turnkeeper.storage.exact_json import encode_data, encode_event
from turnkeeper.storage.limits import KIB, LINE_BYTES_MAX, MIB

from ..core_types import ASSISTANT_CHUNK, TEXT_CHANNEL
from .bus import Source
from .owned_stream import OwnedStream

CHUNK_BYTES: Final = 4 * KIB
"""Text, in bytes, that is cut without waiting for the window's end."""

HELD_CHUNK_BYTES_MAX: Final = 32 * KIB
"""Text of one chunk, in bytes, where it couldn't be cut in time."""

TEXT_BYTES_MAX: Final = 1 * MIB
"""Text of one session, in bytes, that may wait to be cut: while the buffer is full, or a call before it isn't done."""

CHANNEL_BYTES_MAX: Final = 200

_PART_CHARACTERS: Final = HELD_CHUNK_BYTES_MAX // 4

assert 6 * HELD_CHUNK_BYTES_MAX + KIB < LINE_BYTES_MAX, "a chunk fits a line, however much of it is escaped"


class Chunk:
    """Text that will be one event. `time` is when its first token came, in ms."""

    __slots__ = ("channel", "size", "time", "tokens")

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.tokens: list[str] = []
        self.size = 0
        self.time = time_ns() // 1_000_000

    @property
    def data(self) -> dict[str, str]:
        """The data of the event as it stands now."""
        text = "".join(self.tokens)
        return {"text": text} if self.channel == TEXT_CHANNEL else {"text": text, "channel": self.channel}


class Chunks:
    """The text of one stream that isn't cut yet, in order; also what is live of it, as a source of the bus."""

    type: Final = ASSISTANT_CHUNK

    def __init__(self, stream: OwnedStream) -> None:
        self.tell: Callable[[Source], object] | None = None
        self._stream = stream
        self._waiting: deque[Chunk] = deque()
        self._growing: Chunk | None = None
        self._size = 0
        self._cut = 0

    @property
    def topic(self) -> str:
        """The stream's id."""
        return self._stream.id

    def write(self, text: str, channel: str = TEXT_CHANNEL) -> None:
        """Take text; see `Session.write`."""
        stream = self._stream
        if stream.is_failure_untold or stream.refusal is not None or stream.leaving:
            stream.take_failure()
        size = len(text) if text.__class__ is str and text.isascii() else _size_of(text)
        chunk = self._growing
        if size and chunk is not None and chunk.channel == channel and self._size + size < CHUNK_BYTES:
            chunk.tokens.append(text)
            chunk.size += size
            self._size += size
        else:
            self._take(text, size, channel)
        if self.tell is not None:
            tell, self.tell = self.tell, None
            tell(self)

    def mark(self) -> int:
        """Say where the text stands now: what comes from now on lies behind this mark."""
        self._growing = None
        return self._cut + len(self._waiting)

    def cut(self, before: int | None = None) -> None:
        """Number the text, or what of it lies before a mark, and hand it to the stream, whether there is space or not.

        For whoever may number a line now.
        """
        stream, waiting = self._stream, self._waiting
        while waiting and (before is None or self._cut < before):
            chunk = waiting.popleft()
            self._cut += 1
            self._size -= chunk.size
            stream.add(encode_event(stream.id, stream.head, chunk.time, ASSISTANT_CHUNK, chunk.data))
        if not waiting:
            self._growing = None
            stream.has_text = False

    def cut_in_time(self) -> bool:
        """Cut the text, if its turn to be numbered has come and there is space; say whether none waits any more."""
        if self._stream.may_number and self._stream.has_room:
            self.cut()
        return not self._waiting

    def drop(self) -> int:
        """Forget what isn't cut, as it never will be; say how many events it would have been."""
        dropped = len(self._waiting)
        self._cut += dropped
        self._waiting.clear()
        self._growing = None
        self._size = 0
        self._stream.has_text = False
        return dropped

    def value(self) -> dict[str, Any] | None:
        """Give the text that grows now as the event that it would be; None where there is none, or no number for it."""
        if not (self._waiting and self._stream.may_number):
            return None
        chunk = self._waiting[-1]
        return {"seq": self._stream.head + len(self._waiting) - 1, "time": chunk.time, "data": chunk.data}

    def _take(self, text: str, size: int, channel: str) -> None:
        """Take text that begins a chunk, or after which a chunk is large enough."""
        if channel != TEXT_CHANNEL:
            _check_channel(channel)
        if not size:
            return
        if self._size + size > TEXT_BYTES_MAX and not (self.cut_in_time() and size <= TEXT_BYTES_MAX):
            raise TooLarge(f"text that waits to be stored in {self._stream.id}", self._size + size, TEXT_BYTES_MAX)
        if not self._waiting:
            self._stream.begin_text()
        for start in range(0, len(text), _PART_CHARACTERS):
            self._grow(text[start : start + _PART_CHARACTERS], channel)
        if self._size >= CHUNK_BYTES:
            self.cut_in_time()

    def _grow(self, part: str, channel: str) -> None:
        size = len(part.encode())
        chunk = self._growing
        if chunk is None or chunk.channel != channel or chunk.size + size > HELD_CHUNK_BYTES_MAX:
            self._growing = chunk = Chunk(channel)
            self._waiting.append(chunk)
        chunk.tokens.append(part)
        chunk.size += size
        self._size += size


def _size_of(text: Any) -> int:
    """Give a text's size in bytes. Raises InvalidValue for what isn't text, or no text that an event can hold."""
    if not isinstance(text, str):
        raise InvalidValue(0, ASSISTANT_CHUNK, "$.text", f"text is a string, not {text.__class__.__name__}")
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        encode_data(ASSISTANT_CHUNK, {"text": text})
        raise


def _check_channel(channel: Any) -> None:
    if not isinstance(channel, str) or not channel:
        raise InvalidValue(0, ASSISTANT_CHUNK, "$.channel", "a channel is a string that isn't empty")
    size = len(encode_data(ASSISTANT_CHUNK, {"channel": channel}))
    if size > CHANNEL_BYTES_MAX:
        raise TooLarge("a channel's name", size, CHANNEL_BYTES_MAX)
