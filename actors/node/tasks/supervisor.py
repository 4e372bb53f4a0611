"""The process supervisor: keeps what is known of unfinished tasks, and answers what clients ask about tasks.

A start is recorded before anything is forked, and each end once; of a task that has finished nothing is kept here. What
an earlier node left is adopted first (see `adoption`), beside all else, and whoever asks about a task waits for that.
Who stops asking changes nothing of what he began. Part of the node, on trio, with the store as its directory; nothing
of this is loaded before there is a task. Its `supervisor_keeper` makes another one if it fails.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import trio

from turnkeeper.runtime.tasks import directory
from turnkeeper.storage.errors import Conflict, NotFound, StorageError
from turnkeeper.storage.requests import StreamRow

from ... import protocol
from ...errors import SessionClosed, TaskDiffers
from ...reading.naming import find_task
from ...tasks import records
from ..switchboard import Switchboard
from .adoption import adopt
from .live_task import Desk, LiveTask, now
from .owners import Owner, Owners
from .recorder import Recorder
from .requests import EndOwned, List, Request, Start, Stop, Wait
from .spawner_keeper import SpawnerKeeper
from .stop_wish import STOP_SECONDS

TICK_SECONDS: Final = 1.0
"""How often those tasks are looked at of which nothing else would tell."""

LOOK_SECONDS: Final = 15.0
"""How often all are looked at, should a wake-up have been lost."""

OWNER_GRACE_SECONDS: Final = 2.0
"""Between TERM and KILL for the tasks of a runtime that closes."""

LOOK_WANTED_SECONDS: Final = 0.2
"""How often the outputs of those are looked at to which somebody listens; all others' are once a tick."""

_MESSAGE_BYTES_MAX: Final = 256

Reply = dict[str, Any]


