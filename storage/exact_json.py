"""Event lines from values and back, refusing whatever JSON can't hold exactly.

What goes in must come out equal, byte for byte the next time: so NaN and the infinities, integers beyond 64 bits,
bytes, sets, dates, decimals, keys that aren't strings, lone surrogates, cycles and nesting over 512 levels are
refused before anything is stored, with the event's number and type and a JSON path to the value. Tuples and other
sequences become lists, mappings become objects; nothing else is converted silently. Encoding is orjson's, which is
exact for what passes.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import orjson

from .errors import InvalidValue, TooLarge
from .limits import DEPTH_MAX, INTEGER_MAX, INTEGER_MIN, LINE_BYTES_MAX

Surrogates = Literal["strict", "replace"]

_PLAIN = frozenset((str, bool, type(None)))
_CONTAINERS_MAX = 200
_LEVELS_A_PIECE = 100


def encode_event(
    stream: str,
    seq: int,
    time: int,
    type: str,
    data: Mapping[str, Any],
    *,
    event: int = 0,
    text: Surrogates = "strict",
    bytes_max: int = LINE_BYTES_MAX,
) -> bytes:
    """Make one event's line, its newline included.

    `time` is in milliseconds since 1970, `event` the event's number in the caller's call, for the error's sake.
    `text="replace"` turns lone surrogates into U+FFFD. `bytes_max` is greater than a line may be where the
    caller puts the data elsewhere. Raises InvalidValue, or TooLarge for a line that is longer.
    """
    encoded = encode_data(type, data, event=event, text=text)
    line = b'{"stream":"%b","seq":%d,"time":%d,"type":%b,"data":%b}\n' % (
        stream.encode(),
        seq,
        time,
        _encode_type(type, event),
        encoded,
    )
    if len(line) > bytes_max:
        raise TooLarge(f"event {event} ({type})", len(line), bytes_max)
    return line


def encode_data(type: str, data: Mapping[str, Any], *, event: int = 0, text: Surrogates = "strict") -> bytes:
    """Make the JSON of an event's data. Raises InvalidValue."""
    if data.__class__ is dict:
        try:
            if _is_exact(data):
                return orjson.dumps(data)
        except orjson.JSONEncodeError:
            pass  # the slow path below finds out which value it was, or replaces it
    return orjson.dumps(_Exact(type, event, text).mapping(data))


def decode_event(line: bytes) -> dict[str, Any]:
    """Read an event's line: a dict with stream, seq, time, type, data. Raises ValueError if it isn't one."""
    event: dict[str, Any] = orjson.loads(line)
    return event


def _is_exact(data: dict[str, Any]) -> bool:
    """Look quickly whether orjson would encode this exactly; False sends it down the slow path.

    Integers' range and surrogates are left to orjson, which refuses them. Only exact types count: orjson would
    turn dataclasses, enumerations, UUIDs and dates into something else without a word. A value of more containers
    than a nesting that orjson allows goes the slow way too, which ends cycles and counts levels.
    """
    plain = _PLAIN
    pending: list[Any] = [data]
    containers = 0
    while pending:
        container = pending.pop()
        if container.__class__ is dict:
            for key in container:
                if key.__class__ is not str:
                    return False
            container = container.values()
        for value in container:
            kind = value.__class__
            if kind in plain or kind is int:
                continue
            if kind is float:
                if not math.isfinite(value):
                    return False
            elif kind is dict or kind is list:
                pending.append(value)
                containers += 1
                if containers > _CONTAINERS_MAX:
                    return False
            else:
                return False
    return True


class _Level:
    """One container on the way down: what is still to copy of it, and where its copy goes."""

    __slots__ = ("copy", "members", "path", "source")

    def __init__(self, source: Any, path: str) -> None:
        self.source = source
        self.path = path
        self.copy: Any = {} if isinstance(source, Mapping) else []
        self.members = iter(source.items() if isinstance(source, Mapping) else enumerate(source))


class _Exact:
    """Copies a value into what orjson encodes exactly, or raises InvalidValue with the path to what can't be held.

    It keeps its own stack, so that neither nesting nor the caller's depth ends in a RecursionError.
    """

    def __init__(self, type: str, event: int, text: Surrogates) -> None:
        self._type = type
        self._event = event
        self._text = text

    def mapping(self, value: Mapping[Any, Any]) -> Any:
        if not isinstance(value, Mapping):
            raise self._refusal("$", f"data must be a mapping, not {_name(value)}")
        levels = [_Level(value, "$")]
        sources = {id(value)}
        names: list[Any] = [None]
        while True:
            level = levels[-1]
            for name, member in level.members:
                key = self._key(name, level)
                path = f"{level.path}.{key}" if level.copy.__class__ is dict else f"{level.path}[{key}]"
                if not _is_container(member):
                    _put(level.copy, key, self._scalar(member, path))
                    continue
                if id(member) in sources:
                    raise self._refusal(path, "a value that contains itself")
                if len(levels) == DEPTH_MAX:
                    raise self._refusal(path, f"nested over {DEPTH_MAX} levels deep")
                levels.append(_Level(member, path))
                sources.add(id(member))
                names.append(key)
                break
            else:
                done = levels.pop()
                sources.discard(id(done.source))
                key = names.pop()
                if not levels:
                    return done.copy
                # orjson encodes 254 levels at most, so deeper parts go in as finished pieces.
                whole = len(levels) % _LEVELS_A_PIECE == 0
                _put(levels[-1].copy, key, orjson.Fragment(orjson.dumps(done.copy)) if whole else done.copy)

    def _key(self, name: Any, level: _Level) -> Any:
        if level.copy.__class__ is list:
            return name
        if not isinstance(name, str):
            raise self._refusal(level.path, f"the key {name!r} is no string")
        return self._string(name, level.path)

    def _scalar(self, value: Any, path: str) -> Any:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, enum.Enum):
            raise self._refusal(path, f"{_name(value)} is an enumeration; store its value")
        if isinstance(value, str):
            return self._string(value, path)
        if isinstance(value, int):
            return self._integer(value, path)
        if isinstance(value, float):
            return self._float(value, path)
        raise self._refusal(path, f"JSON holds no {_name(value)}; convert it first")

    def _string(self, value: str, path: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            if self._text == "strict":
                raise self._refusal(
                    path, f"a lone surrogate at character {error.start}; text='replace' mends it"
                ) from None
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return str(value)

    def _integer(self, value: int, path: str) -> int:
        if not INTEGER_MIN <= value <= INTEGER_MAX:
            raise self._refusal(path, "an integer beyond 64 bits; store it as a string")
        return int(value)

    def _float(self, value: float, path: str) -> float:
        if not math.isfinite(value):
            raise self._refusal(path, f"JSON has no {value}; store null or a string")
        return float(value)

    def _refusal(self, path: str, why: str) -> InvalidValue:
        return InvalidValue(self._event, self._type, _shortened(path), why)


def _encode_type(type: str, event: int) -> bytes:
    if not type:
        raise InvalidValue(event, str(type), "type", "an event's type is a string that isn't empty")
    try:
        return orjson.dumps(type)
    except orjson.JSONEncodeError:
        raise InvalidValue(event, repr(type), "type", "a lone surrogate") from None


def _is_container(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)
    )


def _put(copy: Any, key: Any, value: Any) -> None:
    if copy.__class__ is dict:
        copy[key] = value
    else:
        copy.append(value)


def _name(value: object) -> str:
    return value.__class__.__name__


def _shortened(path: str) -> str:
    return path if len(path) <= 200 else f"{path[:100]}…{path[-80:]}"
