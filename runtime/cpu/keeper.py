"""The actor that keeps the processes for CPU work, in a worker process, which runs trio whatever its host runs.

Each connection to its socket is one job: the order comes in (job.py), goes to a process of trio-parallel, and the
answer goes back, both as they are: nothing is unpacked here, and of memory only descriptors pass. A connection that
ends before has its job's process killed, and is closed here only when that is gone. How many jobs there are at a time
is up to who connects. Dying takes all of it along: the processes are in this one's group.

Before anything else it says `["begun"]`, and only if that can be said it begins: who didn't hear it knows that nothing
was done. To the answers of the job itself it adds `["unstarted", reason]`, where there is no process, and `["died",
reason]`.
"""

from __future__ import annotations

import math
import os
import socket
from contextlib import AsyncExitStack, suppress

import trio
import trio_parallel
from trio_parallel import BrokenWorkerError

from ..frame_socket import peer_of
from ..frames import FrameError, encode_frame
from ..large_bytes import Memory, Parcel, new_memory
from ..processes import describe_exit
from .job import run_job
from .parcel_socket import ParcelSocket

IDLE_SECONDS = 60.0
"""How long a process without a job is kept; the next one takes a tenth of a second to start."""

END_SECONDS = 2.0
"""How long an idle process may take to end before it is killed."""

CONNECTIONS_WAITING_MAX = 1024
"""How many may have connected that weren't heard yet. One more is told to come again."""

DESCRIPTORS_WAIT_SECONDS = 0.1
"""How long to wait when no descriptor is left for the next connection."""

_BEGUN = encode_frame(["begun"])


class CpuKeeper:
    """Listens at an address, and has done what comes in."""

    def __init__(self, address: bytes) -> None:
        """Begin with an address in Linux's abstract namespace: it is free again when this process has ended."""
        self._address = address
        self._listener = socket.socket(socket.AF_UNIX)
        self._limiter = trio.CapacityLimiter(math.inf)

    async def __aenter__(self) -> CpuKeeper:
        async with AsyncExitStack() as stack:
            stack.enter_context(self._listener)
            self._listener.setblocking(False)
            self._listener.bind(self._address)
            self._listener.listen(CONNECTIONS_WAITING_MAX)
            self._processes = await stack.enter_async_context(
                trio_parallel.open_worker_context(idle_timeout=IDLE_SECONDS, grace_period=END_SECONDS)
            )
            self._jobs = await stack.enter_async_context(trio.open_nursery())
            self._jobs.start_soon(self._accept)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._jobs.cancel_scope.cancel()
        with suppress(BrokenWorkerError):  # one was killed by somebody while it was idle, or didn't end by itself
            await self._stack.aclose()

    async def is_listening(self) -> bool:
        """Say so: whoever is told can connect."""
        return True

    async def _accept(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._listener)
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                continue
            except OSError:
                await trio.sleep(DESCRIPTORS_WAIT_SECONDS)
                continue
            self._jobs.start_soon(self._serve, connection)

    async def _serve(self, connection: socket.socket) -> None:
        """Do the job that comes in over a connection, unless it is somebody else's, and close it."""
        with connection, suppress(OSError, FrameError):
            if peer_of(connection)[1] != os.geteuid():
                return
            parcels = ParcelSocket(connection, trio.lowlevel, read=bytes)
            if (order := await parcels.receive()) is None:
                return
            await parcels.send(Parcel(_BEGUN))
            answer: Parcel | None = None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_unwanted, parcels, nursery.cancel_scope)
                answer = await self._do(order, *parcels.memories)
                nursery.cancel_scope.cancel()
            if answer is not None:
                await parcels.send(answer)

    async def _do(self, order: bytes, given: Memory | None = None) -> Parcel:
        """Have a process do it, and give its answer. Cancelled, that process is killed and has ended."""
        try:
            room = new_memory()
            places = None if given is None else _path(given), _path(room)
            answer = await self._processes.run_sync(run_job, order, *places, kill_on_cancel=True, limiter=self._limiter)
        except BrokenWorkerError as error:
            return Parcel(encode_frame(["died", f"its process {describe_exit(error.args[-1].exitcode)}"]))
        except OSError as error:
            if error.errno is not None:
                return Parcel(encode_frame(["unstarted", f"no process can be had for it: {error}"]))
            return _unreadable(error)  # trio-parallel's own, of an answer that was cut
        except Exception as error:
            return _unreadable(error)
        return Parcel(answer, room if os.fstat(room.descriptor).st_size else None)


async def _cancel_unwanted(parcels: ParcelSocket, scope: trio.CancelScope) -> None:
    with suppress(OSError, FrameError):
        await parcels.receive()
    scope.cancel()


def _unreadable(error: Exception) -> Parcel:
    # The function has written, or closed, what is not its own; trio-parallel has killed its process.
    return Parcel(encode_frame(["died", f"its process was killed, as its answer can't be read: {error}"]))


def _path(memory: Memory) -> str:
    """Give a path by which a process of the same user opens memory that is open here."""
    return f"/proc/{os.getpid()}/fd/{memory.descriptor}"
