"""Keep a spawner alive and hand tasks to it: each until a shim has begun it, to the next spawner again if one dies.

A spawner reads ids and forks a shim for each; what it was told and hasn't done dies with it. A task that is handed over
twice runs once, which is the shims' own doing, so all that hasn't begun is simply handed over again. A spawner that was
killed comes back at once, one that ends by itself after growing delays; one that can't be kept fails what waits for it,
and the next task tries anew. The first task starts it. Part of the node, on trio.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
from collections.abc import Callable

import trio

from turnkeeper.runtime.processes import describe_exit, was_killed
from turnkeeper.runtime.restart import GiveUp, RestartHistory

from ...launch import start_spawner
from ...node_log import log
from ...protocol import NODE_LOG
from ..restarts import FAILED_POLICY, KILLED_POLICY

END_SECONDS = 1.0
"""How long a spawner may take for its end, once nobody hands it anything, before it is killed: shims don't notice."""

_MESSAGE_BYTES_MAX = 4096

Failed = Callable[[str, str], None]
"""Called with a task's id and why nothing can begin it."""


class SpawnerKeeper:
    """The spawner of the store, whichever process it is now; `failed` is told of each task that can't be begun.

    `descriptors` is how many files a task may have open.
    """

    def __init__(self, failed: Failed, descriptors: int) -> None:
        self._failed = failed
        self._descriptors = descriptors
        self._waiting: dict[str, None] = {}
        self._unsent: dict[str, None] = {}
        self._wanted = trio.Event()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The spawner's process; None before the first task, and between two."""
        return None if self._process is None else self._process.pid

    def hand_over(self, task: str) -> None:
        """Have a shim begin the task, however many spawners that takes, until it is said to have `begun`."""
        self._waiting[task] = None
        self._unsent[task] = None
        self._wanted.set()

    def begun(self, task: str) -> None:
        """Take note that a shim has the task, or that nothing is to begin it any more; again is no error."""
        self._waiting.pop(task, None)
        self._unsent.pop(task, None)

    async def run(self) -> None:
        """Keep it alive from the first task on, until cancelled; then end it and reap it."""
        kills, failures = RestartHistory(KILLED_POLICY), RestartHistory(FAILED_POLICY)
        await self._wait_for_task()
        while True:
            how, was_killed = await self._run_one()
            decision = (kills if was_killed else failures).decide(trio.current_time())
            if isinstance(decision, GiveUp):
                kills, failures = RestartHistory(KILLED_POLICY), RestartHistory(FAILED_POLICY)
                self._fail_all(f"{how}, and {decision.reason}; {NODE_LOG} in the store says more")
                await self._wait_for_task()
            else:
                await trio.sleep(decision.delay)
            self._unsent = dict(self._waiting)

    async def _wait_for_task(self) -> None:
        while not self._waiting:
            self._wanted = trio.Event()
            await self._wanted.wait()

    async def _run_one(self) -> tuple[str, bool]:
        """Be with one spawner from its start to its end; say how that came, and whether somebody killed it."""
        own, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with own:
            with its:
                try:
                    process = start_spawner(its.fileno(), self._descriptors)
                except OSError as error:
                    return f"the spawner can't be started ({error.strerror or error})", False
            own.setblocking(False)
            self._process = process
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._send, own)
                    await self._receive(own)
                    nursery.cancel_scope.cancel()
            finally:
                own.close()
                with trio.CancelScope(shield=True):
                    code = await _reap(process)
                self._process = None
        how = f"the spawner, process {process.pid}, {describe_exit(code)}"
        log(how)
        return how, was_killed(code)

    async def _send(self, spawner: socket.socket) -> None:
        """Hand over what is to be, in order, as fast as the spawner takes it."""
        with contextlib.suppress(OSError):  # it has died, which whoever receives hears too
            while True:
                while self._unsent:
                    task = next(iter(self._unsent))
                    try:
                        spawner.send(task.encode())
                    except BlockingIOError:
                        await trio.lowlevel.wait_writable(spawner)
                    else:
                        self._unsent.pop(task, None)
                self._wanted = trio.Event()
                await self._wanted.wait()

    async def _receive(self, spawner: socket.socket) -> None:
        """Hear of forks that failed, until the spawner has ended."""
        with contextlib.suppress(OSError):
            while True:
                try:
                    said = spawner.recv(_MESSAGE_BYTES_MAX)
                except BlockingIOError:
                    await trio.lowlevel.wait_readable(spawner)
                    continue
                if not said:
                    return
                task, _, number = said.decode(errors="replace").rpartition(" ")
                if task in self._waiting:
                    self.begun(task)
                    self._failed(task, f"no process could be made for it ({_describe(number)})")

    def _fail_all(self, why: str) -> None:
        tasks = list(self._waiting)
        self._waiting.clear()
        for task in tasks:
            self._failed(task, why)


async def _reap(process: subprocess.Popen[bytes]) -> int:
    """Wait until a spawner that nobody talks to has ended, kill it if that takes too long, and reap it."""
    end = os.pidfd_open(process.pid)
    try:
        with trio.move_on_after(END_SECONDS) as patience:
            await trio.lowlevel.wait_readable(end)
        if patience.cancelled_caught:
            process.kill()
            await trio.lowlevel.wait_readable(end)
    finally:
        os.close(end)
    return process.wait()


def _describe(number: str) -> str:
    code = int(number) if number.isdigit() else 0
    return os.strerror(code) if code in errno.errorcode else f"error {number:.20}"
