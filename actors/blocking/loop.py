"""The way from a plain program's threads into the thread that runs the loop."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from anyio.from_thread import BlockingPortal

from ..errors import ForkedProcess
from ..runtime import Runtime
from ..session.session import Session
from ..session.turns import ToolCall, Turn

Answer = TypeVar("Answer")


class Loop:
    """The way into the thread that runs the runtime `runtime`."""

    def __init__(self, portal: BlockingPortal, runtime: Runtime) -> None:
        self.runtime = runtime
        self._portal = portal
        self._pid = os.getpid()

    def call(self, function: Callable[..., Awaitable[Answer]], *args: Any, **keywords: Any) -> Answer:
        """Carry out a call there and wait for it. Raises what it raises, or why nothing can be called any more."""
        self._check()
        return self._portal.call(partial(function, *args, **keywords))

    def run(self, function: Callable[..., Answer], *args: Any, **keywords: Any) -> Answer:
        """Carry out there what doesn't wait. Raises as `call` does."""
        self._check()
        return self._portal.call(partial(function, *args, **keywords))

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedProcess(self._pid)
        self.runtime.check()

    def leave(
        self,
        body: Session | Turn | ToolCall,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave a body there; nothing in a forked child, whose parent does so."""
        if os.getpid() == self._pid:
            self._portal.call(body.__aexit__, kind, error, traceback)
