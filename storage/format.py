r"""The journal's three kinds of line, shared by the writer and by every reader; nothing else knows their bytes.

    {"$segment":N,"format":1,"store":"UUID","created":MS,"first":N[,"last":M],"h":"XXXXXXXX"}\n
    {"$batch":N,"position":P,"time":MS,"bytes":B,"streams":[[ID,EPOCH,SEQ,COUNT,BYTES,CRC(,PATCH)],…],"prev":"…","h":"…"}\n
    {"stream":"ID","seq":N,"time":MS,"type":"…","data":{…}}\n

A control line's `h` is the CRC-32 of its bytes from `{` up to, without, the final `,"h":"`; it is checked before the
line is parsed. `prev` is the `h` of the control line before it in the same file. A run's CRC is the CRC-32 of its
lines. An event's line always ends in `}}\n`, a control line in `"}\n`, so neither can pass for the other, wherever it
is found. Only the byte 0x0A separates lines. This module does no input or output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
from zlib_ng.zlib_ng import crc32

from .limits import FORMAT, HEADER_BYTES_MAX, ID_PATTERN

SEGMENT_PREFIX = b'{"$segment":'
BATCH_PREFIX = b'{"$batch":'
EVENT_PREFIX = b'{"stream":"'
FILLING = b"\n"
FILLING_BYTES = b"\n\0"
"""What a reader takes as filling: newlines as written, NULs as some file systems leave them after a power cut."""

_SEAL = b',"h":"'
_SEAL_LENGTH = len(_SEAL) + 8 + len(b'"}\n')


class Run(NamedTuple):
    """The events of one stream in one batch: `events` of them from `seq` on, `size` bytes; or a patch alone."""

    stream: str
    epoch: int
    seq: int
    events: int
    size: int
    crc: int
    patch: Mapping[str, Any] | None = None


class SegmentHeader(NamedTuple):
    """A file's first line. `first` is the number of the first batch that it may hold."""

    number: int
    format: int
    store: str
    created: int
    first: int
    last: int | None
    h: str


class BatchHeader(NamedTuple):
    """A batch's header: `length` bytes of its own, then `size` bytes of event lines, run after run."""

    number: int
    position: int
    time: int
    size: int
    runs: list[Run]
    prev: str
    h: str
    length: int

    @property
    def events(self) -> int:
        """How many events the batch holds."""
        return sum(run.events for run in self.runs)

    @property
    def end(self) -> int:
        """Where the next batch begins, from this one's beginning."""
        return self.length + self.size


class NotControlLine(ValueError):
    """These bytes are no good control line; the argument says why."""


def seal(body: bytes) -> tuple[bytes, str]:
    """Close a control line that lacks its `h`; give the line and the `h`."""
    h = f"{crc32(body):08x}"
    return b'%b,"h":"%b"}\n' % (body, h.encode()), h


def encode_segment_header(number: int, store: str, created: int, first: int) -> tuple[bytes, str]:
    """Make a segment's first line; give it and its `h`."""
    return seal(
        f'{{"$segment":{number},"format":{FORMAT},"store":"{store}","created":{created},"first":{first}'.encode()
    )


def encode_run(run: Run) -> str:
    """Make one run's entry of a batch header."""
    if run.patch is None:
        return f'["{run.stream}",{run.epoch},{run.seq},{run.events},{run.size},{run.crc}]'
    patch = orjson.dumps(run.patch).decode()
    return f'["{run.stream}",{run.epoch},{run.seq},{run.events},{run.size},{run.crc},{patch}]'


def encode_batch_header(
    number: int, position: int, time: int, size: int, runs: list[str], prev: str
) -> tuple[bytes, str]:
    """Make a batch's header from its runs' entries; give it and its `h`."""
    streams = ",".join(runs)
    return seal(
        f'{{"$batch":{number},"position":{position},"time":{time},"bytes":{size},"streams":[{streams}],"prev":"{prev}"'.encode()
    )


def encode_patch(patch: Mapping[str, Any]) -> bytes:
    """Give a patch's JSON, as its size is measured."""
    return orjson.dumps(patch)


