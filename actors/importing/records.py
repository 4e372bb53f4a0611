"""JSON objects out of one physical line, exact where the line is good and as much as is whole where it is not.

orjson is exact but for integers beyond 64 bits, which it turns into floats, and refuses lone surrogates and NaN. These
the standard library's parser reads again: digits are kept as text, NaN and the infinities become null, lone surrogates
U+FFFD, and each such change is noted. What is returned is JSON that the journal can hold.

A line that isn't JSON may hold whole records all the same: the stub of a write that was killed with the next record
behind it, or two records whose newline was lost. They are found by reading on from each brace that begins an object.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import orjson

from turnkeeper.storage.limits import DEPTH_MAX, INTEGER_MAX, INTEGER_MIN

RECORD_DEPTH_MAX = DEPTH_MAX - 12
"""Levels of a record; an event's data puts a few more around parts of it."""

RECORD_CONTAINERS_MAX = 400_000
"""Objects and arrays of a line: each takes many times its bytes in memory, and no event holds as many."""

FILLING = b" \t\r\n\0"
"""Bytes between records that mean nothing."""

_RESCUE_ATTEMPTS_MAX = 64
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_INTEGER_CHARACTERS_MAX = len(str(INTEGER_MIN))
_FLOAT_FROM = 2.0**63
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_NO_RECORDS = {dict: "an empty object", list: "an array", str: "a string", bool: "a truth value", type(None): "null"}


class Record(NamedTuple):
    """One JSON object and the bytes it was read from."""

    value: dict[str, Any]
    raw: bytes


class LineContent(NamedTuple):
    """What a line gave: its records in order, and what there is to say about it; a good line has one and nothing."""

    records: list[Record]
    faults: list[str]


class _Unreadable(Exception):
    """A text that is no JSON, or none that the journal can hold."""


def read_records(content: bytes, is_whole: Callable[[dict[str, Any]], bool]) -> LineContent:
    """Read a line's records. `is_whole` recognises a complete record, so that no inner object is rescued in its place.

    Filling (blanks and NUL bytes) around a record is nothing of it; NUL bytes are noted.
    """
    text = content.removeprefix(_BYTE_ORDER_MARK).strip(FILLING)
    nul_count = content.count(b"\0") - text.count(b"\0")
    faults = [f"{nul_count} NUL bytes, as a power cut leaves them"] if nul_count else []
    if not text:
        return LineContent([], faults)
    if text.count(b"{") + text.count(b"[") > RECORD_CONTAINERS_MAX:
        return LineContent([], [*faults, f"more than {RECORD_CONTAINERS_MAX} objects and arrays"])
    try:
        value, notes = _read_value(text)
    except _Unreadable as error:
        records, notes = _rescue(text, is_whole)
        kept = f"; whole records found in it and kept: {len(records)}" if records else ""
        return LineContent(records, [*faults, f"{error}{kept}", *notes])
    if not isinstance(value, dict) or not value:
        return LineContent([], [*faults, f"no record but {_described(value)}"])
    return LineContent([Record(value, text)], faults + notes)


def _described(value: object) -> str:
    return _NO_RECORDS.get(type(value), "a number")


