"""`Runtime` for plain programs; the docstrings say only what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from turnkeeper.runtime.actor_ref import READY_SECONDS, SHUTDOWN_SECONDS
from turnkeeper.runtime.mailbox import BYTES_MAX, MESSAGES_MAX
from turnkeeper.runtime.restart import RestartPolicy
from turnkeeper.runtime.supervision.child_spec import ChildSpec, Strategy
from turnkeeper.runtime.watchdog import PROCESS_BLOCKED_SECONDS

from ..records import Event, EventPage, SessionInfo, Status
from ..repairing import Progress, Repair
from ..tasks.starting import GRACE_SECONDS, OwnerExit
from ..tasks.state import State, TaskState
from ..tasks.task import TasksStopped
from ..tasks.waiting import Until
from ..vocabulary import Check, Upgrade
from .actors import BlockingRef, BlockingSupervisor
from .following import BlockingFollowing
from .loop import Loop
from .session import BlockingSession, session_of
from .tasks import BlockingTask, task_of
from .walking import BlockingWalking


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
        start = partial(self._runtime.start_task, argv, key=key, session=session_of(session), cwd=cwd, env=env)
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
        within = partial(self._runtime.tasks, session=session_of(session), group=group, state=state)
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
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
        shutdown_seconds: float | None = SHUTDOWN_SECONDS,
        ready_seconds: float = READY_SECONDS,
        blocked_seconds: float | None = PROCESS_BLOCKED_SECONDS,
    ) -> BlockingRef:
        """Do as `Runtime.spawn`."""
        spawn = partial(
            self._runtime.spawn,
            process=process,
            name=name,
            messages_max=messages_max,
            bytes_max=bytes_max,
            shutdown_seconds=shutdown_seconds,
            ready_seconds=ready_seconds,
            blocked_seconds=blocked_seconds,
        )
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

    def compute(self, function: Callable[..., Any] | str, *args: Any, timeout: float | None = None) -> Any:
        """Do as `Runtime.compute`."""
        return self._loop.call(self._runtime.compute, function, *args, timeout=timeout)
