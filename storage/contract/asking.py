"""Requests as the clauses make them, and what has to be answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..backend import Backend
from ..exact_json import encode_event
from ..requests import Append, Appended, Grant, Granted, Patch, Post, Request, Result

Kind = TypeVar("Kind", bound=Exception)


def owner(token: str) -> dict[str, Any]:
    """Make an owner; whether it lives is the store's `alive` to say."""
    return {"boot": "b", "pid": 1, "start": 1, "host": "here", "token": token}


def event(stream: str, seq: int, text: str = "hello", *, time: int = 1_700_000_000_000) -> bytes:
    """Make one event's line."""
    return encode_event(stream, seq, time, "user/message", {"text": text})


def events(stream: str, first: int, count: int, text: str = "hello") -> bytes:
    """Make several events' lines."""
    return b"".join(event(stream, seq, text) for seq in range(first, first + count))


def creation(stream: str, lines: bytes, **header: Any) -> Append:
    """Make a stream's first append."""
    return Append(stream, 1, 0, lines, {"kind": "session", "owner": owner(stream), **header}, create=True)


def fork(child: str, parent: str, seq: int, lines: bytes = b"", **header: Any) -> Append:
    """Make a fork's first append."""
    patch = {"kind": "session", "owner": owner(child), "parent": parent, "parent_seq": seq, **header}
    return Append(child, 1, seq, lines, patch, create=True)


def post(stream: str, key: str, text: str = "hello", *, time: int = 1_700_000_000_000, **more: Any) -> Post:
    """Make the post of an event to a stream without owner."""
    line = event(stream, 0, text, time=time)
    return Post(stream, line[line.index(b'"time":') :], key, {"kind": "inbox"}, **more)


def answer_to(backend: Backend, request: Request) -> Result:
    """Commit one request."""
    (answer,) = backend.commit([request])
    return answer


def appended(backend: Backend, request: Append | Post | Patch) -> Appended:
    """Commit what must be stored."""
    answer = answer_to(backend, request)
    assert isinstance(answer, Appended), f"{request}: {answer!r}"
    return answer


def granted(backend: Backend, request: Grant) -> Granted:
    """Commit what must be granted."""
    answer = answer_to(backend, request)
    assert isinstance(answer, Granted), f"{request}: {answer!r}"
    return answer


def refused(kind: type[Kind], answer: Result) -> Kind:
    """Check that an answer is this refusal, and give it."""
    assert isinstance(answer, kind), f"{answer!r} is no {kind.__name__}"
    return answer


def raised(kind: type[Kind], call: Callable[[], object]) -> Kind:
    """Check that a call raises this error, and give it."""
    try:
        found = call()
    except kind as error:
        return error
    raise AssertionError(f"{found!r} came, and no {kind.__name__}")