def _read_value(text: bytes) -> tuple[Any, list[str]]:
    """Read a whole text: its value, and what had to be changed in it. Raises _Unreadable."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    else:
        if _is_exact(value):
            return value, []
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        raise _Unreadable(f"not UTF-8 (byte {error.start + 1} of the line)") from None
    exact = _ExactReader(decoded)
    value, stop = exact.read(0)
    if stop != len(decoded):
        raise _Unreadable(f"more than one record or value (from character {stop + 1})")
    return value, exact.notes()


def _is_exact(value: Any) -> bool:
    """Say whether orjson can have read this exactly: it makes floats of integers that are too big for it.

    Raises _Unreadable for one nested too deep.
    """
    level = [value]
    for _depth in range(RECORD_DEPTH_MAX + 1):
        below: list[Any] = []
        for each in level:
            kind = each.__class__
            if kind is dict:
                below.extend(each.values())
            elif kind is list:
                below.extend(each)
            elif kind is float and abs(each) >= _FLOAT_FROM:
                return False
        if not below:
            return True
        level = below
    raise _Unreadable(f"nested over {RECORD_DEPTH_MAX} levels deep")


class _ExactReader:
    """Reads values out of a text with the standard library's parser, keeping what a double or a journal can't hold."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._notes: dict[str, None] = {}
        self._decoder = json.JSONDecoder(
            parse_int=self._integer, parse_float=self._float, parse_constant=self._constant
        )

    def read(self, start: int) -> tuple[Any, int]:
        """Read the value that begins at `start`: the value and the offset behind it. Raises _Unreadable."""
        try:
            value, stop = self._decoder.raw_decode(self._text, start)
        except json.JSONDecodeError as error:
            what = error.msg.lower().removesuffix(" at")
            raise _Unreadable(f"not JSON ({what} at character {error.pos + 1})") from None
        except RecursionError:
            raise _Unreadable(f"nested over {RECORD_DEPTH_MAX} levels deep") from None
        _is_exact(value)
        if _SURROGATE_ESCAPE.search(self._text, start, stop):
            value = self._without_surrogates(value)
        return value, stop

    def notes(self) -> list[str]:
        """Say once for each kind what was changed in the values so far."""
        return list(self._notes)

    def _note(self, note: str) -> None:
        self._notes[note] = None

    def _integer(self, digits: str) -> int | str:
        if len(digits) <= _INTEGER_CHARACTERS_MAX and INTEGER_MIN <= int(digits) <= INTEGER_MAX:
            return int(digits)
        self._note("kept, but an integer beyond 64 bits is now text with all its digits")
        return digits

    def _float(self, digits: str) -> float | str:
        value = float(digits)
        if math.isfinite(value):
            return value
        self._note("kept, but a number beyond a double's range is now text")
        return digits

    def _constant(self, name: str) -> None:
        self._note("kept, but NaN or an infinity, which JSON has not, is now null")

    def _without_surrogates(self, value: Any) -> Any:
        """Replace lone surrogates by U+FFFD in keys and strings, in place where that is possible."""
        holder = [value]
        pending: list[Any] = [holder]
        while pending:
            container = pending.pop()
            if isinstance(container, dict):
                members = list(container.items())
                container.clear()
                container.update((self._encodable(name), self._encodable(member)) for name, member in members)
                pending += container.values()
            elif isinstance(container, list):
                container[:] = map(self._encodable, container)
                pending += container
        return holder[0]

    def _encodable(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            value.encode()
        except UnicodeEncodeError:
            self._note("kept, but a lone surrogate is now U+FFFD")
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value


def _rescue(text: bytes, is_whole: Callable[[dict[str, Any]], bool]) -> LineContent:
    """Find the whole records in a text that as a whole can't be read."""
    decoded = text.decode("utf-8", "surrogateescape")
    exact = _ExactReader(decoded)
    records = []
    for value, start, stop in _objects(decoded, exact):
        if is_whole(value) and not _NOT_UTF8.search(decoded, start, stop):
            records.append(Record(value, decoded[start:stop].encode()))
    return LineContent(records, exact.notes() if records else [])


def _objects(decoded: str, exact: _ExactReader) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield the outermost complete objects, each with its extent.

    Inside a string a quote is escaped, so `{"` begins an object wherever it stands; one that is not complete fails
    where the damage is, and the next is tried. Each failure reads up to there again, so they are limited.
    """
    position = decoded.find('{"')
    failures = 0
    while position >= 0 and failures < _RESCUE_ATTEMPTS_MAX:
        try:
            value, stop = exact.read(position)
        except _Unreadable:
            failures += 1
            stop = position + 1
        else:
            yield value, position, stop
        position = decoded.find('{"', stop)
