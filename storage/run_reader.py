"""Reading runs from the files, each whole and checked before a line of it is given."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from zlib_ng.zlib_ng import crc32

from .errors import Corrupt
from .filesystem import FileSystem
from .findings import SeqRange
from .format import event_prefix
from .index_records import Extent
from .limits import SPAN_GAP_BYTES
from .scanning import segment_name, segment_path

_HANDLES_MAX = 64


class RunReader:
    """Reads runs by their extents; keeps some segment files open."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._handles: dict[int, int] = {}

    def lines(self, stream: str, extent: Extent) -> list[bytes]:
        """Give a run's lines, without their newlines. Raises Corrupt if they aren't what was written."""
        try:
            return self.read(stream, extent)
        except OSError as error:
            raise _unreadable(stream, extent, error) from None

    def read(self, stream: str, extent: Extent) -> list[bytes]:
        """Do as `lines`; but what can't be read now, and may be later, is an OSError."""
        try:
            content = self._fs.read(self.handle(extent.segment), extent.offset, extent.size)
        except FileNotFoundError as error:
            raise _unreadable(stream, extent, error) from None
        return checked_lines(stream, extent, content)

    def contents(self, extents: list[Extent]) -> list[bytes]:
        """Read several runs: neighbours in one go, and all of them asked for before the first is waited for.

        What can't be read is empty, and so fits no checksum.
        """
        spans = list(_spans(extents))
        if len(spans) > 1:
            for span in spans:
                with contextlib.suppress(OSError):
                    self._fs.prefetch(self.handle(span[0].segment), span[0].offset, _length(span))
        contents: list[bytes] = []
        for span in spans:
            begin = span[0].offset
            try:
                content = self._fs.read(self.handle(span[0].segment), begin, _length(span))
            except OSError:
                content = b""
            contents += [content[each.offset - begin : each.offset - begin + each.size] for each in span]
        return contents

    def unreadable(self, stream: str, extents: list[Extent]) -> list[SeqRange]:
        """List (first seq, number) of the events in runs that can't be read."""
        found = []
        for extent in extents:
            try:
                self.lines(stream, extent)
            except Corrupt:
                found.append((extent.first, extent.events))
        return found

    def handle(self, segment: int) -> int:
        """Give an open segment's handle. Raises OSError."""
        handle = self._handles.get(segment)
        if handle is None:
            if len(self._handles) >= _HANDLES_MAX:
                self._fs.close(self._handles.pop(next(iter(self._handles))))
            handle = self._handles[segment] = self._fs.open(segment_path(segment))
        return handle

    def close(self) -> None:
        """Close the files."""
        for handle in self._handles.values():
            self._fs.close(handle)
        self._handles.clear()


def checked_lines(stream: str, extent: Extent, content: bytes) -> list[bytes]:
    """Check a run's bytes and split them into lines. Raises Corrupt."""
    if len(content) != extent.size or crc32(content) != extent.crc:
        raise _corrupt(stream, extent, "its bytes don't fit their checksum")
    lines = content.split(b"\n")
    lines.pop()
    if len(lines) != extent.events or not lines[0].startswith(event_prefix(stream, extent.first)):
        raise _corrupt(stream, extent, "another stream's bytes stand in its place")
    return lines


def _unreadable(stream: str, extent: Extent, error: OSError) -> Corrupt:
    return _corrupt(stream, extent, f"its file can't be read ({error.strerror})")


def _corrupt(stream: str, extent: Extent, reason: str) -> Corrupt:
    return Corrupt(stream, reason, segment_name(extent.segment), extent.offset, [(extent.first, extent.events)])


def _spans(extents: list[Extent]) -> Iterator[list[Extent]]:
    """Group extents that lie so near to each other that what is between them costs less than another read."""
    span: list[Extent] = []
    for extent in extents:
        if span and (
            extent.segment != span[-1].segment
            or not 0 <= extent.offset - (span[-1].offset + span[-1].size) <= SPAN_GAP_BYTES
        ):
            yield span
            span = []
        span.append(extent)
    if span:
        yield span


def _length(span: list[Extent]) -> int:
    return span[-1].offset + span[-1].size - span[0].offset
