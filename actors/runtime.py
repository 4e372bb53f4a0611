"""The runtime: a host's way into a store, for trio and asyncio alike.

Sessions that are still open are closed at the end, when it is left. Lists and reads go to the files; only
opening and appending need the writer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio

from turnkeeper.runtime.actor_ref import READY_SECONDS, SHUTDOWN_SECONDS, ActorRef
from turnkeeper.runtime.errors import register_error
from turnkeeper.runtime.mailbox import BYTES_MAX, MESSAGES_MAX
from turnkeeper.runtime.restart import RestartPolicy
from turnkeeper.runtime.supervision.child_spec import ChildSpec, Strategy
from turnkeeper.runtime.supervision.supervisor import Supervisor
from turnkeeper.runtime.watchdog import PROCESS_BLOCKED_SECONDS
from turnkeeper.storage.errors import Failed

from . import errors
from .background import Background
from .blob_references import as_content, check_media_type, digest_referred_to, reference_to
from .client.client import Client
from .folding import TurnState
from .kinds import require_session
from .leaving import Ending, carry_out, carry_out_all
from .reading.following import Following
from .reading.listing import list_sessions
from .reading.logs import StoredLog
from .reading.messages import Messages
from .reading.walking import Events, Walking
from .records import Event, EventPage, SessionInfo, Status
from .repairing import Progress, Repair, repair
from .runtime_actors import RuntimeActors
from .session.forking import fork
from .session.header import check_changes, new_header, other_spelling
from .session.opening import open_session, reserve
from .session.seeding import sow
from .session.sending import send
from .session.session import END_SECONDS_MAX, Session
from .stopping import stop
from .tasks.listing import list_tasks
from .tasks.starting import GRACE_SECONDS, OwnerExit, checked_start
from .tasks.state import State, TaskState
from .tasks.task import Task, TasksStopped, end_tasks, start_task, stop_tasks, task_named, wait_tasks
from .tasks.waiting import Until
from .vocabulary import Check, Upgrade

GOODBYE_SECONDS_MIN = 0.5
"""How long leaving waits for the node's end, even if storing the sessions' ends took all the time there was."""


class Runtime:
    """A store that this program has open. Make one with `open_runtime`; any task of its loop may use it."""

    def __init__(self, client: Client, background: Background, cpu_jobs_max: int | None) -> None:
        self._client = client
        self._actors = RuntimeActors(background, client.path, self.check, cpu_jobs_max)
        self._is_closed = False

    async def create_session(
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
    ) -> Session:
        """Make a session of a new, memorable id, owned by this process. Nothing is stored before its first event.

        `key` is your own name for it; `seed` are events that it begins with, and a turn that is open at their end is
        closed as interrupted; `created` is in ms since 1970, now if nothing is said, and `origin` says where an
        imported one came from.

        Raises:
            Exists: The key names another session. SessionBusy: The key is being taken by a living owner.
            NotFound, Ambiguous: There is no such parent. WrongKind: It is no session.
        """
        seeds = list(seed)
        header = new_header(
            key=key,
            cwd=cwd,
            cwd_real=await other_spelling(cwd),
            title=title,
            labels=dict(labels or {}),
            parent=None if parent is None else await self._resolve(parent),
            created=created,
            origin=dict(origin or {}),
            agent=agent,
            seed=len(seeds),
        )
        session = await reserve(self._client, header, TurnState())
        try:
            await sow(session, seeds)
            session.close_turn("interrupted")
        except BaseException:
            session.give_up()
            raise
        return session

    async def open_session(self, id_or_key: str, *, create: bool = False, takeover: bool = False) -> Session:
        """Own a session by its id, a unique prefix of it, or your key for it; one owner at a time.

        What a crash left open in it is closed, once, and told in `interrupted` until a turn begins. With `create`, a
        key that names nothing gets a new session. `takeover` takes it from a living owner, who is fenced: every
        further call of his raises.

        Raises:
            SessionBusy: A living owner has it; `owner` says who, and may be this very process.
            CriticalTypes: It holds events that only a program which registers their types may add to.
            NotFound: Nothing answers to it. Ambiguous: Several ids begin so.
            Corrupt: Events of it are damaged; `read` gives the rest.
        """
        header = new_header(key=id_or_key) if create else None
        stream, reply = await self._client.open_stream(id_or_key, create=header, takeover=takeover)
        summary = header if header is not None and reply["new"] else reply["summary"]
        return await open_session(self._client, stream, summary)

    async def repair_session(self, id_or_key: str, progress: Progress | None = None) -> Repair:
        """Copy what can be read of a damaged session into a new one, durably; the damaged one stays as it is.

        A session that is whole gets no copy, and a second call finds the first one's. `progress` is called with events
        copied and events in all. Cancelled, what was copied stays, and the next call goes on with it.

        Raises:
            NotFound, Ambiguous: There is no such session. SessionBusy: Another repair is making this copy.
            Exists: Somebody has appended to the copy before it was finished.
            StoreFull, NodeNotAnswering, …: It couldn't be stored; repair it again.
        """
        self.check()
        return await repair(self._client, id_or_key, progress)

    async def sessions(
        self, *, status: Status | None = None, limit: int = 20, after: SessionInfo | str | None = None, **filters: str
    ) -> list[SessionInfo]:
        """List sessions, the most recently active first, at most `limit`. Those without events aren't listed.

        `after` goes on behind a row of an earlier list, which may be given by its session's id; a session that became
        active meanwhile has moved to the front, and isn't given again. Each further keyword has to fit: `key`, `title`,
        `parent`, `agent`, or a label's name; `cwd` does where either the spelling or the real directory is the same.

        Raises:
            NotFound, Ambiguous: `after` names no session. ValueError: There is no such status.
        """
        self.check()
        return await list_sessions(self._client.reads, status, filters, after, limit)

    async def set_session(
        self, id: str, *, title: str | None = None, labels: Mapping[str, str | None] | None = None
    ) -> None:
        """Give a session another title, and set some labels or, by None, remove them; whoever owns it. Durable.

        Labels that aren't named stay as they are, also those that somebody else sets at the same time.

        Raises:
            NotFound, Ambiguous: There is no such session, or none with events. WrongKind: The id is another thing's.
            InvalidValue, TooLarge: Such a title or label can't be.
        """
        self.check()
        changes = dict(labels or {})
        check_changes(title, changes)
        await self._client.change(id, title=title, labels=changes)

    async def fork_session(
        self,
        id: str,
        *,
        at: int | None = None,
        key: str | None = None,
        title: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Session:
        """Make a session that begins with the first `at` events of another, whoever owns that; durable when it returns.

        Nothing is copied: reads walk into the parent, and deleting that takes nothing from the fork. Without `at` it is
        all that is durable. A turn that was open at that place, and ended later, is closed in the fork as interrupted.
        Directory, agent, title and labels are the parent's, if nothing else is said; of its inbox nothing comes along.

        Raises:
            InvalidFork: It has fewer events, or is in a turn at that place.
            NotFound, Ambiguous: There is no such session. WrongKind: The id is another thing's.
            Exists: The key names another session. SessionBusy: The key is being taken by a living owner.
            CriticalTypes: It holds events that only a program which registers their types may add to.
            Corrupt: Events of that part are damaged.
        """
        self.check()
        words = {"title": title, "labels": None if labels is None else dict(labels)}
        said = {name: value for name, value in words.items() if value is not None}
        return await fork(self._client, id, at, {"key": key, **said})

    async def delete(self, id: str) -> None:
        """Delete a session and its inbox: it isn't listed, and can't be opened, sent to or forked. Durable.

        Nothing is destroyed: `undelete` brings it back, its forks keep what they have of it, and its key stays taken.
        Deleting it twice is nothing.

        Raises:
            SessionBusy: A living owner has it. NotFound, Ambiguous: There is no such session.
        """
        self.check()
        await self._client.change(id, deleted=True)

    async def undelete(self, id: str) -> None:
        """Bring a deleted session back as it was; by its id, its key or a beginning of its id. Durable.

        Raises NotFound, Ambiguous.
        """
        self.check()
        await self._client.change(id, deleted=False)

    async def stop_session(self, id: str) -> list[str]:
        """End the work on a session, on its children and theirs; give the ids of those that somebody owned.

        Their owners are fenced, open turns end as aborted, and all of them can be opened again. Their tasks are stopped
        too, kept ones and those of sessions that nobody owns among them. Cancelled, some have been stopped.

        Raises:
            NotFound, Ambiguous: There is no such session. WrongKind: The id is another thing's.
            Corrupt: One of them is damaged and can't be taken; all others were stopped.
        """
        self.check()
        return await stop(self._client, id)

    async def start_task(
        self,
        argv: Sequence[str],
        *,
        key: str | None = None,
        session: Session | str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        grace: float = GRACE_SECONDS,
        limit: int | None = None,
        stall: float | None = None,
        on_owner_exit: OwnerExit = "kill",
        group: str | None = None,
    ) -> Task:
        """Start a command in the background, and return once it runs, or couldn't be run, which is then its end.

        `argv` is the program, a path or a name to be found in the task's PATH, and its arguments; no shell is asked.
        `env` adds to this process's environment, None removes a variable; of it only the names are ever recorded. The
        command has nothing to read, and its stdout and stderr go into one file, `limit` bytes at most (4 GiB if nothing
        is said): one that writes more is stopped.

        After `timeout` seconds the task is stopped with all that it started: SIGTERM, and after `grace` seconds
        SIGKILL. After `stall` seconds without output, once for each such silence, that is recorded. A `session`'s inbox
        is told of the end (`task/ended`) and of silences (`task/stalled`). A task ends with this runtime, when that is
        left or its process is gone; one with `on_owner_exit="keep"` goes on without it.

        With `key` it is started once: again, by whatever process, gives the same task, ended or not. `group` is a name
        to list by. Cancelled, it may have been started or not; with a key start it again to be sure.

        Raises:
            TaskRefused: It can't be started so; nothing was recorded. Conflict: The key is another command's.
            NotFound, Ambiguous, WrongKind: There is no such session. StoreFull: There is no space.
            NodeNotAnswering, …: The store can't be reached, and whether it was started is unknown; see `key`.
        """
        self.check()
        start = checked_start(
            argv,
            key=key,
            group=group,
            cwd=cwd,
            env=env,
            timeout=timeout,
            grace=grace,
            limit=limit,
            stall=stall,
            on_owner_exit=on_owner_exit,
        )
        return await start_task(self._client, start, session)

    def task(self, id_or_key: str) -> Task:
        """Give the task of this id, of a unique beginning of one, or of your key. Whether there is one, its use tells.

        Raises TypeError, NotFound for what can't be a name.
        """
        self.check()
        return task_named(self._client, id_or_key)

    async def tasks(
        self,
        *,
        session: Session | str | None = None,
        group: str | None = None,
        state: State | None = None,
        limit: int = 20,
        after: TaskState | str | None = None,
    ) -> list[TaskState]:
        """List tasks, the last changed first, at most `limit`: of a session, a group, in a state, or all.

        `after` goes on behind a task of an earlier list, which may be given by its id.

        Raises:
            NotFound, Ambiguous: There is no such session, or `after` names no task. ValueError: There is no such state.
        """
        self.check()
        within = session.id if isinstance(session, Session) else session
        listed = partial(list_tasks, root=self._client.path, session=within, group=group, state=state)
        return await self._client.reads.call(partial(listed, limit=limit, after=after))

    async def wait_tasks(
        self,
        *tasks: Task | str,
        until: Until = "all",
        tree: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[TaskState]:
        """Wait for tasks, and give their states in the order in which they were named.

        `until` all have ended, any has, or the `first_failure`: one that ended otherwise than with exit code 0, or is
        lost; or all ended well. With `tree` a task counts only when nothing that it started is left. After `timeout`
        seconds the states are given as they are then. Neither that nor cancelling touches a task.

        Raises:
            NotFound, Ambiguous: There is no such task. WrongKind: The id is a session's. ValueError: No such wait.
            NodeNotAnswering, …: The store can't be reached; wait again.
        """
        return await wait_tasks(self._client, tasks, until=until, tree=tree, timeout=timeout)

    async def stop_tasks(self, *tasks: Task | str, grace: float = GRACE_SECONDS) -> TasksStopped:
        """Stop tasks side by side, each with all that it started, as `Task.stop` does; say what became of each.

        Raises as `Task.stop`; then some have been stopped.
        """
        return await stop_tasks(self._client, tasks, grace)

    async def read(self, id: str, *, start: int = 0, last: int | None = None, limit: int = 1000) -> EventPage:
        """Read durable events from number `start` on, at most `limit`, or the `last` ones; needs no ownership.

        The page says where the session's events end (`head`), and what of it is damaged (`missing`). Raises NotFound,
        Ambiguous, or TooLarge if more than 256 MiB of data that was too large for lines would come at once.
        """
        self.check()
        return await StoredLog(self._client, id).read(start=start, last=last, limit=limit)

    def events(self, id: str, *, start: int = 0) -> Walking[Event]:
        """Iterate over durable events from number `start` on, a page of them in memory at a time; needs no ownership.

        It ends where the session ends then. Where events can't be read it raises Corrupt, which names them; the next
        step goes on behind them. Raises NotFound, Ambiguous (while iterating).
        """
        self.check()
        return Walking(Events(StoredLog(self._client, id), id, start))

    def messages(self, id: str) -> Walking[dict[str, Any]]:
        """Iterate over what a model is to see of a session; needs no ownership.

        Each message is a dict of its own with a `role`: `user` and `assistant` have the members of their event's data,
        an assistant's `tool_calls` are followed by exactly one `tool` result each, whatever the log holds, and `gap`
        stands for events that can't be read. What was rewound is left out. `seq` is the number of the event that the
        message was made of, None for a result that was made up because nobody gave one.

        Raises NotFound, Ambiguous, and Corrupt if it can't be told what was rewound (while iterating).
        """
        self.check()
        return Walking(Messages(StoredLog(self._client, id)))

    def register(
        self,
        type: str,
        *,
        check: Check | None = None,
        critical: bool = False,
        version: int = 1,
        upgrades: Mapping[int, Upgrade] | None = None,
    ) -> None:
        """Know a type of the program's own, `name/word`, in this runtime. Before sessions that hold it are opened.

        `check` gets the data of each such event before it is appended, and refuses it with a ValueError. A session that
        once held a `critical` type is opened only by runtimes that have registered it; everybody can read it. `version`
        is what is written from now on: older events are read through `upgrades`, each of which makes of the data of its
        version that of the next one; newer ones are read as they are. What is stored is never changed.

        Raises ValueError: This can't be registered, or is already.
        """
        self._client.vocabulary.register(type, check=check, critical=critical, version=version, upgrades=upgrades)

    async def send(self, to: str, type: str, data: Mapping[str, Any], *, key: str | None = None) -> int:
        """Send a message to a session, by its id, a unique beginning of it, or its key; give its number in the inbox.

        Durable when it returns. The session needn't be open: its owner, this one or the next, gets the message from
        `Session.inbox` until it accepts it, and is woken if it waits. With `key` the message is sent once: again it is
        answered with the first one's number. Without one, whoever sends again after a failure may send twice.

        Cancelled, the message may have been sent, or not. Data over 256 KiB is put into a blob first, up to 64 MiB.

        Raises:
            NotFound: There is no such session; or it is another process's, and nothing of it is stored yet; or it is
                deleted. Ambiguous: There are several. WrongKind: It is no session.
            InvalidValue, TooLarge: The data, or the key, can't be sent. BlobMissing: It refers to a blob that isn't
                there. Conflict: The key is known with another message. StoreFull: There is no space. Nothing was sent.
            NodeNotAnswering, …: The store can't be reached, and whether it was sent is unknown: with a key send again.
        """
        return await send(self._client, to, type, data, key=key)

    async def put_blob(self, data: bytes, *, media_type: str) -> dict[str, Any]:
        """Keep bytes that are no JSON in the store, once however often they are put; give a reference to them.

        Put the reference into an event's data: the blob is kept as long as such an event is. One that no event refers
        to goes after an hour. Durable when it returns; cancelling waits for the end of the write. At most 1 GiB.

        Raises:
            TooLarge, StoreFull: Nothing was kept. Failed: Put it again.
        """
        self.check()
        content = as_content(data)
        check_media_type(media_type)
        digest = await self._client.blobs.put(content)
        return reference_to(digest, len(content), media_type)

    async def get_blob(self, ref: Mapping[str, Any]) -> bytes:
        """Read the bytes that a reference stands for, whole and checked.

        Raises:
            BlobMissing: They aren't in this store. Corrupt: They are damaged. ValueError: It is no reference.
        """
        self.check()
        return await self._client.blobs.get(digest_referred_to(ref))

    def follow(
        self, *ids: str, after: int | None = None, types: Sequence[str] = (), ephemeral: bool = False
    ) -> Following:
        """Iterate over the store's events, in order and without end, as they become durable.

        `after` is a position: 0 begins with the first event, None with what comes after the iteration's start. Without
        ids it is all sessions and inboxes; in ids and types `*` stands for anything. Goes on over restarts of node and
        writer.

        With `ephemeral` it also gives what isn't stored yet, as events of position 0: text that is being written, whole
        as it stands, as the `assistant/chunk` that it will be, behind all that is durable of its session. Of these only
        the latest counts, and twenty a second come of a session at most.

        Raises (while iterating):
            NotFound, Ambiguous: An id that is no pattern names nothing.
            Corrupt: Events that are due can't be read: `stream` has lost those `missing`, or, where nobody knows whose
                they were, the store those at `positions`. Told once, in their place; the next `__anext__` goes on
                behind them.
            Failed: What comes next can't be read now. Nothing is passed over; the next `__anext__` tries again.
            PositionLost: The store ends before `after`: what was read there went with the machine, or elsewhere.
        """
        self.check()
        return Following(self._client, ids, after, types, ephemeral)

    def check(self) -> None:
        """Raise why this runtime can't be used any more: closed, or inherited by a forked child."""
        self._client.check()

    async def spawn(
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
    ) -> ActorRef:
        """Start an actor, `actor(*args)`, in this loop or in a worker process of its own, and return once it is ready.

        It is stopped, in order, by its reference or when the runtime is left, and has `shutdown_seconds` for that,
        there 3 at most; with None it is killed at once. Its mailbox holds `messages_max` messages of `bytes_max`
        together. One in a process opens the store itself if it wants it, and is killed when it blocks its event loop
        for `blocked_seconds`, if any: its end tells where it was. With a `name` (a-z, 0-9 and -) every process that has
        the store open can ask it, see `actor`; the name is free again when the actor has ended, or its runtime's
        process. If this is cancelled, or raises, nothing of it is left.

        Raises:
            NameTaken: An actor of this name lives. Nothing was started.
            TypeError, ValueError: This makes no actor, or has no handler; or it can't have such limits.
            TimeoutError: It was not ready within `ready_seconds`.
            WorkerStartError, UnguardedMain: Its process did not come up, or could not import it.
            Exception: What its constructor or its `__aenter__` raised, as it is; from a process as `ask` raises it.
        """
        self.check()
        return await self._actors.spawn(
            actor,
            *args,
            process=process,
            name=name,
            messages_max=messages_max,
            bytes_max=bytes_max,
            shutdown_seconds=shutdown_seconds,
            ready_seconds=ready_seconds,
            blocked_seconds=blocked_seconds,
        )

    async def supervise(
        self,
        *children: ChildSpec,
        strategy: Strategy = "one_for_one",
        policy: RestartPolicy | None = None,
        name: str = "supervisor",
    ) -> Supervisor:
        """Start children that are started again when they fail, one after another; return once all are ready.

        `strategy` says who is started again with a child: nobody, all (`one_for_all`), or those behind it
        (`rest_for_one`). One death more than `policy` allows ends the supervisor; `Supervisor.stop` or `wait_ended`
        says so, and leaving the runtime. That stops the children in reverse, and after some seconds kills the rest.

        Raises:
            ChildStartError: A child could not be started; those before it were stopped, in reverse.
            TooManyRestarts: They died more often than the policy allows before all were ready.
            TypeError, ValueError: The children make no sense together.
        """
        self.check()
        return await self._actors.supervise(*children, strategy=strategy, policy=policy, name=name)

    def actor(self, name: str) -> ActorRef:
        """Give the reference of a named actor, in whatever process of the store it lives; using it tells if it does.

        It means whoever has the name: after the death of one the next call goes to the next one, while a call that one
        had may have been done (ActorUnknown). Between processes arguments and replies are plain values.

        Raises TypeError, ValueError for what can't be a name.
        """
        self.check()
        return self._actors.named(name)

    async def compute(
        self,
        function: Callable[..., Any] | str,
        *args: Any,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Any:
        """Run a plain function, `function(*args)`, in a process kept for CPU work, and return what it returns.

        It is one of a module, or its "module:name"; arguments and result are plain values, and cross as those of a
        worker process's actor. `cpu_jobs_max` run at a time, the others wait for their turn, in order. After `timeout`
        seconds, which begin now, or cancelled, it isn't begun any more, or its process is killed and has ended.

        Raises:
            TypeError, ValueError: No other process finds the function, or an argument can't cross.
            MessageTooLarge: The arguments are more than a frame holds.
            WorkerStartError, UnguardedMain: The module that it is in can't be imported.
            ActorNotStarted: It was not begun: the time was over before its turn, or there is no process.
            ActorUnknown: The time was over, or its process died: it may have been done, all or in part.
            ActorError: It failed. Registered errors arrive as what they are.
        """
        self.check()
        return await self._actors.cpu_work.run(function, *args, timeout=timeout)

    async def _resolve(self, wanted: str) -> str:
        """Give the id of the session that is meant, also of one that is open here and has no events yet."""
        if any(stream.id == wanted for stream in self._client.link.streams):
            return wanted
        return require_session(await self._client.reads.call(lambda reader: reader.row(wanted))).id

    # -- Leaving

    async def _leave(self) -> list[Exception]:
        """Stop the actors, close the sessions, end the tasks, say goodbye; give what failed.

        Nothing is raised but cancellation.
        """
        self._is_closed = True
        failures = await self._actors.end()
        deadline = anyio.current_time() + END_SECONDS_MAX
        endings: list[Ending] = [session.aclose for session in list(self._client.sessions)]
        if self._client.has_tasks_to_end:
            endings.append(partial(end_tasks, self._client))
        with anyio.CancelScope(deadline=deadline):
            await carry_out_all(failures, endings)
            await carry_out(failures, self._client.release_all)
        if self._client.has_tasks_to_end:
            failures.append(Failed(f"the end of this runtime's tasks wasn't stored within {END_SECONDS_MAX:.0f} s"))
        unstored = sum(stream.head - stream.acknowledged for stream in self._client.link.streams)
        if unstored:
            failures.append(Failed(f"the last {unstored:,} events weren't stored within {END_SECONDS_MAX:.0f} s"))
        goodbye = max(GOODBYE_SECONDS_MIN, deadline - anyio.current_time())
        await carry_out(failures, partial(self._client.aclose, goodbye))
        return failures

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True) and self._client.link.refusal is None:
            warnings.warn("a runtime was never closed: use `async with`", ResourceWarning, stacklevel=1, source=self)


for _name in errors.__all__:
    register_error(getattr(errors, _name))
