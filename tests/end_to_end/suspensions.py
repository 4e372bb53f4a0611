"""A coroutine run step by step, so that something can be done at each of its suspensions, on any event loop.

What awaits a `Suspensions` passes everything between the loop and the coroutine through, and counts. So a test needn't
know where the code under it waits: it begins with the first suspension and goes on until a run has no more.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Suspensions(Generic[Result]):
    """Awaitable: the coroutine, with `on_suspension` called whenever it has suspended.

    It is called before the loop hears of it: a cancellation that it makes hits the very thing waited for.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Result], on_suspension: Callable[[], object]) -> None:
        self._coroutine = coroutine
        self._on_suspension = on_suspension

    def __await__(self) -> Generator[Any, Any, Result]:
        resume: Callable[[], Any] = partial(self._coroutine.send, None)
        while True:
            try:
                waited_for = resume()
            except StopIteration as end:
                result: Result = end.value
                return result
            self._on_suspension()
            try:
                answer = yield waited_for
            except BaseException as error:
                resume = partial(self._coroutine.throw, error)
            else:
                resume = partial(self._coroutine.send, answer)


class Once:
    """Callable: calls `act` when it is called for the time of number `at`, from 1; then `has_acted`."""

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self._left = at
        self._act = act

    @property
    def has_acted(self) -> bool:
        """Say whether it was called as often."""
        return self._left <= 0

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._act()
