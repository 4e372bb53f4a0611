"""supervisord beside our tasks: starting a program, hearing of its end, stopping many, in turns with ours.

It is set up as its documentation says: in the foreground, its XML-RPC on a Unix socket, an event listener that is told
of ends, groups of programs made by `numprocs`, stopped and killed as process groups. It tells of an end when its loop
turns again, at the next thing that happens or a second later; here something happens every `apart_seconds`. With
`startsecs=0` a start doesn't wait for a program to prove itself, and returns when supervisord has forked; ours returns
when the command runs, and has recorded it. What it manages dies with no host, and is known to nobody
after its own death.

supervisord runs as a task of ours, so nothing of it outlives the benchmark, whatever its programs do.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from signal import SIGKILL
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any, Final
from xmlrpc.client import Fault, ServerProxy, Transport

import anyio
import anyio.to_thread

from turnkeeper import Task, TaskState
from turnkeeper.runtime.tasks import tree

from ..measuring.runs import Run, run_of, turns
from ..peers.catalogue import INSTALL
from .hosts import LIVES_SECONDS, Place
from .idle_tasks import TIMED_END, latency_rounds, start_idle, wake
from .trees import PROCESSES_A_TREE, TREE_COMMAND, TREE_SCRIPT, grown

INSTALL_SUPERVISOR: Final = f"{INSTALL}, or apt install supervisor"

READY_SECONDS: Final = 30.0
NOTICED_SECONDS: Final = 30.0
"""So long supervisord has for answering at all, and its listener for hearing of the last end."""

DYING_SECONDS: Final = 0.2

_POLL_SECONDS: Final = 0.02

_LISTENER: Final = """
import sys, time
while True:
    print("READY", flush=True)
    head = sys.stdin.readline()
    heard = time.monotonic_ns()
    if not head:
        break
    size = int(dict(word.split(":") for word in head.split())["len"])
    name = dict(word.split(":") for word in sys.stdin.read(size).split())["processname"]
    with open("ends", "a") as file:
        file.write(f"{name} {heard}\\n")
    sys.stdout.write("RESULT 2\\nOK")
    sys.stdout.flush()
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured of each: starts, ends that are waited for, and trees that are stopped at once, how often.

    A program that is waited for runs `runs_seconds`, and begins `apart_seconds` after the one before.
    """

    starts: int
    ends: int
    trees: int
    rounds: int
    apart_seconds: float = 0.05
    runs_seconds: float = 0.25


def find_supervisord() -> str | None:
    """Find supervisord beside this Python or on the path."""
    return shutil.which("supervisord", path=str(Path(sys.executable).parent)) or shutil.which("supervisord")


async def measure_supervised(place: Place, supervisord: str, sizes: Sizes) -> list[Run]:
    """Measure it beside tasks of ours."""
    params = {"against": "supervisord", "installed": await _version(supervisord)}
    async with _running(place, supervisord, sizes) as server:
        return [
            await _measure_starts(place, server, sizes, params),
            await _measure_ends(place, server, sizes, params),
            await _measure_stops(place, server, sizes, params),
        ]


# -- supervisord


async def _version(supervisord: str) -> str:
    said = await anyio.run_process([supervisord, "--version"])
    return f"supervisor {said.stdout.decode().strip()}"


class _SocketConnection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket(AF_UNIX, SOCK_STREAM)
        self.sock.connect(self._path)


class _SocketTransport(Transport):
    """XML-RPC over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> HTTPConnection:
        return _SocketConnection(self._path)


class _Server:
    """A running supervisord."""

    def __init__(self, directory: Path, pid: int) -> None:
        self.directory = directory
        self.pid = pid
        # The directory's own path may be longer than a socket's may be.
        self._path = f"/proc/{pid}/cwd/socket"

    def call(self, name: str, *arguments: Any) -> Any:
        """Ask it over a connection of its own, as its command line does. Raises OSError, Fault."""
        with ServerProxy("http://localhost", _SocketTransport(self._path)) as proxy:
            return getattr(proxy.supervisor, name)(*arguments)

    async def call_aside(self, name: str, *arguments: Any) -> Any:
        """Ask it without holding up this loop."""
        return await anyio.to_thread.run_sync(partial(self.call, name, *arguments))


@asynccontextmanager
async def _running(place: Place, supervisord: str, sizes: Sizes) -> AsyncIterator[_Server]:
    directory = place.store / "supervisord"
    directory.mkdir()
    for name, content in [("timed.py", TIMED_END), ("listener.py", _LISTENER), ("tree.sh", TREE_SCRIPT)]:
        (directory / name).write_text(content)
    (directory / "ends").touch()
    (directory / "supervisord.conf").write_text(_configuration(sizes))
    task = await place.runtime.start_task([supervisord, "-n", "-c", "supervisord.conf"], cwd=str(directory))
    try:
        yield await _wait_ready(directory, task)
    finally:
        await task.stop()


async def _wait_ready(directory: Path, task: Task) -> _Server:
    state: TaskState = await task.state()
    if state.pid is None:
        raise RuntimeError("supervisord ended before it was asked anything")
    server = _Server(directory, state.pid)
    with anyio.fail_after(READY_SECONDS):
        while True:
            try:
                server.call("getState")
            except (OSError, Fault):
                await anyio.sleep(_POLL_SECONDS)
            else:
                return server


