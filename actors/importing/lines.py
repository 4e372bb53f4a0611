"""Physical lines of a file, of any length, in bounded memory.

Only the byte 0x0A separates lines: form feeds, carriage returns, U+0085, U+2028 and U+2029 are content. A line beyond
the limit is passed over, never held. Nothing here knows JSON. Bytes are asked for by their place, so several
readers may share one open file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

LINE_BYTES_MAX = 32 * 1024 * 1024
"""The longest line that is read, as memory is bounded: its events take up to three times as much."""

_CHUNK_BYTES = 256 * 1024


class Line(NamedTuple):
    """One line without its newline. `content` is None for one over the limit; `ended` says whether a newline came."""

    number: int
    start: int
    length: int
    content: bytes | None
    ended: bool

    @property
    def stop(self) -> int:
        """The offset behind the line and its newline."""
        return self.start + self.length + self.ended


def read_lines(
    read_at: Callable[[int, int], bytes],
    start: int,
    stop: int,
    *,
    first_number: int = 1,
    bytes_max: int = LINE_BYTES_MAX,
) -> Iterator[Line]:
    """Yield the lines between two offsets, the last one as far as it goes.

    `read_at` takes an offset and a length. `start` is the beginning of line `first_number`. A file that became shorter
    ends early. Raises what `read_at` raises.
    """
    pieces: list[bytes] = []
    number, length = first_number, 0
    position = start
    while position < stop:
        chunk = read_at(position, min(_CHUNK_BYTES, stop - position))
        if not chunk:
            break
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            length += len(end)
            content = None if length > bytes_max else b"".join([*pieces, end]) if pieces else end
            yield Line(number, start, length, content, ended=True)
            start += length + 1
            number, length = number + 1, 0
            pieces.clear()
        length += len(rest)
        if length > bytes_max:
            pieces.clear()
        elif rest:
            pieces.append(rest)
        position += len(chunk)
    if length:
        yield Line(number, start, length, None if length > bytes_max else b"".join(pieces), ended=False)
