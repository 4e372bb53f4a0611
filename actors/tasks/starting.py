"""What a task is to be started with, checked before anything is recorded: a mistake is one clear line, and no task.

First the arguments themselves (`checked_start`, pure but for this process's own environment), then the files that they
name, as this process sees them (`located`, for a thread). Whatever the system still refuses then, a script without a
first line that says what runs it, say, is found when the command is to run, and becomes the task's end. Texts may hold
bytes that are no UTF-8, as `os.fsdecode` gives them; they reach the command unchanged.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeGuard, get_args

from turnkeeper.storage.errors import InvalidValue

from ..core_types import TASK_REQUESTED
from ..errors import TaskRefused
from ..names import check_key

OwnerExit = Literal["kill", "keep"]

GRACE_SECONDS: Final = 5.0
"""Between the wish that a task ends and the end by force, if nothing else is said."""

SECONDS_MAX: Final = 10 * 365 * 86400
"""The longest time that a task may be given, ten years: no clock counts on for ever."""

OUTPUT_BYTES_LIMIT: Final = 4 * 1024**3
"""What a task may write, if nothing else is said."""

OUTPUT_BYTES_MAX: Final = 2**62

ARGUMENT_BYTES_MAX: Final = 32 * os.sysconf("SC_PAGE_SIZE")
"""Linux: MAX_ARG_STRLEN, one argument or variable with the byte that ends it."""

ARGUMENTS_BYTES_MAX: Final = 6 * 1024 * 1024
"""Linux: what arguments and environment may take together where the stack's limit allows more, 3/4 of _STK_LIM."""

ARGUMENTS_BYTES_ROOM: Final = 16 * 1024
"""Kept free for what is added on the way: the task's own variable, the program's path, the interpreter of a script."""

_POINTER_BYTES: Final = 8
_SHOWN_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Start:
    """What a task is started with. `environment` are the names that its caller sets or removes, `env` is all of it.

    `program` and `cwd`, None for this process's own directory, are as they were given until they are `located`; so is
    `umask`, which is this process's own.
    """

    argv: list[bytes]
    program: bytes
    cwd: bytes | None
    umask: int
    env: dict[bytes, bytes]
    environment: list[str]
    key: str | None
    group: str | None
    timeout: float | None
    grace: float
    limit: int
    stall: float | None
    keep: bool

    def as_map(self) -> dict[str, Any]:
        """Give it as the node is told of it."""
        return {name: getattr(self, name) for name in self.__slots__}


def checked_start(
    argv: Sequence[str],
    *,
    key: str | None = None,
    group: str | None = None,
    cwd: str | None = None,
    env: Mapping[str, str | None] | None = None,
    timeout: float | None = None,
    grace: float = GRACE_SECONDS,
    limit: int | None = None,
    stall: float | None = None,
    on_owner_exit: OwnerExit = "kill",
) -> Start:
    """Check what a task is to be started with, see `Runtime.start_task`.

    Raises TaskRefused for the first thing that can't be, having changed nothing.
    """
    arguments = _arguments(argv)
    environment = _environment(env)
    for name, text in (("key", key), ("group", group)):
        if text is not None:
            _check_name(name, text)
    if on_owner_exit not in get_args(OwnerExit):
        raise TaskRefused("on_owner_exit", f"is {' or '.join(get_args(OwnerExit))}, not {_shown(on_owner_exit)}")
    keep = on_owner_exit == "keep"
    seconds = {"timeout": timeout, "grace": grace, "stall": stall}
    for name, value in seconds.items():
        if value is not None or name == "grace":
            _check_seconds(name, value)
    limit = _checked_limit(limit)
    _check_size(arguments, environment)
    place = None if cwd is None else _bytes_of("cwd", cwd)
    if place == b"":
        raise TaskRefused("cwd", "is empty; give a directory, or leave it out for this process's own")
    names = [os.fsencode(name).decode("utf-8", "backslashreplace") for name in sorted(env or ())]
    return Start(
        argv=arguments,
        program=arguments[0],
        cwd=place,
        umask=0o077,
        env=environment,
        environment=names,
        key=key,
        group=group,
        timeout=timeout,
        grace=grace,
        limit=limit,
        stall=stall,
        keep=keep,
    )


