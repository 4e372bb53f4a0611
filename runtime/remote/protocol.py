"""What a server of an actor and its callers say: numbers, limits, and which messages there are. Pure."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from ..errors import is_error
from ..frames import FRAME_BYTES_MAX, FrameError

PROTOCOL: Final = 2
"""Raised by every change that an older process would misunderstand."""

CALLS_MAX: Final = 256
"""How many calls of one connection may be unanswered at once."""

STOPS_MAX: Final = 16
"""How many wishes to stop there may be beside them."""

HELD_BYTES_MAX: Final = 2 * FRAME_BYTES_MAX
"""While a connection's unanswered calls are more bytes than that, or it takes no answers, the server reads no more."""

GREETING_SECONDS: Final = 10.0
"""How long either side waits for the other's first word."""

FAREWELL_SECONDS: Final = 1.0
"""How long a server waits for callers that don't take their last answers."""

ASK, TELL, STOP, KILL, CALL_BACK = "ask", "tell", "stop", "kill", "call back"
WAITS, REPLY, ERROR, CALLED_BACK = "waits", "reply", "error", "called back"
NOT_STARTED, UNKNOWN, TOO_LARGE = "not started", "unknown", "too large"


class Hello(NamedTuple):
    """A process's first word; `handlers` are those of the actor that it serves."""

    pid: int
    handlers: frozenset[str]


class Call(NamedTuple):
    """A message for the actor's mailbox; `wanted` says that somebody waits for the handler's reply."""

    number: int
    wanted: bool
    method: str
    arguments: list[Any]
    keywords: dict[str, Any]


class Stop(NamedTuple):
    """The wish that the actor ends: in order, within so many seconds if that is said; or `at_once`."""

    number: int
    seconds: float | None
    at_once: bool = False


class CallBack(NamedTuple):
    """The news that nobody waits for a call any more."""

    number: int


class Ended(NamedTuple):
    """How an actor ended, as it crosses."""

    reason: str
    error: Mapping[str, Any] | None
    normal: bool


class Goodbye(Exception):
    """Why the other side has ended the connection; `ended` is how its actor ended, if that is why."""

    def __init__(self, reason: str, ended: Ended | None = None) -> None:
        super().__init__(reason, ended)
        self.reason = reason
        self.ended = ended


Request: TypeAlias = Call | Stop | CallBack

_ANSWERS: Final[dict[str, tuple[type, ...]]] = {
    WAITS: (),
    REPLY: (object,),
    ERROR: (dict,),
    NOT_STARTED: (str,),
    UNKNOWN: (str,),
    TOO_LARGE: (int, int, str),
    CALLED_BACK: (bool,),
}


def hello(pid: int, version: str, handlers: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Make this process's first word."""
    return {"protocol": PROTOCOL, "version": version, "pid": pid, "handlers": sorted(handlers)}


def read_hello(message: Any, version: str) -> Hello:
    """Read the other side's first word; `version` is this side's.

    Raises:
        Goodbye: It is the last one, too.
        FrameError: It is none, or another protocol's.
    """
    _require(isinstance(message, dict), "a greeting is expected first")
    _raise_goodbye(message)
    pid, handlers = message.get("pid"), message.get("handlers", [])
    _require(isinstance(pid, int) and "protocol" in message, "a greeting is expected first")
    if message["protocol"] != PROTOCOL:
        theirs = f"turnkeeper {message.get('version')!s:.40} (actor protocol {message['protocol']!r:.40})"
        own = f"turnkeeper {version} (actor protocol {PROTOCOL})"
        raise FrameError(f"process {pid} is {theirs}, and this is {own}; use one version")
    _require(isinstance(handlers, list) and all(isinstance(each, str) for each in handlers), "handlers are texts")
    return Hello(pid, frozenset(handlers))


def read_request(message: Any) -> Request:
    """Read what a caller says. Raises FrameError for anything else, and Goodbye."""
    if isinstance(message, dict):
        _raise_goodbye(message)
    match message:
        case [kind, number, method, arguments, keywords] if kind in (ASK, TELL):
            _require(isinstance(method, str), "a handler's name is a text")
            _require(isinstance(arguments, list), "arguments are a list")
            names = list(keywords) if isinstance(keywords, dict) else [None]
            _require(all(isinstance(name, str) for name in names), "keywords are a map of texts")
            return Call(_number(number), kind == ASK, method, arguments, keywords)
        case ["stop", number, seconds]:
            _require(seconds is None or _is_duration(seconds), "a stop takes seconds")
            return Stop(_number(number), seconds)
        case ["kill", number]:
            return Stop(_number(number), None, at_once=True)
        case ["call back", number]:
            return CallBack(_number(number))
    raise FrameError(f"no request of a caller: {reprlib.repr(message)}")


def read_answer(message: Any) -> tuple[str, int, list[Any]]:
    """Read what a server says: the kind, the number of the call, and the rest. Raises FrameError, and Goodbye."""
    if isinstance(message, dict):
        _raise_goodbye(message)
    match message:
        case [str() as kind, number, *content] if kind in _ANSWERS:
            forms = _ANSWERS[kind]
            fitting = len(content) == len(forms) and all(map(isinstance, content, forms))
            if fitting and (kind != ERROR or is_error(content[0])):
                return kind, _number(number), content
    raise FrameError(f"no answer of a server: {reprlib.repr(message)}")


def _raise_goodbye(message: dict[Any, Any]) -> None:
    match message:
        case {"goodbye": str() as reason, "ended": [str() as end, error, bool() as normal]} if (
            error is None or is_error(error)
        ):
            raise Goodbye(reason, Ended(end, error, normal))
        case {"goodbye": str() as reason}:
            raise Goodbye(reason)


def _number(value: Any) -> int:
    _require(isinstance(value, int) and not isinstance(value, bool) and value >= 0, "calls are numbered from 0 on")
    number: int = value
    return number


def _is_duration(value: Any) -> bool:
    # What is no number isn't greater than anything either.
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _require(condition: bool, why: str) -> None:
    if not condition:
        raise FrameError(why)
