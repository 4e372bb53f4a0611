"""A store in use whose processes die: how long a host waits for its next acknowledged append, and for what.

A host appends to one session and waits for each acknowledgement, without a pause, while it is struck. All moments are
of the system's monotonic clock, which is the same in every process:

    died           just before the signal
    noticed        a connection to who died has ended
    start          the code of the writer that serves from then on runs; `turnkeeper status` says that and what follows
    replaying      it has the index open
    open           the journal's end is settled, and the index up to date
    serving        it has loaded what it needs to serve
    acknowledged   the first append that was acknowledged behind that; what a dying writer still answers doesn't count

So *detect* is from died to noticed, *respawn* to start, *open* to replaying, *replay* to open, *load* to serving,
*append* to acknowledged. Where nobody is left who could notice anything, the host is started anew; the time until its
code runs is in the respawn.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, Self, TypeAlias

import anyio

from turnkeeper import open_runtime
from turnkeeper.actors.client.asking import ask_status
from turnkeeper.actors.directory import StoreDirectory
from turnkeeper.actors.protocol import NODE_SOCKET, WRITER_SOCKET

from ..chaos.store_processes import state_of
from ..measuring.measured_process import MeasuredProcess
from ..measuring.runs import SEED, Figures
from ..stores.contents import EVENT_DATA, EVENT_TYPE
from .torn_batches import tear_next_batch

SESSION: Final = "interrupted"
"""The key of the session that the host appends to."""

RECOVERY_SECONDS_MAX: Final = 300.0
"""So long it may take until the store is served again."""

_APPENDING_SECONDS = (0.01, 0.04)
_LOOK_SECONDS = 0.003
_STOPPED = ("T", "t", "")


class Served(NamedTuple):
    """The processes that serve the store."""

    node: int
    writer: int


class Outage(NamedTuple):
    """The moments of an outage, in seconds; `host` is when the code of a new host ran, if there had to be one."""

    died: float
    noticed: float
    start: float
    replaying: float
    open: float
    serving: float
    acknowledged: float
    host: float | None = None

    def figures(self) -> Figures:
        """Give what was waited for, in milliseconds."""
        parts = {
            "detect_ms": self.noticed - self.died,
            "respawn_ms": self.start - self.noticed,
            "open_ms": self.replaying - self.start,
            "replay_ms": self.open - self.replaying,
            "load_ms": self.serving - self.open,
            "append_ms": self.acknowledged - self.serving,
            "total_ms": self.acknowledged - self.died,
        }
        if self.host is not None:
            parts["host_ms"] = self.host - self.noticed
        return {name: seconds * 1000 for name, seconds in parts.items()}


Blow: TypeAlias = Callable[["InterruptedStore", Served], float]
"""Strikes, and gives the moment."""

Opening: TypeAlias = Mapping[str, Any]
"""What `turnkeeper status` says of the opening of the writer that serves."""


class InterruptedStore:
    """The store at `path` in use, by one host. Left as a context manager, that host leaves it.

    Left by an exception, the host is killed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opening: Opening = {}
        self._random = Random(SEED)
        self._host = AppendingHost(path)

    def __enter__(self) -> Self:
        try:
            self._host.wait_appended()
        except BaseException:
            self._host.end(at_once=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self._host.end(at_once=kind is not None)

    def strike(self, blow: Blow, sockets: Sequence[str]) -> Figures:
        """Strike who serves while the host appends, and give what it waited for; `sockets` are of those who die."""
        served = self.begin()
        with ExitStack() as stack:
            connections = [stack.enter_context(closing(_connect(self.path, name))) for name in sockets]
            died = blow(self, served)
            for each in connections:
                _wait_end(each)
            noticed = time.monotonic()
        moments = self._wait_served(served.writer)
        answered = next(each for each in self._host.stop_appending() if each > moments["serving"])
        return Outage(died, noticed, **moments, acknowledged=answered).figures()

    def kill_all(self) -> Figures:
        """Kill who serves and the host, start another one, and give what it took until that had appended."""
        served = self.begin()
        with ExitStack() as stack:
            sockets = (NODE_SOCKET, WRITER_SOCKET)
            connections = [stack.enter_context(closing(_connect(self.path, name))) for name in sockets]
            died = time.monotonic()
            for pid in (self._host.pid, *served):
                os.kill(pid, signal.SIGKILL)
            self._host.wait_killed()
            for each in connections:
                _wait_end(each)
        return self.start_host_again(died, time.monotonic(), served)

    def begin(self) -> Served:
        """Let the host append for a moment, and go on; say who serves it."""
        status = ask_status(str(self.path))
        if status is None:
            raise RuntimeError(f"nobody serves {self.path}")
        self._host.begin_appending()
        time.sleep(self._random.uniform(*_APPENDING_SECONDS))
        return Served(status["pids"]["node"], status["pids"]["writer"])

    def stop_all(self, served: Served) -> None:
        """Stop who serves and the host where they are, and wait until they are stopped."""
        for pid in (served.writer, served.node, self._host.pid):
            stop(pid)

    def kill_stopped(self, served: Served) -> None:
        """Kill all of them, and wait until they are dead."""
        for pid in (*served, self._host.pid):
            os.kill(pid, signal.SIGKILL)
        self._host.wait_killed()

    def start_host_again(self, died: float, noticed: float, former: Served) -> Figures:
        """Start a host in place of one that was killed, and give what it took until it had appended."""
        killed, self._host = self._host, AppendingHost(self.path)
        host, answered = self._host.wait_appended()
        killed.end()
        moments = self._wait_served(former.writer)
        return Outage(died, noticed, **moments, acknowledged=answered, host=host).figures()

    def require_rebuilt(self, batches: int) -> None:
        """Raise RuntimeError unless the writer that serves has built its index anew, of so many batches at least."""
        found = self.opening["hopped_batches"] if self.opening["rebuilt"] else 0
        if found < batches:
            raise RuntimeError(f"an index was built of {found:,} batches and not of {batches:,}")

    def _wait_served(self, former: int) -> Mapping[str, float]:
        """Wait until another writer than `former` serves; give the moments of its opening."""
        deadline = time.monotonic() + RECOVERY_SECONDS_MAX
        while time.monotonic() < deadline:
            # Asking costs those time who are measured, so it is looked first whether there is another one.
            status = ask_status(str(self.path)) if _last_writer(self.path) != former else None
            if status is not None and status["opening"] is not None and status["pids"]["writer"] != former:
                self.opening = status["opening"]
                moments: dict[str, float] = self.opening["moments"]
                if moments["serving"] is not None:
                    return moments
            time.sleep(_LOOK_SECONDS)
        raise TimeoutError(f"{self.path} isn't served again")


def _last_writer(path: Path) -> int | None:
    with closing(StoreDirectory(str(path))) as directory:
        return directory.last_writer()


def _connect(path: Path, name: str) -> socket.socket:
    """Connect to one of the store's processes, and wait until it has taken the connection."""
    with closing(StoreDirectory(str(path))) as directory:
        connection = directory.connect(name)
    connection.setblocking(True)
    connection.settimeout(RECOVERY_SECONDS_MAX)
    connection.recv(1)
    return connection


def _wait_end(connection: socket.socket) -> None:
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass


def stop(pid: int) -> None:
    """Stop a process, and wait until it is."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + RECOVERY_SECONDS_MAX
    while state_of(pid) not in _STOPPED:
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} doesn't stop")
        select.select([], [], [], _LOOK_SECONDS)


# -- blows


def kill_writer(store: InterruptedStore, served: Served) -> float:
    """Kill the writer, wherever it is."""
    return _kill(served.writer)


def kill_node(store: InterruptedStore, served: Served) -> float:
    """Kill the node; its writer then ends by itself."""
    return _kill(served.node)


def lose_index(store: InterruptedStore, served: Served) -> float:
    """Kill the writer, and remove its index."""
    stop(served.writer)
    shutil.rmtree(store.path / "index")
    (store.path / "index.json").unlink()
    return _kill(served.writer)


def tear_tail(store: InterruptedStore, served: Served) -> float:
    """Kill the writer, and leave half of one more batch behind the last one."""
    stop(served.writer)
    tear_next_batch(store.path)
    return _kill(served.writer)


def _kill(pid: int) -> float:
    died = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    return died


# -- the host


class AppendingHost:
    """A host process that appends to the session, one event after the other."""

    def __init__(self, path: Path) -> None:
        self._process = MeasuredProcess(_be_host, str(path), ending_seconds=10.0)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def wait_appended(self) -> tuple[float, float]:
        """Wait until it has appended one event; give when its code ran, and when that was acknowledged."""
        moments: tuple[float, float] = self._process.receive(RECOVERY_SECONDS_MAX)
        return moments

    def begin_appending(self) -> None:
        """Let it append without a pause."""
        self._process.send("append")

    def stop_appending(self) -> list[float]:
        """Let it append one more event and then pause; give when each was acknowledged."""
        self._process.send("pause")
        answered: list[float] = self._process.receive(RECOVERY_SECONDS_MAX)
        return answered

    def wait_killed(self) -> None:
        """Wait for its death, when it was killed."""
        self._process.wait_killed()

    def end(self, *, at_once: bool = False) -> None:
        """Let it leave the store, or kill it at once; it is killed as well if it doesn't leave."""
        if at_once:
            self._process.ending_seconds = 0.0
        self._process.__exit__()


def _be_host(starter: Connection, store: str) -> None:
    anyio.run(_host, starter, store, time.monotonic(), backend="trio")


async def _host(starter: Connection, store: str, began: float) -> None:
    async with open_runtime(store) as runtime, await runtime.open_session(SESSION, create=True) as session:

        async def append() -> float:
            await session.append(EVENT_TYPE, EVENT_DATA)
            await session.flush()
            return time.monotonic()

        starter.send((began, await append()))
        while True:
            await anyio.wait_readable(starter)
            try:
                starter.recv()
                answered = []
                while not starter.poll():
                    answered.append(await append())
                starter.recv()
            except EOFError:
                return
            starter.send([*answered, await append()])