def located(start: Start) -> Start:
    """Look for the directory and the program, and give the start with their absolute paths. For a thread.

    Raises TaskRefused for one that isn't there or can't be used.
    """
    cwd = _directory(start.cwd)
    return replace(start, cwd=cwd, program=_program(start.program, cwd, start.env.get(b"PATH")), umask=_umask())


def is_seconds(value: object) -> TypeGuard[float]:
    """Say whether this is a time in seconds that a clock can count, from 0 on."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= SECONDS_MAX


def _check_seconds(what: str, value: object) -> None:
    if not is_seconds(value) or not value:
        wanted = f"a number of seconds above 0 up to {SECONDS_MAX:,} (ten years)"
        raise TaskRefused(what, f"is {wanted}, not {_shown(value)}")


def _checked_limit(limit: object) -> int:
    if limit is None:
        return OUTPUT_BYTES_LIMIT
    if not isinstance(limit, int) or isinstance(limit, bool) or not 0 < limit <= OUTPUT_BYTES_MAX:
        raise TaskRefused("limit", f"is a whole number of bytes from 1 to 2**62, not {_shown(limit)}")
    return limit


def _check_name(what: str, name: object) -> None:
    try:
        check_key(name, TASK_REQUESTED)
    except InvalidValue as error:
        raise TaskRefused(f"{what}:", error.why.replace("a key", f"a {what}")) from None


# -- Texts


def _arguments(argv: Sequence[str]) -> list[bytes]:
    if isinstance(argv, str | bytes):
        raise TaskRefused("argv", f"is a list, of the program and each of its arguments, not the text {_shown(argv)}")
    if not isinstance(argv, Sequence):
        raise TaskRefused("argv", f"is a list of texts, not {type(argv).__name__}")
    if not argv:
        raise TaskRefused("argv", "is empty; it begins with the program")
    arguments = [_bytes_of(f"argv[{number}]", each) for number, each in enumerate(argv)]
    if not arguments[0]:
        raise TaskRefused("argv[0]", "is empty; it is the program")
    return arguments


def _environment(changes: Mapping[str, str | None] | None) -> dict[bytes, bytes]:
    """Give this process's environment with the changes made; None removes a variable."""
    environment = dict(os.environb)
    if changes is not None and not isinstance(changes, Mapping):
        raise TaskRefused("env", f"is a mapping of names to texts, not {type(changes).__name__}")
    for name, value in (changes or {}).items():
        encoded = _bytes_of("a name in env", name)
        if not encoded or b"=" in encoded:
            raise TaskRefused("a name in env", f"isn't empty and has no '=', unlike {_shown(name)}")
        if value is None:
            environment.pop(encoded, None)
        else:
            environment[encoded] = _bytes_of(f"env[{_shown(name)}]", value, secret=True)
    return environment


def _bytes_of(what: str, text: object, *, secret: bool = False) -> bytes:
    """Encode a text as the system has it. What is `secret` isn't shown in an error."""
    if not isinstance(text, str):
        raise TaskRefused(what, f"is a text, not {type(text).__name__ if secret else _shown(text)}")
    if "\0" in text:
        shown = "" if secret else f": {_shown(text)}"
        raise TaskRefused(what, f"has a NUL, with which the system ends a text{shown}")
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        raise TaskRefused(what, "has a lone surrogate, the half of a character that was cut") from None


# -- Sizes


