"""Actors in worker processes of their own: started, asked, stopped and reaped from the host's loop.

A worker is a fresh Python in a process session of its own (worker_process.py), with multiprocessing's way of importing
the program's main module, which is done only if the actor's class is defined there. It is ready within a time or there
is an error, with what it last said. It ends with the actor, with the task group, or at once when the host dies;
worker_main.py is its side. One call at a time is with the worker; the rest waits in the mailbox here, and so is
certainly not started when the worker dies.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus

from ..actor_ref import READY_SECONDS, SHUTDOWN_SECONDS
from ..actors import handlers_of
from ..errors import WorkerStartError
from ..interrupts import without_interrupts
from ..large_bytes import Parcel, take_out
from ..letters import Arguments, Keywords, Letter, LetterLost, Sealed
from ..mailbox import BYTES_MAX, MESSAGES_MAX, Mailbox
from ..mailbox_ref import Life, MailboxRef
from ..message_frames import encode_message
from ..watchdog import PROCESS_BLOCKED_SECONDS, check_blocked_seconds
from .hosted_worker import HostedWorker, StartOrder
from .main_module import main_module_of, require_guarded_main
from .worker_process import SpareWorker, import_path


async def spawn_in_process(
    task_group: TaskGroup,
    actor: type | str,
    *arguments: Any,
    name: str | None = None,
    messages_max: int = MESSAGES_MAX,
    bytes_max: int = BYTES_MAX,
    shutdown_seconds: float | None = SHUTDOWN_SECONDS,
    ready_seconds: float = READY_SECONDS,
    blocked_seconds: float | None = PROCESS_BLOCKED_SECONDS,
    spare: SpareWorker | None = None,
) -> MailboxRef:
    """Make an actor in a new worker process; return once it is ready.

    `actor` is a class that can be imported, or its "module:name", which the host then need not import. Arguments, of
    messages too, and replies are plain values and cross as copies. Byte strings of 1 MiB and more that are an argument
    of a message, or a reply, are copied once, and arrive as read-only memoryviews of what both processes share.

    The process lives in the task group until the actor ends. It is the `spare` one, if given, which is then refilled.
    Cancelled before the actor is ready, nothing is left. One whose event loop doesn't turn for `blocked_seconds` is
    killed, and its end tells where it was. None is never.

    Raises:
        WorkerStartError: The process did not come up, or could not import the class, within `ready_seconds`.
        UnguardedMain: This process is itself only importing the program's main module.
        ActorError: The class's constructor or its `__aenter__` failed. Registered errors arrive as what they are.
        TypeError: An argument can't cross, or `actor` is no class, or one without a handler.
        MessageTooLarge: The arguments are more than a frame holds.
    """
    require_guarded_main()
    maker: object = actor
    if not isinstance(maker, str | type):
        raise TypeError(f"an actor in a process is made by a class or its 'module:name', and not by {actor!r}")
    if isinstance(actor, type):
        handlers_of(actor)
    target = actor if isinstance(actor, str) else f"{actor.__module__}:{actor.__qualname__}"
    check_blocked_seconds(blocked_seconds)
    order = _start_order(target, arguments, blocked_seconds)
    mailbox = Mailbox[Letter](messages_max=messages_max, bytes_max=bytes_max)
    ref = MailboxRef(name or target.rpartition(":")[2], mailbox, shutdown_seconds)
    try:
        await task_group.start(
            without_interrupts(_live_in_process), Life(ref), order, ready_seconds, spare, name=ref.name
        )
    finally:
        if spare is not None:
            spare.refill()  # only now: its start would slow this one's
    return ref


def _start_order(target: str, arguments: Arguments, blocked_seconds: float | None) -> StartOrder:
    start = {
        "main": main_module_of(target),
        "path": [os.fsencode(each) for each in import_path()],
        "argv": [os.fsencode(each) for each in sys.argv],
        "environment": dict(os.environb),
        "blocked_seconds": blocked_seconds,
    }
    return StartOrder(target, encode_message(["boot", target, arguments, start], arguments=2))


def seal_for_process(method: str, arguments: Arguments, keywords: Keywords) -> Sealed:
    """Make what asks a worker, a frame and memory for large byte strings; the mailbox counts the bytes of both."""
    slim = take_out(arguments, keywords)
    frame = encode_message(["call", method, slim.arguments, slim.keywords, *slim.places], arguments=2, keywords=3)
    return Sealed(Parcel(frame, slim.copied()), len(frame) + slim.size)


async def _live_in_process(
    life: Life, order: StartOrder, ready_seconds: float, spare: SpareWorker | None, *, task_status: TaskStatus[None]
) -> None:
    worker = await HostedWorker.start(order, ready_seconds, spare)
    worker.when_lost = life.take_no_more
    started, in_order = False, False
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(without_interrupts(worker.listen))
            group.start_soon(without_interrupts(worker.heed_kill), life.kill_wished)
            try:
                with life.scope:
                    handlers = await worker.wait_started()
                    life.begin(handlers, seal_for_process, without_interrupts(worker.send_ahead))
                    task_status.started()
                    started = True
                    failure = await life.handle_letters(worker.call)
                    in_order = failure is None
            except LetterLost:
                pass
            finally:
                await worker.end(life.seconds_left(), now=not in_order)
    except BaseException:
        life.finish("it was cancelled")
        if worker.leaving_error is not None:
            raise worker.leaving_error from None
        raise
    finally:
        worker.close()
    if not started:
        raise worker.leaving_error or WorkerStartError(order.target, f"{worker.exit} before its actor was ready")
    if worker.leaving_error is not None:
        life.end_with(worker.leaving_error, failure)
    elif failure is not None:
        life.finish(f"it failed: {failure}", failure)
    else:
        is_normal = worker.ended_normally or life.kill_wished.is_set()
        life.finish(worker.how_it_ended(), worker.death(), normal=is_normal)
