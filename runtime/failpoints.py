"""Named places in a program at which it can be made to die or to stop, to see whether what follows keeps its promises.

A failpoint is a name for "before" or "behind" a function. Nothing of it stands in that function: a process that is
started with the variable `TURNKEEPER_FAILPOINTS` wraps the functions of its points, once, and any other process is what
it is without this module. The variable names a directory. Who passes a point whose name a file there has renames that
file to `NAME.PID`, and sends itself the signal whose number stands in it, SIGKILL if none does: so one process obeys
each file, at a moment that whoever wrote it has chosen, and it is known which. A second number says at which of its
passes from now on a process obeys, if that isn't the first.

Such a process may also have smaller limits than any other, so that it comes to places that take long to come to: the
variable `TURNKEEPER_FAILPOINT_LIMITS` has them, `{"MODULE:NAME": NUMBER}` as JSON, for who asks for it (`set_limits`).

Standard library only: spawner and shims have failpoints, too.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

VARIABLE = "TURNKEEPER_FAILPOINTS"
LIMITS_VARIABLE = "TURNKEEPER_FAILPOINT_LIMITS"

BEFORE, BEHIND = "before", "behind"


def directory() -> str | None:
    """Give the directory that this process looks into at its failpoints; None if it has none, as is the rule."""
    return os.environ.get(VARIABLE)


def arm(points: Mapping[str, str]) -> None:
    """Wrap the functions of these points: `{NAME: "before MODULE:FUNCTION"}`, or `behind`, or `MODULE:CLASS.FUNCTION`.

    Raises KeyError where this process has no directory of them, ImportError or AttributeError for a function that isn't
    there.
    """
    place = os.environ[VARIABLE]
    for name, target in points.items():
        when, _, where = target.partition(" ")
        owner, attribute = _find(where)
        found = vars(owner)[attribute]
        passed = _Point(f"{place}/{name}").passed
        setattr(
            owner, attribute, _wrapped(found, passed if when == BEFORE else None, passed if when == BEHIND else None)
        )


def set_limits() -> None:
    """Give the modules' constants that the environment names the numbers that it has for them, if it has any.

    Raises ImportError, AttributeError for a constant that isn't there, ValueError for what is no JSON.
    """
    import json

    for where, number in json.loads(os.environ.get(LIMITS_VARIABLE, "{}")).items():
        owner, attribute = _find(where)
        getattr(owner, attribute)  # a new name would limit nothing
        setattr(owner, attribute, number)


def target_of(where: str) -> Any:
    """Give what stands at `MODULE:FUNCTION` or `MODULE:CLASS.FUNCTION`. Raises ImportError, AttributeError."""
    owner, attribute = _find(where)
    return getattr(owner, attribute)


def _find(where: str) -> tuple[Any, str]:
    import importlib

    module, _, path = where.partition(":")
    *owners, attribute = path.split(".")
    owner: Any = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    return owner, attribute


class _Point:
    def __init__(self, path: str) -> None:
        self._path = path
        self._passes = 0

    def passed(self) -> None:
        """Obey the file of this point, if there is one, its time has come, and nobody else has it."""
        with suppress(OSError):
            with open(self._path) as file:
                number, _, passes = file.read().partition(" ")
            self._passes += 1
            if self._passes >= int(passes or 1):
                os.rename(self._path, f"{self._path}.{os.getpid()}")
                self._passes = 0
                os.kill(os.getpid(), int(number or signal.SIGKILL))


def _wrapped(function: Any, before: Callable[[], None] | None, behind: Callable[[], None] | None) -> Any:
    """Call what has to be called before or behind a function, which may be a coroutine function, or a builtin."""
    import functools
    import inspect

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*arguments: Any, **keywords: Any) -> Any:
            if before:
                before()
            result = await function(*arguments, **keywords)
            if behind:
                behind()
            return result

        return awaited

    @functools.wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        if before:
            before()
        result = function(*arguments, **keywords)
        if behind:
            behind()
        return result

    return called
