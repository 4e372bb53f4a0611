"""How a runtime is entered and left, for trio and asyncio alike.

What the body raises is what comes out: no task group of ours is ever shown it, and leaving is shielded and bounded.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from os import PathLike
from types import TracebackType

import anyio

from turnkeeper.runtime.interrupts import without_interrupts
from turnkeeper.runtime.watchdog import HOST_BLOCKED_SECONDS, Blockage, Watchdog
from turnkeeper.storage.store import Durability

from .background import Background
from .client.client import Client
from .leaving import note_or_raise
from .places import make_parents_of_default, store_place
from .runtime import Runtime
from .session.inbox import Inbox, Message
from .session.session import Session
from .session.turns import ToolCall, Turn
from .tasks.task import Task, TaskOutput

_LOG = logging.getLogger("turnkeeper")


class RuntimeOpening:
    """What `open_runtime` returns: the runtime for the body of an `async with`."""

    def __init__(
        self,
        store: str | PathLike[str] | None,
        durability: Durability | None,
        watchdog: Watchdog | None,
        cpu_jobs_max: int | None,
    ) -> None:
        self._store = store
        self._durability: Durability | None = durability
        self._watchdog = watchdog
        self._cpu_jobs_max = cpu_jobs_max
        self._runtime: Runtime | None = None
        # Made around all that the runtime starts, so that its end can be shielded as a whole.
        self._scope = anyio.CancelScope()

    async def __aenter__(self) -> Runtime:
        if self._runtime is not None:
            raise RuntimeError("this runtime was entered before; call open_runtime again")
        _protect_from_interrupts()
        place = store_place(self._store)
        make_parents_of_default(place.path)
        self._scope.__enter__()
        try:
            client = await Client.open(place.path, self._scope, durability=self._durability, backend=place.backend)
            background = Background()
            await background.open()
            try:
                self._runtime = Runtime(client, background, self._cpu_jobs_max)
                if self._watchdog is not None:
                    self._watchdog.begin()
                    background.tasks.start_soon(without_interrupts(self._watchdog.beat), anyio.sleep)
            except BaseException:
                self._scope.shield = True
                await background.aclose()
                await client.aclose()
                raise
        except BaseException:
            self._scope.__exit__(*sys.exc_info())
            raise
        return self._runtime

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._runtime is not None
        self._scope.shield = True
        try:
            failures = await self._runtime._leave()
        finally:
            self._scope.__exit__(kind, error, traceback)
        for failure in failures[1:]:
            failures[0].add_note(f"turnkeeper: {failure}")
        if failures:
            note_or_raise(error, failures[0])


def open_runtime(
    store: str | PathLike[str] | None = None,
    *,
    durability: Durability | None = None,
    blocked_seconds: float | None = HOST_BLOCKED_SECONDS,
    on_blocked: Callable[[Blockage], None] | None = None,
    cpu_jobs_max: int | None = None,
) -> AbstractAsyncContextManager[Runtime]:
    """Open a store for the body of an `async with`, on trio or asyncio, whichever runs; made if it is missing.

    `store` is a directory, else $TURNKEEPER_STORE, else the user's own; `sqlite:DIR` is one that SQLite keeps, and not
    the journal. `durability` is fixed at the store's creation too: `fsync` (what nothing said means) outlives the
    machine's death, `os` only that of processes.

    While the loop is blocked for `blocked_seconds`, this is told once, with where it is stuck: by a warning of the
    logger `turnkeeper`, and to `on_blocked`, which is called in another thread. Nothing else is done about it, and with
    None nobody looks.

    Of what `compute` is given `cpu_jobs_max` run at a time, in a process each; as many as there are cores, with None.

    Leaving stops actors, closes sessions, ends the tasks that aren't kept, and waits for the node's end if this was its
    last client; in a shield, some seconds at most. The body's exception passes as it is, and failures of leaving become
    notes of it.

    Raises:
        StoreRefused: There can be no store, or not such a store. NewerFormat: A newer version wrote it.
        NodeNotAnswering: Somebody holds it and doesn't answer. VersionMismatch: Another version serves it.
        ValueError: `cpu_jobs_max` is less than 1.
    """
    if cpu_jobs_max is not None and cpu_jobs_max < 1:
        raise ValueError(f"cpu_jobs_max is a number from 1 on, or None, and not {cpu_jobs_max!r}")
    watchdog = None if blocked_seconds is None else Watchdog(blocked_seconds, partial(_tell_blocked, on_blocked))
    return RuntimeOpening(store, durability, watchdog, cpu_jobs_max)


def _tell_blocked(on_blocked: Callable[[Blockage], None] | None, blockage: Blockage) -> None:
    _LOG.warning("%s:\n%s", blockage, blockage.stacks.rstrip())
    if on_blocked is not None:
        try:
            on_blocked(blockage)
        except Exception:
            # There is nobody to raise it to, and the next blockage is to be told, too.
            _LOG.exception("on_blocked failed")


def _protect_from_interrupts() -> None:
    """Keep trio's KeyboardInterrupt out of the middle of our calls: it comes at a wait, where a cancellation would.

    So an event that has a number is in the buffer, and an end that has begun isn't half done.
    """
    for function in (
        *(Session.append, Session.write, Session.flush, Session.send, Session.aclose, Session.__aexit__),
        *(Inbox.__anext__, Message.accept),
        *(Runtime.compute, Runtime.start_task, Runtime.wait_tasks, Runtime.stop_tasks),
        *(Task.wait, Task.stop, TaskOutput.__anext__),
        *(
            Runtime.compute,
            Turn.__aenter__,
            Turn.__aexit__,
            ToolCall.__aenter__,
            ToolCall.__aexit__,
            RuntimeOpening.__aexit__,
        ),
    ):
        without_interrupts(function)
