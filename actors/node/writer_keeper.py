"""The writer of a store, whichever process it is now: started, followed through what it says, ended in order.

One life of it is one process, from its start to its end; whether and when there is another one is decided by the node's
tree. A writer is started only after the one before it has been waited for, and is told when the index may be what
killed that one. Part of the node, on trio.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import trio

from turnkeeper.runtime.errors import ChildStartError
from turnkeeper.runtime.processes import ProcessEnded, died_by_signal
from turnkeeper.storage.errors import StorageError, StoreRefused

from ..node_log import log
from ..protocol import ERROR, INDEX_FAILED_EXIT_CODE, OPENING, PROGRESS, SERVING, error_from_wire

END_SECONDS = 10.0
"""How long a writer may take for its clean end before it is killed, which loses nothing."""

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

    @property
    def return_code(self) -> int | None:
        """Its return code, once it has been waited for."""
        return self._process.returncode

    async def follow(self, heard: Callable[[], None]) -> None:
        """Read what it says until it has ended, and reap it. Whatever comes between, its end is ordered and awaited."""
        try:
            await self._hear_all(heard)
            await self.wait_ended()
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._end()
            raise

    async def wait_ended(self) -> None:
        """Wait until it has ended, and reap it; again is no error."""
        if self._process.returncode is None:
            end = os.pidfd_open(self.pid)
            try:
                await trio.lowlevel.wait_readable(end)
            finally:
                os.close(end)
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    async def _hear_all(self, heard: Callable[[], None]) -> None:
        assert self._process.stdout is not None
        reports = self._process.stdout.fileno()
        unfinished = b""
        while content := await _read(reports):
            *lines, unfinished = (unfinished + content).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))
            heard()

    def _hear(self, said: dict[str, Any]) -> None:
        match said["op"]:
            case op if op == PROGRESS:
                self.progress = (said["done"], said["total"])
            case op if op == SERVING:
                self.report = said["report"]
            case op if op == ERROR:
                self.refusal = error_from_wire(said)

    async def _end(self) -> None:
        """Order it to finish the commit at hand, acknowledge it and end; kill it when that takes too long."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with trio.move_on_after(END_SECONDS):
            await self.wait_ended()
            return
        log(f"the writer, process {self.pid}, didn't end within {END_SECONDS:g} s and is killed")
        self._process.kill()
        with trio.move_on_after(END_SECONDS):
            await self.wait_ended()


class WriterKeeper:
    """The writer of the store at `path`.

    `first` is its first process, `start(distrust_index)` starts another; `changed` is called after each change of
    `state`, `pid` or `progress`, and `refused` is told why there can't be a writer.
    """

    def __init__(
        self,
        path: str,
        first: subprocess.Popen[bytes],
        start: Callable[[bool], subprocess.Popen[bytes]],
        changed: Callable[[], None],
        refused: Callable[[StorageError], None],
    ) -> None:
        self._path = path
        self._first: WriterProcess | None = WriterProcess(first)
        self._writer: WriterProcess | None = self._first
        self._former: WriterProcess | None = None
        self._start = start
        self._changed = changed
        self._refused = refused
        self._suspect_index = False
        self._rebuild: Rebuild | None = None

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

    @property
    def opening(self) -> dict[str, Any] | None:
        """What the writer's opening found and did, as it reports it, but only the number of its findings.

        None while it opens the store, and between two.
        """
        if self._writer is None or self._writer.report is None:
            return None
        return {**self._writer.report, "findings": len(self._writer.report["findings"])}

    async def live(self, *, started: Callable[[], None]) -> None:
        """Be with one writer until it has ended; cancelled, end it in order. A child of the node's tree.

        Returns when there can be no writer, which `refused` was told of.

        Raises:
            ProcessEnded: It ended by itself, or somebody killed it.
        """
        started()  # an opening takes as long as it takes
        writer, self._first = self._first, None
        if writer is None:
            writer = await self._start_next()
        if writer is None:
            return
        try:
            await writer.follow(self._heard)
        finally:
            self._suspect_index |= _is_index_suspected(writer.return_code)
            self._former, self._writer = writer, None
            self._changed()
        if writer.refusal is not None:
            self._refused(writer.refusal)
            return
        ended = ProcessEnded(f"the writer, process {writer.pid},", writer.return_code)
        log(str(ended))
        raise ended

    async def rebuild(self, restart: Callable[[], Awaitable[None]]) -> dict[str, Any]:
        """Have `restart` bring a writer that builds the index anew, and return its report when it serves."""
        rebuild = self._rebuild
        if rebuild is None:
            rebuild = self._rebuild = Rebuild()
            with suppress(ChildStartError):  # the node ends, and with it whoever waits here
                await restart()
        await rebuild.done.wait()
        return rebuild.report

    async def _start_next(self) -> WriterProcess | None:
        """Start a process; None if none can be started, which `refused` was told of."""
        if self._former is not None:
            await self._former.wait_ended()  # one that not even KILL has ended: its disk may yet take what it wrote
        if self._rebuild is not None:
            self._rebuild.started = True
        try:
            self._writer = WriterProcess(self._start(self._suspect_index or self._rebuild is not None))
        except OSError as error:
            self._refused(StoreRefused(self._path, f"its writer can't be started ({error.strerror or error})"))
            return None
        self._changed()
        return self._writer

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


def _is_index_suspected(return_code: int | None) -> bool:
    """Say whether a writer's end may have come from its index."""
    if died_by_signal(return_code) in _INDEX_SUSPECTED:
        return True
    return return_code in (INDEX_FAILED_EXIT_CODE, _UNFORESEEN_EXIT_CODE)


async def _read(pipe: int) -> bytes:
    """Read what a pipe holds, waiting for something; empty at its end."""
    await trio.lowlevel.wait_readable(pipe)
    return os.read(pipe, 65536)
