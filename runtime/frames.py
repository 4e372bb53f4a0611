"""The frames that our processes exchange: a length of 4 bytes, big-endian, and one msgpack value of that many bytes.

A frame carries plain values only: None, booleans, integers of 64 bits, floats, text, bytes, lists and maps. Tuples
arrive as lists, instances of subclasses as their plain type. Extension types and timestamps are refused where a frame
is read, so reading one never runs anybody's code. Nothing here touches a socket: bytes in, values out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from msgpack import packb, unpackb

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""The longest frame, in bytes, without the 4 of its length. It bounds what one peer can make another hold."""

LENGTH_BYTES = 4

_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**64 - 1
_PLAIN_TYPES = (type(None), bool, float, bytes, bytearray, memoryview)


class FrameError(Exception):
    """A frame that is too long, cut off, or not what a frame may hold. The connection that carries it has to end."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class FrameTooLong(FrameError):
    """A frame of `size` bytes, more than FRAME_BYTES_MAX. Nothing was sent."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a frame of {size:,} bytes is over the limit of {FRAME_BYTES_MAX:,}")
        self.args = (size,)
        self.size = size

    def __str__(self) -> str:
        return self.reason


def encode_frame(message: Any) -> bytes:
    """Make one whole frame of the message; safe to call from any thread.

    Raises:
        TypeError: A value in the message can't cross between processes; names the place of the first one.
        FrameTooLong: It would be longer than `FRAME_BYTES_MAX`.
    """
    try:
        body = packb(message)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(refusal_of(message) or f"the message can't cross between processes: {error}") from error
    if len(body) > FRAME_BYTES_MAX:
        raise FrameTooLong(len(body))
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def check_frame(frame: bytes) -> None:
    """Be sure that the other side can read a frame of what a caller gave.

    It costs a decoding: a map's key may be a list, say, which only shows where the map is built again.

    Raises:
        TypeError: It can't.
    """
    try:
        with memoryview(frame) as view, view[LENGTH_BYTES:] as body:
            unpack(body)
    except FrameError as error:
        raise TypeError(f"the message can't cross between processes: {error.reason}") from error


def unpack(body: bytes | memoryview) -> Any:
    """Decode what a frame carries, without its length. Raises FrameError: It is no message."""
    # msgpack bounds every length that the frame claims by the frame's own. TypeError is a map key that can't be
    # one; MemoryError is a tower of arrays, each claiming as much as the frame could hold.
    try:
        return unpackb(body, strict_map_key=False, max_ext_len=0, ext_hook=_refuse_extension)
    except (ValueError, TypeError, MemoryError) as error:
        reason = f"a frame of {len(body):,} bytes is no message: {str(error) or type(error).__name__}"
        raise FrameError(reason) from error


class FrameDecoder:
    """Turn a stream of bytes, cut anywhere, into the messages it carries.

    After a `FrameError` the stream is lost: every later call raises the same error. Memory held is what arrived of one
    unfinished frame; a length over the limit is refused when it is read, before anything of the frame is kept.
    """

    def __init__(self, read: Callable[[memoryview], Any] | None = None) -> None:
        """Decode with `read` instead of `unpack`: `bytes` leaves each message packed, for whoever only hands it on."""
        self._read = read or unpack
        self._unfinished = bytearray()
        self._wanted = LENGTH_BYTES
        self._failure: str | None = None

    def feed(self, data: bytes | bytearray) -> list[Any]:
        """Take the next bytes of the stream and return the messages that are now whole, in order.

        Raises:
            FrameError: The other side sent what is no frame. Messages that came whole in the same piece are dropped
                with it: they count as never read.
        """
        if self._failure is not None:
            raise FrameError(self._failure)
        unfinished = self._unfinished
        if not unfinished:
            messages, used = self._decode(data)
            unfinished += memoryview(data)[used:]
            return messages
        unfinished += data
        if len(unfinished) < self._wanted:
            return []
        messages, used = self._decode(unfinished)
        del unfinished[:used]
        return messages

    def finish(self) -> None:
        """Say that the stream has ended.

        Raises:
            FrameError: It ended inside a frame, or had failed before.
        """
        if self._failure is None and self._unfinished:
            self._failure = f"the stream ended inside a frame, after {len(self._unfinished):,} of its bytes"
        if self._failure is not None:
            raise FrameError(self._failure)

    def _decode(self, buffer: bytes | bytearray) -> tuple[list[Any], int]:
        """Decode the whole frames at the front of the buffer; return them and how many bytes they took.

        Leaves in `_wanted` how long the rest must be before another look at it can give anything.
        """
        messages: list[Any] = []
        position, end = 0, len(buffer)
        with memoryview(buffer) as view:
            while True:
                start = position + LENGTH_BYTES
                if start > end:
                    self._wanted = LENGTH_BYTES
                    return messages, position
                length = int.from_bytes(view[position:start], "big")
                if length > FRAME_BYTES_MAX:
                    self._fail(f"a frame of {length:,} bytes is over the limit of {FRAME_BYTES_MAX:,}")
                stop = start + length
                if stop > end:
                    self._wanted = stop - position
                    return messages, position
                with view[start:stop] as body:
                    try:
                        messages.append(self._read(body))
                    except FrameError as error:
                        self._fail(error.reason, error.__cause__)
                position = stop

    def _fail(self, reason: str, cause: BaseException | None = None) -> NoReturn:
        self._failure = reason
        self._unfinished = bytearray()
        raise FrameError(reason) from cause


def _refuse_extension(code: int, data: bytes) -> NoReturn:
    raise ValueError(f"extension type {code} is not allowed")


def refusal_of(message: Any, name: str = "message") -> str | None:
    """Find the first value that can't cross, depth first, and say why; None if there is none, or a key can't be one."""
    waiting: list[tuple[str, Any, int]] = [(name, message, 0)]
    while waiting:
        place, value, depth = waiting.pop()
        if depth > 512:
            return f"{name} can't cross between processes: it is nested too deep, or contains itself"
        if isinstance(value, Mapping):
            children = list(value.items())
            waiting += [(f"{place}[{key!r:.40}]", child, depth + 1) for key, child in reversed(children)]
            waiting += [(f"key {key!r:.40} of {place}", key, depth + 1) for key, _ in reversed(children)]
        elif isinstance(value, (list, tuple)):
            waiting += [(f"{place}[{index}]", value[index], depth + 1) for index in reversed(range(len(value)))]
        elif why := _why_not_plain(value):
            return f"{place} can't cross between processes: {why}"
    return None


def _why_not_plain(value: Any) -> str | None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return "text with a lone surrogate has no UTF-8 form"
        return None
    if isinstance(value, int):
        return None if _INTEGER_MIN <= value <= _INTEGER_MAX else "the integer has more than 64 bits"
    if isinstance(value, _PLAIN_TYPES):
        return None
    return f"{type(value).__module__}.{type(value).__qualname__} is not a plain value"
