"""The runtime for plain programs: the same names without `await`, from any thread.

A thread of its own runs an event loop, asyncio's, with the runtime in it; each call here is carried out there and
waited for. An exception arrives as it is. A forked child has no such thread: there every call raises ForkedProcess, and
leaving a `with` does nothing.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

from turnkeeper.runtime.restart import RestartPolicy
from turnkeeper.runtime.supervision.child_spec import ChildSpec, Strategy
from turnkeeper.runtime.watchdog import HOST_BLOCKED_SECONDS, PROCESS_BLOCKED_SECONDS, Blockage
from turnkeeper.storage.exact_json import Surrogates
from turnkeeper.storage.store import Durability

from .blocking_actors import BlockingRef, BlockingSupervisor
from .chunks import TEXT_CHANNEL
from .errors import ForkedProcess
from .folding import Effect
from .following import Following
from .inbox import Inbox, Message
from .records import Event, EventPage, Interrupted, SessionInfo, Snapshot, Status
from .repairing import Progress, Repair
from .runtime import Runtime, open_runtime
from .session import Session
from .tasks.blocking import BlockingTask, task_of
from .tasks.starting import GRACE_SECONDS, OwnerExit
from .tasks.state import State, TaskState
from .tasks.task import TasksStopped
from .tasks.waiting import Until
from .turns import ToolCall, Turn, note_or_raise
from .vocabulary import Check, Upgrade
from .walking import Walking

Answer = TypeVar("Answer")
Item = TypeVar("Item")


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


class BlockingRuntime:
    """`Runtime`, blocking. Make one with `connect`."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._runtime = loop.runtime

    def create_session(
        self,
        *,
        key: str | None = None,
        cwd: str | None = None,
        title: str = "",
        labels: Mapping[str, str] | None = None,
        parent: str | None = None,
        created: int | None = None,
        origin: Mapping[str, Any] | None = None,
        agent: str | None = None,
        seed: Iterable[Event] = (),
    ) -> BlockingSession:
        """Do as `Runtime.create_session`."""
        make = partial(self._runtime.create_session, key=key, cwd=cwd, title=title, labels=labels, parent=parent)
        return BlockingSession(
            self._loop, self._loop.call(make, created=created, origin=origin, agent=agent, seed=seed)
        )

    def open_session(self, id_or_key: str, *, create: bool = False, takeover: bool = False) -> BlockingSession:
        """Do as `Runtime.open_session`."""
        session = self._loop.call(self._runtime.open_session, id_or_key, create=create, takeover=takeover)
        return BlockingSession(self._loop, session)

    def repair_session(self, id_or_key: str, progress: Progress | None = None) -> Repair:
        """Do as `Runtime.repair_session`; `progress` is called in the thread that runs the loop."""
        return self._loop.call(self._runtime.repair_session, id_or_key, progress)

    def sessions(
        self, *, status: Status | None = None, limit: int = 20, after: SessionInfo | str | None = None, **filters: str
    ) -> list[SessionInfo]:
        """Do as `Runtime.sessions`."""
        return self._loop.call(self._runtime.sessions, status=status, limit=limit, after=after, **filters)

    def set_session(self, id: str, *, title: str | None = None, labels: Mapping[str, str | None] | None = None) -> None:
        """Do as `Runtime.set_session`."""
        self._loop.call(self._runtime.set_session, id, title=title, labels=labels)

    def fork_session(
        self,
        id: str,
        *,
        at: int | None = None,
        key: str | None = None,
        title: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> BlockingSession:
        """Do as `Runtime.fork_session`."""
        make = partial(self._runtime.fork_session, id, at=at, key=key, title=title, labels=labels)
        return BlockingSession(self._loop, self._loop.call(make))

    def delete(self, id: str) -> None:
        """Do as `Runtime.delete`."""
        self._loop.call(self._runtime.delete, id)

    def undelete(self, id: str) -> None:
        """Do as `Runtime.undelete`."""
        self._loop.call(self._runtime.undelete, id)

    def stop_session(self, id: str) -> list[str]:
        """Do as `Runtime.stop_session`."""
        return self._loop.call(self._runtime.stop_session, id)

    def start_task(
        self,
        argv: Sequence[str],
        *,
        key: str | None = None,
        session: BlockingSession | str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        grace: float = GRACE_SECONDS,
        limit: int | None = None,
        stall: float | None = None,
        on_owner_exit: OwnerExit = "kill",
        group: str | None = None,
    ) -> BlockingTask:
        """Do as `Runtime.start_task`."""
        start = partial(self._runtime.start_task, argv, key=key, session=_session_of(session), cwd=cwd, env=env)
        start = partial(start, timeout=timeout, grace=grace, limit=limit, stall=stall)
        return BlockingTask(self._loop, self._loop.call(start, on_owner_exit=on_owner_exit, group=group))

    def task(self, id_or_key: str) -> BlockingTask:
        """Do as `Runtime.task`."""
        return BlockingTask(self._loop, self._runtime.task(id_or_key))

    def tasks(
        self,
        *,
        session: BlockingSession | str | None = None,
        group: str | None = None,
        state: State | None = None,
        limit: int = 20,
        after: TaskState | str | None = None,
    ) -> list[TaskState]:
        """Do as `Runtime.tasks`."""
        within = partial(self._runtime.tasks, session=_session_of(session), group=group, state=state)
        return self._loop.call(within, limit=limit, after=after)

    def wait_tasks(
        self, *tasks: BlockingTask | str, until: Until = "all", tree: bool = False, timeout: float | None = None
    ) -> list[TaskState]:
        """Do as `Runtime.wait_tasks`."""
        return self._loop.call(self._runtime.wait_tasks, *map(task_of, tasks), until=until, tree=tree, timeout=timeout)

    def stop_tasks(self, *tasks: BlockingTask | str, grace: float = GRACE_SECONDS) -> TasksStopped:
        """Do as `Runtime.stop_tasks`."""
        return self._loop.call(self._runtime.stop_tasks, *map(task_of, tasks), grace=grace)

    def read(self, id: str, *, start: int = 0, last: int | None = None, limit: int = 1000) -> EventPage:
        """Do as `Runtime.read`."""
        return self._loop.call(self._runtime.read, id, start=start, last=last, limit=limit)

    def events(self, id: str, *, start: int = 0) -> BlockingWalking[Event]:
        """Do as `Runtime.events`."""
        return BlockingWalking(self._loop, self._runtime.events(id, start=start))

    def messages(self, id: str) -> BlockingWalking[dict[str, Any]]:
        """Do as `Runtime.messages`."""
        return BlockingWalking(self._loop, self._runtime.messages(id))

    def register(
        self,
        type: str,
        *,
        check: Check | None = None,
        critical: bool = False,
        version: int = 1,
        upgrades: Mapping[int, Upgrade] | None = None,
    ) -> None:
        """Do as `Runtime.register`; `check` and `upgrades` are called in the thread of the runtime."""
        self._runtime.register(type, check=check, critical=critical, version=version, upgrades=upgrades)

    def send(self, to: str, type: str, data: Mapping[str, Any], *, key: str | None = None) -> int:
        """Do as `Runtime.send`."""
        return self._loop.call(self._runtime.send, to, type, data, key=key)

    def put_blob(self, data: bytes, *, media_type: str) -> dict[str, Any]:
        """Do as `Runtime.put_blob`."""
        return self._loop.call(self._runtime.put_blob, data, media_type=media_type)

    def get_blob(self, ref: Mapping[str, Any]) -> bytes:
        """Do as `Runtime.get_blob`."""
        return self._loop.call(self._runtime.get_blob, ref)

    def follow(
        self, *ids: str, after: int | None = None, types: Sequence[str] = (), ephemeral: bool = False
    ) -> Iterator[Event]:
        """Do as `Runtime.follow`; each `next` waits for an event."""
        return BlockingFollowing(self._loop, self._runtime.follow(*ids, after=after, types=types, ephemeral=ephemeral))

    def spawn(
        self,
        actor: type,
        *args: Any,
        process: bool = False,
        name: str | None = None,
        blocked_seconds: float | None = PROCESS_BLOCKED_SECONDS,
    ) -> BlockingRef:
        """Do as `Runtime.spawn`."""
        spawn = partial(self._runtime.spawn, process=process, name=name, blocked_seconds=blocked_seconds)
        return BlockingRef(self._loop, self._loop.call(spawn, actor, *args))

    def supervise(
        self,
        *children: ChildSpec,
        strategy: Strategy = "one_for_one",
        policy: RestartPolicy | None = None,
        name: str = "supervisor",
    ) -> BlockingSupervisor:
        """Do as `Runtime.supervise`; what lives in the loop does so in the thread of the runtime."""
        start = partial(self._runtime.supervise, *children, strategy=strategy, policy=policy, name=name)
        return BlockingSupervisor(self._loop, self._loop.call(start))

    def actor(self, name: str) -> BlockingRef:
        """Do as `Runtime.actor`."""
        return BlockingRef(self._loop, self._runtime.actor(name))


class BlockingSession:
    """`Session`, blocking; a context manager that closes it."""

    def __init__(self, loop: Loop, session: Session) -> None:
        self._loop = loop
        self._session = session

    @property
    def id(self) -> str:
        """The session's id."""
        return self._session.id

    @property
    def key(self) -> str | None:
        """The host's own name for it."""
        return self._session.key

    @property
    def head(self) -> int:
        """The number of the next event."""
        return self._session.head

    @property
    def interrupted(self) -> Interrupted | None:
        """What a crash had left open, and this opening has closed."""
        return self._session.interrupted

    @property
    def not_stored(self) -> range:
        """The numbers of the events that never will be stored, once ownership is lost."""
        return self._session.not_stored

    def append(
        self,
        type: str,
        data: Mapping[str, Any],
        *,
        key: str | None = None,
        time: int | None = None,
        text: Surrogates = "strict",
    ) -> int:
        """Do as `Session.append`."""
        return self._loop.call(self._session.append, type, data, key=key, time=time, text=text)

    def write(self, text: str, *, channel: str = TEXT_CHANNEL) -> None:
        """Do as `Session.write`."""
        self._loop.run(self._session.write, text, channel=channel)

    def flush(self) -> int:
        """Do as `Session.flush`."""
        return self._loop.call(self._session.flush)

    def inbox(self, *, wakes_max: int | None = None) -> BlockingInbox:
        """Do as `Session.inbox`; each `next` waits for a message."""
        return BlockingInbox(self._loop, self._session.inbox(wakes_max=wakes_max))

    def send(self, to: str, type: str, data: Mapping[str, Any], *, key: str | None = None) -> int:
        """Do as `Session.send`."""
        return self._loop.call(self._session.send, to, type, data, key=key)

    def turn(self, **data: Any) -> BlockingTurn:
        """Do as `Session.turn`, as a `with`."""
        return BlockingTurn(self._loop, self._session.turn(**data))

    def tool(self, id: str, name: str, arguments: Any, *, effect: Effect = "once") -> BlockingToolCall:
        """Do as `Session.tool`, as a `with`."""
        return BlockingToolCall(self._loop, self._session.tool(id, name, arguments, effect=effect))

    def tool_started(self, id: str, name: str, arguments: Any, *, effect: Effect = "once") -> None:
        """Do as `Session.tool_started`."""
        self._loop.call(self._session.tool_started, id, name, arguments, effect=effect)

    def tool_finished(self, id: str, output: Any, *, error: str | None = None) -> None:
        """Do as `Session.tool_finished`."""
        self._loop.call(self._session.tool_finished, id, output, error=error)

    def set_parent(self, parent: str) -> None:
        """Do as `Session.set_parent`."""
        self._loop.call(self._session.set_parent, parent)

    def set(self, *, title: str | None = None, labels: Mapping[str, str | None] | None = None) -> None:
        """Do as `Session.set`."""
        self._loop.call(self._session.set, title=title, labels=labels)

    def fork(self, *, at: int | None = None) -> BlockingSession:
        """Do as `Session.fork`."""
        return BlockingSession(self._loop, self._loop.call(self._session.fork, at=at))

    def rewind(self, to: int) -> None:
        """Do as `Session.rewind`."""
        self._loop.call(self._session.rewind, to)

    def read(self, *, start: int = 0, last: int | None = None, limit: int = 1000) -> EventPage:
        """Do as `Session.read`."""
        return self._loop.call(self._session.read, start=start, last=last, limit=limit)

    def events(self, *, start: int = 0) -> BlockingWalking[Event]:
        """Do as `Session.events`."""
        return BlockingWalking(self._loop, self._session.events(start=start))

    def messages(self) -> BlockingWalking[dict[str, Any]]:
        """Do as `Session.messages`."""
        return BlockingWalking(self._loop, self._session.messages())

    def snapshot(self, state: Any) -> int:
        """Do as `Session.snapshot`."""
        return self._loop.call(self._session.snapshot, state)

    def last_snapshot(self) -> Snapshot | None:
        """Do as `Session.last_snapshot`."""
        return self._loop.call(self._session.last_snapshot)

    def close(self) -> None:
        """Do as `Session.aclose`."""
        self._loop.call(self._session.aclose)

    aclose = close

    def __enter__(self) -> BlockingSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.leave(self._session, kind, error, traceback)


class BlockingTurn:
    """`Turn`, as a `with`."""

    def __init__(self, loop: Loop, turn: Turn) -> None:
        self._loop = loop
        self._turn = turn

    def __enter__(self) -> None:
        self._loop.call(self._turn.__aenter__)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.leave(self._turn, kind, error, traceback)


class BlockingToolCall:
    """`ToolCall`, as a `with`."""

    def __init__(self, loop: Loop, call: ToolCall) -> None:
        self.id = call.id
        self.name = call.name
        self._loop = loop
        self._call = call

    def finish(self, output: Any, *, error: str | None = None) -> None:
        """Do as `ToolCall.finish`."""
        self._loop.call(self._call.finish, output, error=error)

    def __enter__(self) -> BlockingToolCall:
        self._loop.call(self._call.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.leave(self._call, kind, error, traceback)


class BlockingFollowing:
    """`Following`, as a plain iterator."""

    def __init__(self, loop: Loop, following: Following) -> None:
        self._loop = loop
        self._following = following

    def __iter__(self) -> BlockingFollowing:
        return self

    def __next__(self) -> Event:
        return self._loop.call(self._following.__anext__)


class BlockingWalking(Iterator[Item]):
    """`Walking`, as a plain iterator, which crosses to the loop for portions and not for each item."""

    def __init__(self, loop: Loop, walking: Walking[Item]) -> None:
        self._loop = loop
        self._walking = walking
        self._left: deque[Item] = deque()

    def __next__(self) -> Item:
        if not self._left:
            self._left.extend(self._loop.call(self._walking.next_portion))
            if not self._left:
                raise StopIteration
        return self._left.popleft()


class BlockingInbox:
    """`Inbox`, as a plain iterator."""

    def __init__(self, loop: Loop, inbox: Inbox) -> None:
        self._loop = loop
        self._inbox = inbox

    def __iter__(self) -> BlockingInbox:
        return self

    def __next__(self) -> BlockingMessage:
        return BlockingMessage(self._loop, self._loop.call(self._inbox.__anext__))


class BlockingMessage:
    """`Message`, blocking."""

    def __init__(self, loop: Loop, message: Message) -> None:
        self.seq = message.seq
        self.type = message.type
        self.data = message.data
        self.sender = message.sender
        self.time = message.time
        self._loop = loop
        self._message = message

    def accept(self, type: str | None = None, data: Mapping[str, Any] | None = None) -> int:
        """Do as `Message.accept`."""
        return self._loop.call(self._message.accept, type, data)


def _session_of(session: BlockingSession | str | None) -> Session | str | None:
    """Give what the loop calls a session."""
    return session._session if isinstance(session, BlockingSession) else session


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
) -> AbstractContextManager[BlockingRuntime]:
    """Open a store for the body of a `with`, in a program without an event loop; otherwise as `open_runtime`.

    The loop that may be blocked is that of the thread that runs the runtime, by an actor that lives in it.
    """
    return Connecting(
        partial(open_runtime, store, durability=durability, blocked_seconds=blocked_seconds, on_blocked=on_blocked)
    )