def _check_size(arguments: list[bytes], environment: Mapping[bytes, bytes]) -> None:
    for number, argument in enumerate(arguments):
        if len(argument) >= ARGUMENT_BYTES_MAX:
            raise TaskRefused(f"argv[{number}]", "has " + _too_long(len(argument), ARGUMENT_BYTES_MAX - 1))
    for name, value in environment.items():
        size = len(name) + len(b"=") + len(value)
        if size >= ARGUMENT_BYTES_MAX:
            raise TaskRefused(
                f"the variable {_shown(os.fsdecode(name))}", "has " + _too_long(size, ARGUMENT_BYTES_MAX - 1)
            )
    texts = sum([len(each) + 1 for each in arguments])
    variables = sum([len(name) + len(value) + 2 for name, value in environment.items()])
    size = texts + variables + (len(arguments) + len(environment)) * _POINTER_BYTES
    most = min(os.sysconf("SC_ARG_MAX"), ARGUMENTS_BYTES_MAX) - ARGUMENTS_BYTES_ROOM
    if size > most:
        raise TaskRefused("argv and env", f"together have {_too_long(size, most)}")


def _too_long(size: int, most: int) -> str:
    return f"{size:,} bytes, and the system takes {most:,}; hand over as much as that in a file"


# -- Files


def _directory(cwd: bytes | None) -> bytes:
    """Give the absolute path of the task's working directory, which is one that can be entered."""
    if cwd is None:
        try:
            return os.getcwdb()
        except FileNotFoundError:
            raise TaskRefused("cwd", "has to be given: this process's own directory was removed") from None
    shown = f"the directory {_shown(os.fsdecode(cwd))}"
    try:
        path = os.path.abspath(cwd)
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise TaskRefused(shown, "isn't there; make it, or give another cwd") from None
    except OSError as error:
        raise TaskRefused(shown, f"can't be used: {_said(error)}; give another cwd") from None
    if not stat.S_ISDIR(mode):
        raise TaskRefused(shown, "is no directory; give another cwd")
    if not os.access(path, os.X_OK, effective_ids=True):
        raise TaskRefused(shown, "can't be entered by this user; give another cwd")
    return path


def _program(name: bytes, cwd: bytes, search: bytes | None) -> bytes:
    """Give the absolute path of the program: as it is named, or as it is found in the task's PATH."""
    shown = f"the program {_shown(os.fsdecode(name))}"
    if b"/" in name:
        path = os.path.join(cwd, name)
        if fault := _fault(path):
            where = "" if name.startswith(b"/") else f" (in {_shown(os.fsdecode(cwd))})"
            raise TaskRefused(shown + where, fault.why)
        return path
    search = os.fsencode(os.defpath) if search is None else search
    found = ""
    for place in search.split(b":"):
        path = os.path.join(cwd, place, name)
        fault = _fault(path)
        if fault is None:
            return path
        if fault.is_there and not found:
            found = f"is only {_shown(os.fsdecode(path))} in PATH, which {fault.why}"
    missing = f"isn't in the task's PATH ({_shown(os.fsdecode(search))}); install it, or give its path"
    raise TaskRefused(shown, found or missing)


class _Fault(NamedTuple):
    """Why a file can't be run, and whether it is there at all."""

    why: str
    is_there: bool


def _fault(path: bytes) -> _Fault | None:
    """Look whether a file can be run, as far as its directory entry tells; None if it can."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return _Fault("isn't there; install it, or give another path", False)
    except OSError as error:
        return _Fault(f"can't be looked at: {_said(error)}; give another path", False)
    if stat.S_ISDIR(mode):
        return _Fault("is a directory; give a file that can be run", True)
    if not stat.S_ISREG(mode):
        return _Fault("is no regular file; give one that can be run", True)
    if not os.access(path, os.X_OK, effective_ids=True):
        return _Fault("isn't executable for this user; make it so: chmod +x", True)
    return None


def _umask() -> int:
    """Give this process's own, which the system only tells here without changing it."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1], 8) for line in status if line.startswith("Umask:"))
    except (OSError, StopIteration):
        umask = os.umask(0o077)
        os.umask(umask)
        return umask


def _said(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _shown(value: object) -> str:
    """Show a value in one short line."""
    try:
        shown = repr(value)
    except ValueError:  # a number of thousands of digits
        shown = type(value).__name__
    return shown if len(shown) <= _SHOWN_CHARACTERS_MAX else f"{shown[:_SHOWN_CHARACTERS_MAX]}…"