def _configuration(sizes: Sizes) -> str:
    python = shlex.quote(sys.executable).replace("%", "%%")
    plain = "autostart=false\nautorestart=false\nstartsecs=0\n"
    return f"""
[unix_http_server]
file=/proc/self/cwd/socket
[supervisord]
nodaemon=true
silent=true
logfile=supervisord.log
pidfile=supervisord.pid
childlogdir=.
minfds={8 * (sizes.starts + sizes.trees + sizes.ends) + 256}
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
[eventlistener:listener]
command={python} -u -I -S listener.py
events=PROCESS_STATE_EXITED
buffer_size={sizes.ends + 16}
[program:idle]
command=sleep {LIVES_SECONDS}
process_name=%(process_num)d
numprocs={sizes.starts}
{plain}
[program:timed]
command={python} -I -S timed.py {sizes.runs_seconds}
process_name=%(process_num)d
numprocs={sizes.ends}
stdout_logfile=timed-%(process_num)d
{plain}
[program:tree]
command=sh tree.sh
process_name=%(process_num)d
numprocs={sizes.trees}
stopasgroup=true
killasgroup=true
{plain}
"""


# -- from the call to the running program


async def _measure_starts(place: Place, server: _Server, sizes: Sizes, params: dict[str, Any]) -> Run:
    ours: list[float] = []
    theirs: list[float] = []
    for number, name in turns(sizes.starts, ["ours", "theirs"]):
        if number % 10 == 0:
            place.tell(f"start {number + 1} of {sizes.starts}, beside supervisord")
        if name == "ours":
            ours.append(await start_idle(place))
        else:
            theirs.append(_start(server, number))
    await server.call_aside("stopProcessGroup", "idle", True)
    params = {**params, "starts": sizes.starts, "base_until": "it has forked (startsecs=0)"}
    return run_of("task start p50_ms", params, latency_rounds(ours), latency_rounds(theirs), compared="p50_ms")


def _start(server: _Server, number: int) -> float:
    began = time.perf_counter()
    server.call("startProcess", f"idle:{number}", True)
    return time.perf_counter() - began


# -- from the end to whoever waits for it


async def _measure_ends(place: Place, server: _Server, sizes: Sizes, params: dict[str, Any]) -> Run:
    ours: list[float] = []
    began = time.monotonic()
    place.tell(f"waiting for {sizes.ends} ends, beside supervisord")

    async def end_one(number: int) -> None:
        await anyio.sleep(max(0.0, began + number * sizes.apart_seconds - time.monotonic()))
        if number % 2 == 0:
            ours.append(await wake(place, sizes.runs_seconds))
        else:
            await server.call_aside("startProcess", f"timed:{number // 2}", False)

    async with anyio.create_task_group() as group:
        for number in range(2 * sizes.ends):
            group.start_soon(end_one, number)
    theirs = await _heard(server, sizes.ends)
    params = {**params, "ends": sizes.ends, "apart_seconds": sizes.apart_seconds, "base_by": "an event listener"}
    return run_of("waiter awake p99_ms", params, latency_rounds(ours), latency_rounds(theirs), compared="p99_ms")


async def _heard(server: _Server, count: int) -> list[float]:
    """Wait until the listener has heard of so many ends; give how long after each. Raises TimeoutError."""
    deadline = anyio.current_time() + NOTICED_SECONDS
    while len(heard := [line.split() for line in (server.directory / "ends").read_text().splitlines()]) < count:
        if anyio.current_time() > deadline:
            raise TimeoutError(f"supervisord told of {len(heard)} of {count} ends within {NOTICED_SECONDS:.0f} s")
        await anyio.sleep(_POLL_SECONDS)
    return [(int(at) - int((server.directory / f"timed-{name}").read_text())) / 1e9 for name, at in heard]


# -- stopping many trees


async def _measure_stops(place: Place, server: _Server, sizes: Sizes, params: dict[str, Any]) -> Run:
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    for number, name in turns(sizes.rounds, ["ours", "theirs"]):
        place.tell(f"round {number + 1} of {sizes.rounds}: stopping {sizes.trees} trees, {name}")
        if name == "ours":
            ours.append(await _stop_ours(place, sizes))
        else:
            theirs.append(await _stop_theirs(server, sizes))
    params = {**params, "trees": sizes.trees, "processes_a_tree": PROCESSES_A_TREE, "base_by": "stopasgroup"}
    return run_of("stop of trees", params, ours, theirs, compared="stop_s")


async def _stop_ours(place: Place, sizes: Sizes) -> dict[str, float]:
    before = (await place.servers()).shims
    tasks = await place.start_many([TREE_COMMAND] * sizes.trees)
    shims = set((await place.servers()).shims).difference(before)
    processes = grown([*shims], sizes.trees * PROCESSES_A_TREE)
    began = time.perf_counter()
    await place.runtime.stop_tasks(*tasks)
    return await _stopped(began, processes)


async def _stop_theirs(server: _Server, sizes: Sizes) -> dict[str, float]:
    before = {each.pid for each in tree.below(server.pid)}
    await server.call_aside("startProcessGroup", "tree", False)
    found = grown([server.pid], len(before) + sizes.trees * PROCESSES_A_TREE)
    processes = [each for each in found if each.pid not in before]
    began = time.perf_counter()
    await server.call_aside("stopProcessGroup", "tree", True)
    figures = await _stopped(began, processes)
    for each in processes:
        tree.send_signal(each.pid, each.start, SIGKILL)
    return figures


async def _stopped(began: float, processes: Sequence[tree.Process]) -> dict[str, float]:
    """Give the seconds since then, and how many of the processes live on when those that are dying have died."""
    seconds = time.perf_counter() - began
    await anyio.sleep(DYING_SECONDS)
    return {"stop_s": seconds, "left": sum(tree.is_alive(each.pid, each.start) for each in processes)}
