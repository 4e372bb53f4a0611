"""A task as its users hold it: started once, then looked at, waited for, read and stopped by whoever has its id.

A task belongs to no object here: it goes on whatever becomes of this one, and several may stand for the same. States
are read from the files; only what changes something, or waits, asks the node. What `Runtime` offers of tasks is done
here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from turnkeeper.runtime.tasks.directory import OUTPUT
from turnkeeper.storage.backend import BackendReader
from turnkeeper.storage.errors import Deleted

from ..ids import new_task_id, new_token, task_id_of_key
from ..kinds import require_session
from ..names import check_wanted
from ..protocol import END_TASKS, START_TASK, STOP_TASKS, TASKS_DIRECTORY
from ..reading.naming import find_row, find_task
from ..session.sending import make_known
from .listing import state_of
from .output import Output, output_limit, read_output
from .output_following import OutputFollowing
from .starting import GRACE_SECONDS, Start, located
from .state import TaskState
from .waiting import EndWatch, Until, check_seconds, check_wait, collect_ends

if TYPE_CHECKING:
    from ..client.client import Client
    from ..session.session import Session


@dataclass(frozen=True, slots=True)
class TasksStopped:
    """What a stop did, by the tasks' ids: those it `stopped`, and those that had `already_ended` before.

    `left` names the pids of processes that even SIGKILL didn't end, of tasks that are in neither list.
    """

    stopped: list[str]
    already_ended: list[str]
    left: dict[str, list[int]]


class Task:
    """One task of a store. `Runtime.start_task` and `Runtime.task` make such; any task of the loop may use it.

    `id` is its id, or what was given instead of it until that has been looked up.
    """

    def __init__(self, client: Client, wanted: str, *, is_known: bool = False) -> None:
        self.id = wanted
        self._client = client
        self._is_known = is_known

    async def state(self) -> TaskState:
        """Read what is known of it now, from the files: nothing is asked, and nothing waits for the node.

        Raises:
            NotFound, Ambiguous: There is no such task. WrongKind: The id is a session's.
        """
        self._client.check()
        state = await self._client.reads.call(partial(state_of, root=self._client.path, wanted=self.id))
        self.id, self._is_known = state.id, True
        return state

    async def wait(self, *, tree: bool = False, timeout: float | None = None) -> TaskState:  # noqa: ASYNC109
        """Wait until it has ended, and give its state; with `tree`, until nothing that it started is left either.

        It doesn't matter when the wait begins. After `timeout` seconds the state is given as it is then: look at
        `is_over`. Neither that nor cancelling touches the task.

        Raises:
            NotFound, Ambiguous, WrongKind: As `state`. ValueError: This is no timeout.
            NodeNotAnswering, …: The store can't be reached; wait again.
        """
        (state,) = await wait_tasks(self._client, [self], until="all", tree=tree, timeout=timeout)
        return state

    async def stop(self, *, grace: float = GRACE_SECONDS) -> TaskState:
        """End it and everything that it started, and give its state when nothing of that is left.

        All of it gets SIGTERM, and after `grace` seconds SIGKILL. One that has ended is left as it ended, and what it
        left behind is stopped. Cancelled, the stop goes on.

        Raises:
            NotFound, Ambiguous, WrongKind: As `state`. ValueError: This is no grace.
            NodeNotAnswering, …: The store can't be reached; it may be stopped or not, stop it again.
        """
        await stop_tasks(self._client, [self], grace)
        return await self.state()

    async def output(self, *, start: int = 0, last: int | None = None, head: int | None = None) -> Output:
        """Read a piece of its output, stdout and stderr together: from byte `start` on, 1 MiB at most.

        `head` stops behind so many lines, `last` gives so many from the end. What became of the file, if it isn't as it
        should be, is said in the piece's `note`.

        Raises:
            NotFound, Ambiguous, WrongKind: As `state`. ValueError: Such a piece can't be.
        """
        path = await self._output_path()
        return await anyio.to_thread.run_sync(partial(read_output, path, start=start, head=head, last=last))

    def follow(self, *, start: int = 0) -> TaskOutput:
        """Iterate over pieces of its output from byte `start` on, as it grows, until it has ended and all is read.

        Raises (while iterating):
            NotFound, Ambiguous, WrongKind: As `state`.
            NodeNotAnswering, …: Whether it has ended can't be asked now; the next step goes on.
        """
        return TaskOutput(self, start)

    async def known_id(self) -> str:
        """Give its id, looked up if that wasn't done before. Raises as `state`."""
        if not self._is_known:
            row = await self._client.reads.call(partial(find_task, wanted=self.id))
            self.id, self._is_known = row.id, True
        return self.id

    async def _output_path(self) -> str:
        self._client.check()
        return f"{self._client.path}/{TASKS_DIRECTORY}/{await self.known_id()}/{OUTPUT}"

    def __repr__(self) -> str:
        return f"<Task {self.id}>"


