"""Actors: plain classes whose async methods handle one message at a time, and the making of one in this loop.

The public coroutine methods of a class are its handlers. If it has `__aenter__` and `__aexit__`, they bracket its life.
Its reference (actor_ref.py) is the same for an actor in the loop and for one in a worker process (workers/worker.py): a
bounded mailbox in this loop (mailbox_ref.py), in front of whatever does the work. An actor ends when it is stopped,
when its task group is cancelled, or when it fails: when a handler raises what is no registered error (errors.py). It
isn't started again here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from anyio.abc import TaskGroup, TaskStatus

from .actor_ref import SHUTDOWN_SECONDS
from .errors import is_answer
from .interrupts import without_interrupts
from .letters import Arguments, Letter, LetterRefused
from .mailbox import BYTES_MAX, MESSAGES_MAX, Mailbox
from .mailbox_ref import Life, MailboxRef


async def spawn_in_loop(
    task_group: TaskGroup,
    actor: Callable[..., Any],
    *arguments: Any,
    name: str | None = None,
    messages_max: int = MESSAGES_MAX,
    bytes_max: int = BYTES_MAX,
    shutdown_seconds: float | None = SHUTDOWN_SECONDS,
) -> MailboxRef:
    """Make an actor by `actor(*arguments)`, a class or what makes one, in this loop; return once it is ready.

    It lives in the task group until it ends. What is sent to it is handed on as it is, not copied; its mailbox counts
    the text and bytes in it. Cancelled before the actor is ready, nothing of it is left.

    Raises:
        TypeError: `actor` makes none, or one without a handler.
        Exception: What its constructor or its `__aenter__` raised, as it is.
    """
    maker: object = actor
    if not callable(maker) or inspect.iscoroutinefunction(maker):
        raise TypeError(f"an actor is made by a class, or by a function that returns one, and not by {maker!r}")
    if isinstance(maker, type):
        handlers_of(maker)
    mailbox = Mailbox[Letter](messages_max=messages_max, bytes_max=bytes_max)
    ref = MailboxRef(name or str(getattr(actor, "__name__", "actor")), mailbox, shutdown_seconds)
    await task_group.start(without_interrupts(_live_in_loop), Life(ref), actor, arguments, name=ref.name)
    return ref


async def _live_in_loop(
    life: Life, make: Callable[..., Any], arguments: Arguments, *, task_status: TaskStatus[None]
) -> None:
    failure: Exception | None = None
    try:
        with life.scope:
            actor = make(*arguments)
            handlers = handlers_of(type(actor))
            async with AsyncExitStack() as stack:
                if hasattr(actor, "__aenter__"):
                    await stack.enter_async_context(actor)
                life.begin(handlers)
                task_status.started()
                failure = await life.handle_letters(partial(_handle_in_loop, actor))
                if failure is not None:
                    raise failure
    except Exception as error:
        life.end_with(error, failure)
    except BaseException:
        life.finish("it was cancelled")
        raise
    else:
        life.finish("it was stopped", normal=True)


async def _handle_in_loop(actor: Any, letter: Letter) -> Any:
    method, arguments, keywords = letter.message
    letter.begun = True
    try:
        return await getattr(actor, method)(*arguments, **keywords)
    except Exception as error:
        if is_answer(error):
            raise LetterRefused(error) from None
        raise


def handlers_of(actor_class: type) -> frozenset[str]:
    """Return the names of a class's handlers: its public coroutine methods. Raises TypeError: It has none."""
    methods = inspect.getmembers(actor_class, inspect.iscoroutinefunction)
    handlers = frozenset(name for name, _ in methods if name[0] != "_")
    if not handlers:
        raise TypeError(f"{actor_class.__qualname__} is no actor's class: it has no handler, a public async method")
    return handlers
