"""Functions that use a processor for a while, run in processes kept for that: their turn, their time and their ends.

The processes are trio-parallel's and belong to a worker process of ours (keeper.py), which is started with the
first job, by a supervisor, and so once more when it has died. A job has a connection to it of its own. Its life is
here: it waits for its turn, in order; it is done; and if nobody wants it any more, because its time is over or whoever
waits was cancelled, its process is killed, and the next one's turn comes only then. A job is never done twice.
"""

from __future__ import annotations

import inspect
import operator
import os
import secrets
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import TaskGroup

from ..actor_ref import SHUTDOWN_SECONDS, ActorRef
from ..errors import ActorNotStarted, ActorUnknown, error_from_wire
from ..frame_socket import peer_of
from ..frames import FrameError
from ..interrupts import without_interrupts
from ..large_bytes import Memory, Parcel, put_back, take_out
from ..letters import Arguments
from ..supervision.child_spec import ChildSpec
from ..supervision.supervisor import Supervisor
from ..workers.main_module import load_failure_from_wire, main_module_of, require_guarded_main
from .job import encode_order
from .parcel_socket import ParcelSocket

KEEPERS_MAX = 5
"""How many that die before they begin with a job are waited for in its name."""

ENDING_SECONDS = 5.0
"""How long whoever was cancelled waits for the end of the job's process, which is killed at once."""

_NAME = "cpu work"
_KEEPER = "turnkeeper.runtime.cpu.keeper:CpuKeeper"


