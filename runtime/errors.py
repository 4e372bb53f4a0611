"""How an ask ends without a reply, and which exceptions of an actor reach the one who asked as what they are.

An actor's exception crosses a process as its type's name, its message and its traceback, and arrives as `ActorError`.
A class given to `register_error` in both processes arrives as itself, built anew from its plain `args`: the sender
names a class, the receiver builds only what it registered, and nothing is ever unpickled. What an actor raises of
registered classes is an answer; any other exception is a failure and ends it.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Mapping
from typing import Any, TypeVar

from .frames import FrameError, encode_frame

TEXT_CHARACTERS_MAX = 64 * 1024
"""How much of a message, and of the end of a traceback, crosses."""

ARGUMENTS_BYTES_MAX = 1024 * 1024
"""Beyond this the arguments of a registered exception don't cross, and it arrives as its description."""

ErrorClass = TypeVar("ErrorClass", bound=type[Exception])


class AskError(Exception):
    """An ask ended without the reply that it was for."""


class ActorNotStarted(AskError):
    """The actor never began with it, so it is safe to ask again, or another one. `call` is actor and handler."""

    def __init__(self, call: str, reason: str) -> None:
        super().__init__(call, reason)
        self.call = call
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.call} was not started: {self.reason}"


class ActorUnknown(AskError):
    """The actor may have done it, all or in part, or may still be at it. `call` is actor and handler."""

    def __init__(self, call: str, reason: str) -> None:
        super().__init__(call, reason)
        self.call = call
        self.reason = reason

    def __str__(self) -> str:
        return f"whether {self.call} was done is unknown: {self.reason}"


class MessageTooLarge(Exception):
    """A message of `size` bytes, more than the `limit` of what should hold it. Nothing was sent.

    `holder` is the actor's "mailbox", or the "frame" that carries all of a message between two processes.
    """

    def __init__(self, size: int, limit: int, holder: str) -> None:
        super().__init__(size, limit, holder)
        self.size = size
        self.limit = limit
        self.holder = holder

    def __str__(self) -> str:
        if self.holder == "mailbox":
            return f"a message of {self.size:,} bytes is over its mailbox's limit of {self.limit:,}: see bytes_max"
        over = f"a message of {self.size:,} bytes is over the limit of {self.limit:,} between processes"
        return f"{over}: put its content into a blob or a file"


class ActorError(AskError):
    """The actor failed at it: the name of the exception's type, its message, and its traceback as text.

    The traceback stands in the notes too, so an uncaught one shows where in the actor it was.
    """

    def __init__(self, type_name: str, message: str, traceback_text: str = "") -> None:
        super().__init__(type_name, message, traceback_text)
        self.type_name = type_name
        self.message = message
        self.traceback_text = traceback_text
        if traceback_text:
            self.add_note(f"Its traceback:\n{traceback_text.rstrip()}")

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message}" if self.message else self.type_name


class WorkerStartError(Exception):
    """No worker process came up for `target`; `words` are the last that it said on its standard error, or "" ."""

    def __init__(self, target: str, reason: str, words: str = "") -> None:
        super().__init__(target, reason, words)
        self.target = target
        self.reason = reason
        self.words = words
        if words:
            self.add_note(f"Its last words:\n{words.rstrip()}")

    def __str__(self) -> str:
        return f"the worker process for {self.target} {self.reason}"


class ChildNotReady(Exception):
    """A child of a supervisor was not ready in its time, or ended before."""


class ChildStartError(Exception):
    """A child of a supervisor could not be started; the error for which it could not is the cause."""

    def __init__(self, child: str, reason: str) -> None:
        super().__init__(child, reason)
        self.child = child
        self.reason = reason

    def __str__(self) -> str:
        return f"child {self.child!r} can't be started: {self.reason}"


class TooManyRestarts(Exception):
    """A supervisor has ended itself and its children: `child` died, which was once more than its policy allows."""

    def __init__(self, supervisor: str, child: str, reason: str) -> None:
        super().__init__(supervisor, child, reason)
        self.supervisor = supervisor
        self.child = child
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.supervisor} gave up child {self.child!r}: {self.reason}"


class WorkerDied(Exception):
    """A worker process died, and left `words`: the stacks of a blocked event loop, or of a crash in C."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(reason, words)
        self.reason = reason
        self.words = words
        self.add_note(f"Its last words:\n{words.rstrip()}")

    def __str__(self) -> str:
        return self.reason


def register_error(error_class: ErrorClass) -> ErrorClass:
    """Let exceptions of exactly this class cross from an actor as what they are; usable as a decorator.

    Its instances are built again by `error_class(*args)`, so `args` must be what the constructor takes, and plain
    values; one that can't be built so arrives as `ActorError`.
    """
    _registered[_name_of(error_class)] = error_class
    return error_class


def is_answer(error: BaseException) -> bool:
    """Say whether an actor's exception is of a registered class: an answer, not a failure."""
    return _registered.get(_name_of(type(error))) is type(error)


def actor_error(error: BaseException) -> ActorError:
    """Describe an exception that is being handled, for the one who asked."""
    if isinstance(error, ActorError):
        return error
    text = "".join(traceback.format_exception(error))
    return ActorError(type(error).__qualname__, _message_of(error), _plain(text[-TEXT_CHARACTERS_MAX:]))


def only_one(error: Exception) -> Exception:
    """Take an error out of the groups that it is alone in."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def error_to_wire(error: BaseException) -> dict[str, Any]:
    """Give an exception as plain values."""
    described = actor_error(error)
    wire: dict[str, Any] = {
        "type": described.type_name,
        "message": described.message,
        "traceback": described.traceback_text,
    }
    if is_answer(error):
        with contextlib.suppress(TypeError, FrameError):
            if len(encode_frame(error.args)) <= ARGUMENTS_BYTES_MAX:
                wire |= {"class": _name_of(type(error)), "args": error.args}
    return wire


def is_error(wire: Any) -> bool:
    """Say whether a value has the form in which errors cross."""
    if not isinstance(wire, dict):
        return False
    texts = all(isinstance(wire.get(name), str) for name in ("type", "message", "traceback"))
    names = wire.get("class", [])
    arguments = isinstance(wire.get("args", []), list)
    return texts and arguments and isinstance(names, list) and all(isinstance(name, str) for name in names)


def error_from_wire(wire: Mapping[str, Any]) -> Exception:
    """Build the exception that the other side described: of a class registered here, or an `ActorError`."""
    error_class = _registered.get(tuple(wire.get("class", ())))
    if error_class is not None:
        try:
            return error_class(*wire["args"])
        except Exception:  # whatever the constructor does not like: the description below says all
            pass
    return ActorError(wire["type"], wire["message"], wire["traceback"])


def _name_of(error_class: type) -> tuple[str, str]:
    # A spawned process knows the program's main module by another name than the program does.
    module = "__main__" if error_class.__module__ == "__mp_main__" else error_class.__module__
    return module, error_class.__qualname__


def _message_of(error: BaseException) -> str:
    try:
        return _plain(str(error)[:TEXT_CHARACTERS_MAX])
    except Exception as failure:
        return f"(its message can't be read: {type(failure).__qualname__})"


def _plain(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


_registered: dict[tuple[str, ...], type[Exception]] = {}