def has_good_seal(line: bytes) -> bool:
    """Say whether a line ends in an `h` that fits the bytes before it."""
    if len(line) <= _SEAL_LENGTH or not line.endswith(b'"}\n') or not line.startswith(_SEAL, len(line) - _SEAL_LENGTH):
        return False
    expected = b"%08x" % crc32(memoryview(line)[:-_SEAL_LENGTH])
    return line.startswith(expected, len(line) - 11)


def parse_segment_header(line: bytes) -> SegmentHeader:
    """Check and read a segment's first line. Raises NotControlLine."""
    fields = _parse(line, SEGMENT_PREFIX)
    try:
        last = fields.get("last")
        return SegmentHeader(
            number=_count(fields["$segment"]),
            format=_count(fields["format"]),
            store=_text(fields["store"]),
            created=_count(fields["created"]),
            first=_count(fields["first"]),
            last=None if last is None else _count(last),
            h=_text(fields["h"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NotControlLine(f"a segment line without a good {error}") from None


def parse_batch_header(line: bytes) -> BatchHeader:
    """Check and read a batch's header. Raises NotControlLine."""
    fields = _parse(line, BATCH_PREFIX)
    try:
        streams = fields["streams"]
        if type(streams) is not list:
            raise ValueError("streams")
        runs = [_run(entry) for entry in streams]
        header = BatchHeader(
            number=_count(fields["$batch"]),
            position=_count(fields["position"]),
            time=_count(fields["time"]),
            size=_count(fields["bytes"]),
            runs=runs,
            prev=_text(fields["prev"]),
            h=_text(fields["h"]),
            length=len(line),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NotControlLine(f"a batch header without a good {error}") from None
    if header.size != sum(run.size for run in runs):
        raise NotControlLine("a batch header whose bytes aren't the sum of its runs'")
    return header


def event_prefix(stream: str, seq: int) -> bytes:
    """Give the bytes with which this event's line begins."""
    return b'{"stream":"%b","seq":%d,' % (stream.encode(), seq)


def parse_event_prefix(line: bytes) -> tuple[str, int] | None:
    """Read an event line's stream and seq from its first bytes alone; None where it has none."""
    if not line.startswith(EVENT_PREFIX):
        return None
    end = line.find(b'"', len(EVENT_PREFIX))
    stream = line[len(EVENT_PREFIX) : end]
    rest = line[end:]
    if end < 0 or not rest.startswith(b'","seq":'):
        return None
    digits = rest[8 : rest.find(b",", 8)]
    if not digits.isdigit() or len(digits) > 19 or not is_id(stream.decode("ascii", "replace")):
        return None
    return stream.decode(), int(digits)


def line_fault(stream: str, seq: int, line: bytes) -> str | None:
    """Say what is wrong with an event's line (newline included) as a frame; None if it is right.

    The writer checks no more than this: JSON escapes control characters, so a line that passes can't be taken for
    a control line, and whether it is good JSON is its client's business and `verify`'s.
    """
    if not line.startswith(event_prefix(stream, seq)):
        return "it doesn't begin with its stream and number"
    if not line.endswith(b"}}\n"):
        return "it doesn't end in an object and a newline"
    if line.find(b"\n") != len(line) - 1:
        return "it holds a raw newline"
    return None


def is_id(text: str) -> bool:
    """Say whether `text` may be a stream's id."""
    return ID_PATTERN.match(text) is not None


def is_filling(content: bytes) -> bool:
    """Say whether these bytes are filling and nothing else."""
    return not content.strip(FILLING_BYTES)


def _parse(line: bytes, prefix: bytes) -> dict[str, Any]:
    if not line.startswith(prefix):
        raise NotControlLine(f"no {prefix.decode()} here")
    if len(line) > HEADER_BYTES_MAX:
        raise NotControlLine(f"a control line longer than {HEADER_BYTES_MAX:,} bytes")
    if not has_good_seal(line):
        raise NotControlLine("a control line whose h doesn't fit")
    try:
        fields: dict[str, Any] = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise NotControlLine("a control line that isn't JSON") from None
    return fields


def _run(entry: list[Any]) -> Run:
    stream, epoch, seq, count, size, crc, *patch = entry
    if not is_id(_text(stream)) or len(patch) > 1 or (patch and not isinstance(patch[0], dict)):
        raise ValueError("run")
    return Run(
        stream, _count(epoch), _count(seq), _count(count), _count(size), _count(crc), patch[0] if patch else None
    )


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"number {value!r}")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"text {value!r}")
    return value