class CpuWork:
    """The jobs of one host: at most `jobs_max` are done at a time, and the others wait, in order."""

    def __init__(self, tasks: TaskGroup, jobs_max: int | None) -> None:
        """Begin without a process; what is started with the first job lives in the task group.

        With None, `jobs_max` are as many as the cores that this process may run on.
        """
        self._tasks = tasks
        self._turns = anyio.CapacityLimiter(jobs_max or len(os.sched_getaffinity(0)))
        self._address = f"\0turnkeeper-{os.getpid()}-{secrets.token_hex(16)}".encode()
        self._supervisor: Supervisor | None = None
        self._starting: _Starting | None = None
        self._is_closed = False

    async def run(
        self,
        function: Callable[..., Any] | str,
        *arguments: Any,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Any:
        """Run `function(*arguments)` in a process, within `timeout` seconds from now on, and return what it returns.

        Cancelled, or late, it isn't begun any more, or its process is killed, and has ended when this does.

        Raises:
            TypeError, ValueError: It is no function that another process can import, or the arguments can't cross.
            MessageTooLarge: The arguments are more than a frame holds.
            WorkerStartError, UnguardedMain: Another process could not import it.
            ActorNotStarted: It was not begun: its time was over before, or there is no process for it.
            ActorUnknown: Its time was over, or its process died.
            ActorError: It failed. Registered errors (../errors.py) arrive as what they are.
        """
        require_guarded_main()
        job = _Job(function, arguments)
        with anyio.move_on_after(timeout) as scope:
            async with self._turns:
                await self._have_done(job)
        if job.answered or not scope.cancelled_caught:
            return job.result()
        late = f"no result within {timeout:g} s"
        raise ActorUnknown(job.name, f"{late}, and its process was killed") if job.begun else job.not_started(late)

    async def aclose(self) -> None:
        """End the worker, and with it what it is at; nothing is begun any more. Raises what it raised."""
        self._is_closed = True
        if self._supervisor is not None:
            await self._supervisor.stop(SHUTDOWN_SECONDS)

    async def _have_done(self, job: _Job) -> None:
        """Have a job done whose turn it is. Cancelled, its process has ended, or it was not begun."""
        try:
            parcel = job.parcel()
            for _ in range(KEEPERS_MAX):
                parcels = await self._connect(job)
                try:
                    with suppress(BrokenPipeError, ConnectionResetError):
                        await parcels.send(parcel)
                        await job.hear(parcels)
                finally:
                    await _leave(parcels, job)
                if job.begun:
                    return
                # Who didn't begin with it has died: it goes to the next one.
        except OSError as error:
            raise job.not_started(f"it can't be handed over: {error}") from error
        raise job.not_started(f"{KEEPERS_MAX} times in a row the worker process didn't begin with it")

    async def _connect(self, job: _Job) -> ParcelSocket:
        while True:
            keeper = await self._keeper(job)
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.setblocking(False)
                connection.connect(self._address)
                if peer_of(connection)[1] != os.geteuid():
                    raise PermissionError("another user listens in the keeper's place")
                return ParcelSocket(connection, anyio)
            except (ConnectionRefusedError, BlockingIOError):
                connection.close()  # it is between two incarnations, or has its hands full
            except BaseException:
                connection.close()
                raise
            try:
                await keeper.ask("is_listening")
            except ActorUnknown:
                pass  # it died meanwhile
            except ActorNotStarted as error:
                raise job.not_started(error.reason) from error

    async def _keeper(self, job: _Job) -> ActorRef:
        """Give the reference of the worker. A task of its own starts it, since that may take longer than a job has."""
        self._check_open(job)
        while self._supervisor is None or self._supervisor.end is not None:
            if self._starting is None:
                self._starting = _Starting()
                self._tasks.start_soon(without_interrupts(self._start), self._starting)
            starting = self._starting
            await starting.known.wait()
            self._check_open(job)
            if starting.failure is not None:
                raise job.not_started(str(starting.failure)) from starting.failure
        return self._supervisor.ref(_NAME)

    def _check_open(self, job: _Job) -> None:
        if self._is_closed:
            raise job.not_started("its runtime is closed")

    async def _start(self, starting: _Starting) -> None:
        try:
            keeper = ChildSpec(_NAME, _KEEPER, (self._address,), process=True)
            self._supervisor = await Supervisor.start(self._tasks, keeper, name=f"supervisor of {_NAME}")
        except Exception as error:
            starting.failure = error
        finally:
            self._starting = None
            starting.known.set()


class _Starting:
    """The start of the worker, which all wait for that come meanwhile."""

    def __init__(self) -> None:
        self.known = anyio.Event()
        self.failure: Exception | None = None


class _Job:
    """One call on its way."""

    def __init__(self, function: Callable[..., Any] | str, arguments: Arguments) -> None:
        self._target = _target_of(function)
        self._slim = take_out(arguments, {})
        self._order = encode_order(self._target, main_module_of(self._target), self._slim)
        self.name = self._target.rpartition(":")[2]
        self.begun = False
        """Whether the keeper has said that it begins."""
        self._answer: list[Any] | None = None
        self._memories: deque[Memory] = deque()

    def parcel(self) -> Parcel:
        """Give what is sent, now that it is: the large byte strings are copied here. Raises OSError: They can't be."""
        return Parcel(self._order, self._slim.copied())

    def not_started(self, reason: str) -> ActorNotStarted:
        """Say that it was not begun."""
        return ActorNotStarted(self.name, reason)

    async def hear(self, parcels: ParcelSocket) -> None:
        """Hear what the keeper says, to its answer, or to its end."""
        with suppress(OSError, FrameError):
            while self._answer is None and (said := await parcels.receive()) is not None:
                if self.begun:
                    self._answer, self._memories = said, parcels.memories
                self.begun = True

    @property
    def answered(self) -> bool:
        """Whether the keeper is done with it."""
        return self._answer is not None

    def result(self) -> Any:
        """Give what the function returned, as the answer says. Raises what it says otherwise."""
        if self._answer is None:
            raise ActorUnknown(self.name, "the worker process that keeps its process died")
        kind, content, *places = self._answer
        if kind == "failed":
            raise error_from_wire(content)
        if kind == "unimported":
            raise load_failure_from_wire(self._target, content)
        if kind == "unstarted":
            raise self.not_started(content)
        if kind == "died":
            raise ActorUnknown(self.name, content)
        values = [content]
        if places:
            try:
                put_back(values, {}, places, self._memories)
            except (OSError, FrameError) as error:  # no descriptor was left for its memory, say
                raise ActorUnknown(self.name, f"its result can't be taken over: {error}") from error
        return values[0]


async def _leave(parcels: ParcelSocket, job: _Job) -> None:
    """Close the connection; without an answer, when the process has ended."""
    try:
        if not job.answered:
            parcels.end()
            with anyio.move_on_after(ENDING_SECONDS, shield=True):
                await job.hear(parcels)
    finally:
        parcels.close()


def _target_of(function: Callable[..., Any] | str) -> str:
    """Say how another process imports the function. Raises TypeError, ValueError: It can't."""
    if isinstance(function, str):
        if not all(function.partition(":")):
            raise ValueError(f"a function is given as itself or by its 'module:name', and not as {function!r}")
        return function
    candidate: object = function
    if not callable(candidate) or inspect.iscoroutinefunction(candidate):
        raise TypeError(f"what is computed is a plain function, and not {function!r}")
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    try:
        found = operator.attrgetter(str(name))(sys.modules[str(module)])
    except (KeyError, AttributeError):
        found = None
    if found is not function:
        raise TypeError(
            f"{function!r} can't be computed: another process has to find it by module and name, "
            "so it can be no lambda, no function that is defined in a function, and no method of an object"
        )
    return f"{module}:{name}"
