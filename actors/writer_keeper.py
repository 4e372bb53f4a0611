"""Keep the writer of a store alive: start it, follow what it says, start it again however it dies.

A writer is started only after the one before it has been waited for, and is told when the index may be what killed
that one. A writer that was killed comes back at once; one that ends by itself comes back after growing delays, a
limited number of times; one that says why the store can't be opened doesn't come back. Part of the node, on trio.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import trio

from turnkeeper.runtime.processes import describe_exit, died_by_signal
from turnkeeper.runtime.restart import GiveUp, RestartHistory, RestartPolicy
from turnkeeper.storage.errors import StorageError, StoreRefused

from .node_log import log
from .protocol import ERROR, INDEX_FAILED_EXIT_CODE, NODE_LOG, OPENING, PROGRESS, SERVING, error_from_wire

END_SECONDS = 10.0
"""How long a writer may take for its clean end before it is killed, which loses nothing."""

KILLED_POLICY = RestartPolicy(intensity=100, period_seconds=10.0, backoff_first=0.0, backoff_max=0.0)
"""For a writer that somebody killed: started again at once."""

FAILED_POLICY = RestartPolicy(intensity=5, period_seconds=30.0, backoff_first=0.05, backoff_max=1.0)
"""For a writer that ended by an error of the disk or of ours."""

_KILLED_BY = (signal.SIGKILL, signal.SIGTERM)
_INDEX_SUSPECTED = (signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT)
_UNFORESEEN_EXIT_CODE = 1
"""How Python ends on an exception that nobody catches, as a damaged index may cause one."""


class WriterProcess:
    """One run of the writer: what it said of itself, and its end."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self.progress: tuple[int, int] | None = None
        self.report: dict[str, Any] | None = None
        self.refusal: StorageError | None = None
        self._process = process
        self._ended = trio.Event()

    async def follow(self, heard: Callable[[], None]) -> int:
        """Read what the writer says until it has ended, reap it and return its return code."""
        assert self._process.stdout is not None
        reports = self._process.stdout.fileno()
        unfinished = b""
        while content := await _read(reports):
            *lines, unfinished = (unfinished + content).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))
            heard()
        end = os.pidfd_open(self.pid)
        try:
            await trio.lowlevel.wait_readable(end)
        finally:
            os.close(end)
        return_code = self._process.wait()
        self._process.stdout.close()
        self.order_end()
        self._ended.set()
        return return_code

    def order_end(self) -> None:
        """Tell it to finish the commit at hand, acknowledge it and end; again is no error."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def end(self) -> None:
        """Order its end and wait for it; kill it when that takes too long. Somebody has to `follow` it meanwhile."""
        self.order_end()
        with trio.move_on_after(END_SECONDS):
            await self._ended.wait()
            return
        log(f"the writer, process {self.pid}, didn't end within {END_SECONDS:g} s and is killed")
        self._process.kill()
        with trio.move_on_after(END_SECONDS):
            await self._ended.wait()

    def _hear(self, said: dict[str, Any]) -> None:
        match said["op"]:
            case op if op == PROGRESS:
                self.progress = (said["done"], said["total"])
            case op if op == SERVING:
                self.report = said["report"]
            case op if op == ERROR:
                self.refusal = error_from_wire(said)


class WriterKeeper:
    """The writer of the store at `path`, whichever process it is now.

    `start(distrust_index)` starts one; `changed` is called after each change of `state`, `pid` or `progress`.
    """

    def __init__(
        self,
        path: str,
        first: subprocess.Popen[bytes],
        start: Callable[[bool], subprocess.Popen[bytes]],
        changed: Callable[[], None],
    ) -> None:
        self._path = path
        self._writer: WriterProcess | None = WriterProcess(first)
        self._start = start
        self._changed = changed
        self._ending = False
        self._suspect_index = False
        self._rebuild: Rebuild | None = None
        self._failures = RestartHistory(FAILED_POLICY)
        self._kills = RestartHistory(KILLED_POLICY)

    @property
    def state(self) -> str:
        """`serving`, or `opening` while it opens the store and between two of its processes."""
        return SERVING if self._writer is not None and self._writer.report is not None else OPENING

    @property
    def pid(self) -> int | None:
        """The writer's process; None between two."""
        return None if self._writer is None else self._writer.pid

    @property
    def progress(self) -> tuple[int, int] | None:
        """How far a long opening has come, in bytes done and bytes in all."""
        return None if self._writer is None or self._writer.report is not None else self._writer.progress

    async def run(self) -> StorageError | None:
        """Keep it alive until `end`; return earlier, with the reason, when it can't be kept."""
        while self._writer is not None:
            writer = self._writer
            return_code = await writer.follow(self._heard)
            self._writer = None
            if self._ending or writer.refusal is not None:
                return writer.refusal
            self._changed()
            if self._rebuild is not None and not self._rebuild.started:
                self._rebuild.started = True
            else:
                reason = await self._wait_to_restart(writer.pid, return_code)
                if reason is not None:
                    return reason
            self._suspect_index |= _is_index_suspected(return_code)
            if not self._ending:
                try:
                    self._writer = WriterProcess(self._start(self._suspect_index or self._rebuild is not None))
                except OSError as error:
                    return StoreRefused(self._path, f"its writer can't be started ({error.strerror or error})")
                self._changed()
        return None

    async def rebuild(self) -> dict[str, Any]:
        """End the writer in order, start one that builds the index anew, and return its report when it serves."""
        rebuild = self._rebuild
        if rebuild is None:
            rebuild = self._rebuild = Rebuild()
            if self._writer is not None:
                await self._writer.end()
        await rebuild.done.wait()
        return rebuild.report

    async def end(self) -> None:
        """End the writer in order, and start no other."""
        self._ending = True
        if self._writer is not None:
            await self._writer.end()

    async def _wait_to_restart(self, pid: int, return_code: int) -> StorageError | None:
        """Wait as long as the policy says; return why it isn't started again, if it isn't."""
        how = f"the writer, process {pid}, {describe_exit(return_code)}"
        log(how)
        history = self._kills if died_by_signal(return_code) in _KILLED_BY else self._failures
        decision = history.decide(trio.current_time())
        if isinstance(decision, GiveUp):
            return StoreRefused(self._path, f"{how}, and {decision.reason}; {NODE_LOG} there says more")
        await trio.sleep(decision.delay)
        return None

    def _heard(self) -> None:
        writer, rebuild = self._writer, self._rebuild
        if writer is not None and writer.report is not None:
            self._suspect_index = False
            if rebuild is not None and rebuild.started:
                self._rebuild = None
                rebuild.report = writer.report
                rebuild.done.set()
        self._changed()


class Rebuild:
    """A wish for a new index; `started` when the writer that does it is the next one or runs."""

    def __init__(self) -> None:
        self.started = False
        self.report: dict[str, Any] = {}
        self.done = trio.Event()


def _is_index_suspected(return_code: int) -> bool:
    """Say whether a writer's end may have come from its index."""
    if died_by_signal(return_code) in _INDEX_SUSPECTED:
        return True
    return return_code in (INDEX_FAILED_EXIT_CODE, _UNFORESEEN_EXIT_CODE)


async def _read(pipe: int) -> bytes:
    """Read what a pipe holds, waiting for something; empty at its end."""
    await trio.lowlevel.wait_readable(pipe)
    return os.read(pipe, 65536)