class TaskOutput(AsyncIterator[Output]):
    """The pieces of a task's output, see `Task.follow`. For one task of the loop at a time; `aclose` lets go of it."""

    def __init__(self, task: Task, start: int) -> None:
        self._task = task
        self._start = start
        self._watch: EndWatch | None = None
        self._pieces: OutputFollowing | None = None

    async def __anext__(self) -> Output:
        """Give the next piece. Cancelled, nothing of it is lost."""
        if self._pieces is None:
            path = await self._task._output_path()
            self._watch = EndWatch(self._task._client.node, await self._task.known_id())
            limit = await anyio.to_thread.run_sync(output_limit, path)
            self._pieces = OutputFollowing(path, self._watch, start=self._start, limit=limit)
        return await anext(self._pieces)

    async def aclose(self) -> None:
        """Let go of the file, and wait for the task's end no more."""
        if self._watch is not None:
            self._watch.close()
        if self._pieces is not None:
            await self._pieces.aclose()


def task_named(client: Client, wanted: Task | str) -> Task:
    """Give the task that is meant by an id, a beginning of one, or a key. Raises TypeError, NotFound for no name."""
    if isinstance(wanted, Task):
        return wanted
    check_wanted(wanted)
    return Task(client, wanted)


async def start_task(client: Client, start: Start, session: Session | str | None) -> Task:
    """Start a task as `Runtime.start_task` says, with what was checked."""
    client.check()
    start = await anyio.to_thread.run_sync(located, start)
    owner = None if session is None else await _known_session(client, session)
    if not start.keep:
        client.has_tasks_to_end = True
    id = new_task_id() if start.key is None else task_id_of_key(start.key)
    token = new_token() if start.key is None else None
    await client.node.ask(START_TASK, task=id, token=token, session=owner, **start.as_map())
    return Task(client, id, is_known=True)


async def wait_tasks(
    client: Client,
    tasks: Sequence[Task | str],
    *,
    until: Until,
    tree: bool,
    timeout: float | None,  # noqa: ASYNC109
) -> list[TaskState]:
    """Wait for tasks as `Runtime.wait_tasks` says; give their states in the order in which they were named."""
    client.check()
    check_wait(until, timeout)
    named = [task_named(client, each) for each in tasks]
    ends: dict[str, TaskState] = {}
    with anyio.move_on_after(timeout):
        ids = [await task.known_id() for task in named]
        await collect_ends(client.node, dict.fromkeys(ids), ends, until=until, tree=tree)
    return [ends.get(task.id) or await task.state() for task in named]


async def stop_tasks(client: Client, tasks: Sequence[Task | str], grace: float) -> TasksStopped:
    """Stop tasks as `Runtime.stop_tasks` says."""
    client.check()
    check_seconds("a grace", grace)
    ids = [await task_named(client, each).known_id() for each in tasks]
    reply = await client.node.ask(STOP_TASKS, tasks=ids, sessions=[], grace=grace)
    return TasksStopped(reply["stopped"], reply["already_ended"], reply["left"])


async def end_tasks(client: Client) -> None:
    """See the tasks end that this runtime started and that end with it. Raises that the store can't be reached."""
    try:
        await client.node.ask(END_TASKS)
    except Exception:
        client.has_tasks_to_end = False
        raise
    client.has_tasks_to_end = False


async def _known_session(client: Client, session: Session | str) -> str:
    """Give the id of a session that a task can tell of its end: something of it is stored.

    Raises NotFound, Ambiguous, WrongKind; of one that is open here also what `Session.flush` raises.
    """
    wanted = session if isinstance(session, str) else session.id
    stream = client.stream_open_here(wanted)
    if stream is None:
        check_wanted(wanted)
        return await client.reads.call(partial(_session_id, wanted=wanted))
    await make_known(client, stream)
    return stream.id


def _session_id(reader: BackendReader, wanted: str) -> str:
    row = require_session(find_row(reader, wanted))
    if row.summary.get("deleted"):
        raise Deleted(row.id)
    return row.id