class Supervisor:
    """The supervisor of the store's tasks.

    `is_attached` says whether a token has a connection to the node; `changed` is called when a task has ended, and when
    what an earlier node left is known. `descriptors` is how many files a task may have open.
    """

    def __init__(
        self,
        recorder: Recorder,
        switchboard: Switchboard,
        is_attached: Callable[[str], bool],
        changed: Callable[[], None],
        *,
        descriptors: int,
    ) -> None:
        self._changed = changed
        self._recorder = recorder
        self._spawner = SpawnerKeeper(self._fail, descriptors)
        self._switchboard = switchboard
        self._desk = Desk(self._recorder, self._spawner, switchboard)
        self._is_attached = is_attached
        self._live: dict[str, LiveTask] = {}
        self._adopted = trio.Event()
        # Bound before anything is looked at: what becomes of a task behind a look is told.
        self._bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with suppress(FileNotFoundError):
            os.unlink(protocol.TASK_SOCKET)
        self._bell.bind(protocol.TASK_SOCKET)

    async def run(self) -> StorageError | None:
        """Supervise until cancelled; return earlier, with the reason, when nothing can be recorded any more.

        Cancelled, it leaves all tasks to their shims, and the spawner has ended when it has.
        """
        refusal: StorageError | None = None

        async def record(*, task_status: trio.TaskStatus[None]) -> None:
            nonlocal refusal
            try:
                await self._recorder.run(task_status=task_status)
            except StorageError as error:  # a writer of another version, say
                refusal = error
                self._nursery.cancel_scope.cancel()
                await trio.lowlevel.checkpoint()  # cancelled: one that returns before it has started is a mistake

        try:
            async with trio.open_nursery() as self._nursery:
                self._owners = Owners(self._nursery, self._is_attached, self._stop_owned)
                await self._nursery.start(record)
                for task in (self._spawner.run, self._hear_shims, self._tick, self._adopt):
                    self._nursery.start_soon(task)
        finally:
            self._bell.close()
        return refusal

    # -- What the node asks

    @property
    def holds_node(self) -> bool:
        """Say whether the node has to stay though nobody is attached: for kept tasks, and for those being stopped."""
        return not self._adopted.is_set() or any(map(self._holds, self._live.values()))

    @property
    def spawner_pid(self) -> int | None:
        """The spawner's process, if there is one now."""
        return self._spawner.pid

    @property
    def shim_pids(self) -> list[int]:
        """The processes of the shims that are known."""
        return [
            task.shim["pid"] for task in self._live.values() if task.shim is not None and task.look.stage != "ended"
        ]

    @property
    def unfinished(self) -> int:
        """How many tasks have not finished."""
        return len(self._live)

    async def wait_adopted(self) -> None:
        """Wait until what an earlier node left is known."""
        await self._adopted.wait()

    def _holds(self, task: LiveTask) -> bool:
        if task.is_kept:
            return task.is_waited_for or not task.ended.is_set()
        return task.is_waited_for or self._owners.is_awaited(task.token)

    # -- Owners

    def owner_left(self, owner: Owner) -> None:
        """Take note that a connection of a runtime has ended without a word."""
        if any(task.token == owner.token for task in self._owned()):
            self._owners.await_return(owner)

    async def end_owned(self, token: str) -> None:
        """Stop the tasks that a runtime owns, and wait until that is recorded, or can't be done."""
        owned = [task for task in self._owned() if task.token == token]
        for task in owned:
            task.stop("owner", OWNER_GRACE_SECONDS)
        with trio.move_on_after(OWNER_GRACE_SECONDS + STOP_SECONDS):
            for task in owned:
                await task.finished.wait()

    def _owned(self) -> list[LiveTask]:
        """List what ends with its owner: one that has ended, too, which is here for what it left behind."""
        return [task for task in self._live.values() if not task.is_kept]

    def _stop_owned(self, token: str) -> None:
        for task in self._owned():
            if task.token == token and not task.is_stopping:
                task.stop("owner", task.grace)

    # -- What clients ask

    async def answer(self, owner: Owner, request: Request) -> Reply:
        """Do what a runtime asks, and give the answer. Raises the refusal."""
        match request:
            case Start():
                return await self._start(owner, request)
            case Stop():
                return await self._see_through(partial(self._stop, request))
            case Wait():
                return await self._wait(request)
            case List():
                return await self._list(request.session)
            case EndOwned():
                return await self._see_through(partial(self._end_owned, owner))

    async def _see_through(self, answer: Callable[[], Awaitable[Reply]]) -> Reply:
        """Do what is asked to its end, whoever stops waiting for the answer, and give that. Raises what it raises."""
        outcome: list[Reply | StorageError] = []
        done = trio.Event()

        async def run() -> None:
            try:
                outcome.append(await answer())
            except StorageError as error:
                outcome.append(error)
            done.set()

        self._nursery.start_soon(run)
        await done.wait()
        if isinstance(outcome[0], StorageError):
            raise outcome[0]
        return outcome[0]

    async def _start(self, owner: Owner, start: Start) -> Reply:
        """Start a task, or find that it has been: once for its id, whoever asks, and however often."""
        await self._adopted.wait()
        request = records.requested(start.as_record({**owner.process, "token": owner.token}), now())
        row, place = None, f"{protocol.TASKS_DIRECTORY}/{start.task}"
        if start.task not in self._live and (start.key is not None or directory.is_lock_held(place) is not None):
            row = await self._row(start.task)
        task = self._live.get(start.task)
        if task is None and row is None:
            if not (start.keep or self._is_attached(owner.token)):
                raise SessionClosed("the store")  # it left meanwhile: nobody would end what it owns
            task = self._live[start.task] = LiveTask(start.task, self._desk, request.header, stall=start.stall)
            spec_owner = None if start.keep or owner.process["pid"] == 0 else owner.process
            self._nursery.start_soon(self._live_through, task, partial(task.begin, start, request, spec_owner))
        else:
            if task is not None:
                await task.requested.wait()
            if task is None or task.refusal is None:
                (same,) = await self._recorder.record([request])
                if isinstance(same, Conflict):
                    raise TaskDiffers(start.task, start.key)
                if isinstance(same, StorageError):
                    raise same
        if task is not None:
            await task.begun.wait()
            if task.refusal is not None:
                raise task.refusal
            return _reply_of(task)
        assert row is not None
        return _reply_of_row(row)

    async def _stop(self, stop: Stop) -> Reply:
        """Stop tasks with all that they started; nothing is stopped if one of the names is no task's."""
        await self._adopted.wait()
        found = [await self._find(name) for name in stop.tasks]
        named = [each for each in found if isinstance(each, LiveTask)]
        of_sessions = [each for each in self._live.values() if each.ledger.session in stop.sessions]
        live = list(dict.fromkeys([*named, *of_sessions]))
        for task in live:
            task.stop("stop", stop.grace)  # a wish: what becomes of it doesn't depend on who waits here
        with trio.move_on_after(stop.grace + STOP_SECONDS):
            for task in live:
                await task.finished.wait()
        return {
            "stopped": [task.id for task in live if task.finished.is_set()],
            "already_ended": [each.id for each in found if isinstance(each, StreamRow)],
            "left": {task.id: task.pids_left() for task in live if not task.finished.is_set()},
        }

    async def _wait(self, wait: Wait) -> Reply:
        await self._adopted.wait()
        task = await self._find(wait.task)
        if isinstance(task, StreamRow):
            return _reply_of_row(task)
        await (task.finished if wait.tree else task.ended).wait()
        if task.refusal is not None:
            raise task.refusal
        return _reply_of(task)

    async def _list(self, session: str | None) -> Reply:
        await self._adopted.wait()
        tasks = [task.as_seen() for task in self._live.values() if session is None or task.ledger.session == session]
        return {"tasks": tasks}

    async def _end_owned(self, owner: Owner) -> Reply:
        await self._adopted.wait()
        await self.end_owned(owner.token)
        return {}

    async def _find(self, name: str) -> LiveTask | StreamRow:
        """Find a task, unfinished or not. Raises NotFound, Ambiguous, WrongKind."""
        if name in self._live:
            return self._live[name]
        row = await self._recorder.reads.call(lambda reader: find_task(reader, name))
        return self._live.get(row.id, row)

    async def _row(self, id: str) -> StreamRow | None:
        try:
            row = await self._recorder.reads.call(lambda reader: reader.row(id))
        except NotFound:
            return None
        return row if row.id == id else None

    # -- Its own tasks

    async def _adopt(self) -> None:
        """Go on with what an earlier node left, or a supervisor of this one that failed."""
        await self._recorder.settle()
        for row, wish, stall in await adopt(self._recorder):
            task = self._live[row.id] = LiveTask(row.id, self._desk, row.summary, row.head, stall=stall)
            if wish is not None:
                task.stop(*wish)
            self._nursery.start_soon(self._live_through, task, None)
        for token, process in {task.token: task.summary["starter"] for task in self._owned()}.items():
            if token is not None and isinstance(process, dict):
                self._owners.await_end(Owner(token, process))
        for task in list(self._live.values()):
            await task.seen.wait()
        self._adopted.set()
        self._changed()

    async def _live_through(self, task: LiveTask, begin: Callable[[], Awaitable[bool]] | None) -> None:
        """Be with a task until it is finished, and forget it then."""
        if begin is None or await begin():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell_of_end, task)
                await task.attend()
        del self._live[task.id]
        self._changed()

    async def _tell_of_end(self, task: LiveTask) -> None:
        await task.ended.wait()
        self._changed()

    def _fail(self, id: str, why: str) -> None:
        if id in self._live:
            self._live[id].fail(why)

    async def _hear_shims(self) -> None:
        """Look at each task whose shim says that there is something to see."""
        while True:
            try:
                said = self._bell.recv(_MESSAGE_BYTES_MAX)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._bell)
                continue
            task = self._live.get(said.decode(errors="replace").rpartition(" ")[2])
            if task is not None:
                task.ring()

    async def _tick(self) -> None:
        """Look at those of which nothing else tells, from time to time at all, and at what they print."""
        next_tick = next_look = 0.0
        while True:
            moment = trio.current_time()
            is_tick, is_look = moment >= next_tick, moment >= next_look
            next_tick = moment + TICK_SECONDS if is_tick else next_tick
            next_look = moment + LOOK_SECONDS if is_look else next_look
            is_any_wanted = False
            for task in list(self._live.values()):
                is_wanted = self._switchboard.is_wanted(task.id)
                is_any_wanted |= is_wanted
                if is_wanted or is_tick:
                    task.look_at_output()
                if is_look or (is_tick and task.needs_ticks):
                    task.ring()
            if is_tick:
                self._changed()
            await trio.sleep(LOOK_WANTED_SECONDS if is_any_wanted else TICK_SECONDS)


def _reply_of(task: LiveTask) -> Reply:
    return {"head": task.ledger.head, "summary": task.summary}


def _reply_of_row(row: StreamRow) -> Reply:
    return {"head": row.head, "summary": row.summary}
