"""`connect`: the thread that runs a loop with the runtime in it, from its start to its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from functools import partial
from os import PathLike
from types import TracebackType

import anyio
from anyio.from_thread import BlockingPortal

from turnkeeper.runtime.watchdog import HOST_BLOCKED_SECONDS, Blockage
from turnkeeper.storage.store import Durability

from ..leaving import note_or_raise
from ..runtime import Runtime
from ..runtime_opening import open_runtime
from .loop import Loop
from .runtime import BlockingRuntime


class Connecting:
    """What `connect` returns: the blocking runtime for the body of a `with`."""

    def __init__(self, open_it: Callable[[], AbstractAsyncContextManager[Runtime]]) -> None:
        self._open = open_it
        self._pid = os.getpid()
        self._thread = threading.Thread(target=anyio.run, args=(self._live,), name="turnkeeper", daemon=True)
        self._begun: Future[Ending] = Future()
        self._opened: Future[Loop] = Future()
        self._failure: Exception | None = None

    def __enter__(self) -> BlockingRuntime:
        self._thread.start()
        try:
            return BlockingRuntime(self._opened.result())
        except BaseException:
            self._begun.result().post(cancel=True)
            self._thread.join()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() != self._pid:
            return
        self._begun.result().post(cancel=False)
        self._thread.join()
        if self._failure is not None:
            note_or_raise(error, self._failure)

    async def _live(self) -> None:
        """Have the runtime open until the end is posted; run in the thread."""
        async with BlockingPortal() as portal:
            ending = Ending(portal)
            self._begun.set_result(ending)
            with ending.opening:
                try:
                    async with self._open() as runtime:
                        self._opened.set_result(Loop(portal, runtime))
                        await ending.wished.wait()
                except Exception as failure:
                    if self._opened.done():
                        self._failure = failure
                    else:
                        self._opened.set_exception(failure)


class Ending:
    """How the end of a blocking runtime reaches its thread."""

    def __init__(self, portal: BlockingPortal) -> None:
        self.opening = anyio.CancelScope()
        self.wished = anyio.Event()
        self._portal = portal

    def post(self, *, cancel: bool) -> None:
        """Wish for the end; with `cancel`, in the middle of the opening too. Nothing if it has ended already."""
        with suppress(RuntimeError):
            self._portal.start_task_soon(self.opening.cancel if cancel else self.wished.set)


def connect(
    store: str | PathLike[str] | None = None,
    *,
    durability: Durability | None = None,
    blocked_seconds: float | None = HOST_BLOCKED_SECONDS,
    on_blocked: Callable[[Blockage], None] | None = None,
    cpu_jobs_max: int | None = None,
) -> AbstractContextManager[BlockingRuntime]:
    """Open a store for the body of a `with`, in a program without an event loop; otherwise as `open_runtime`.

    The loop that may be blocked is that of the thread that runs the runtime, by an actor that lives in it.
    """
    open_it = partial(open_runtime, store, durability=durability, cpu_jobs_max=cpu_jobs_max)
    return Connecting(partial(open_it, blocked_seconds=blocked_seconds, on_blocked=on_blocked))
