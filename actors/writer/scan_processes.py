"""Worker processes that scan files for a thread that isn't on trio, which takes their results in order.

A thread of its own runs trio and drives them, and all of that has ended when the iterator has: the workers are waited
for or killed, and so is the tracker that multiprocessing keeps beside them. A worker that dies costs its file's scan
and nothing else. At most `processes` + 1 results wait to be taken.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from multiprocessing import resource_tracker
from threading import Thread

import trio
import trio_parallel

from turnkeeper.storage.file_scan import FileScan, ScanRequest, scan_file

END_SECONDS = 5.0
"""How long an idle worker may take to end before it is killed."""


def scan_in_processes(requests: Sequence[ScanRequest], processes: int) -> Generator[FileScan | None, None, None]:
    """Scan the files in so many processes at a time; give the scans in the order of the requests."""
    scans = _Scans(requests, processes)
    thread = Thread(target=scans.run, name="turnkeeper scans", daemon=True)
    thread.start()
    try:
        for place in range(len(requests)):
            yield scans.result(place)
            scans.taken(place)
    finally:
        scans.give_up()
        thread.join()


class _NotStarted(Exception):
    """The thread could not run trio."""


class _Scans:
    """The scans of one thread, which become ready in order or out of it."""

    def __init__(self, requests: Sequence[ScanRequest], processes: int) -> None:
        self._results: dict[int, Future[FileScan | None]] = {place: Future() for place in range(len(requests))}
        self._requests = requests
        self._processes = processes
        self._started: Future[trio.lowlevel.TrioToken] = Future()
        self._scope = trio.CancelScope()
        self._room = trio.Semaphore(processes + 1)

    # -- In the thread that takes the results

    def result(self, place: int) -> FileScan | None:
        """Wait for the scan of the request at a place."""
        return self._results[place].result()

    def taken(self, place: int) -> None:
        """Forget a scan, as all of a journal's together are large, and let one more begin."""
        del self._results[place]
        self._tell(self._room.release)

    def give_up(self) -> None:
        """End what still runs; nobody takes another result."""
        self._tell(self._scope.cancel)

    def _tell(self, function: Callable[[], object]) -> None:
        with suppress(trio.RunFinishedError, _NotStarted):
            self._started.result().run_sync_soon(function)

    # -- In the thread that runs trio

    def run(self) -> None:
        """Scan all files. A file that can't be scanned, whatever the cause, gets None."""
        try:
            trio.run(self._run)
        finally:
            if not self._started.done():
                self._started.set_exception(_NotStarted())
            for result in list(self._results.values()):
                if not result.done():
                    result.set_result(None)
            _end_resource_tracker()

    async def _run(self) -> None:
        self._started.set_result(trio.lowlevel.current_trio_token())
        limiter = trio.CapacityLimiter(self._processes)
        with self._scope:
            # Workers make millions of small values and no cycles: looking for those would take a third of the time.
            async with (
                trio_parallel.open_worker_context(init=gc.disable, grace_period=END_SECONDS) as workers,
                trio.open_nursery() as nursery,
            ):
                for place, request in enumerate(self._requests):
                    await self._room.acquire()
                    nursery.start_soon(partial(self._scan, workers, limiter, request, self._results[place]))

    async def _scan(
        self,
        workers: trio_parallel.WorkerContext,
        limiter: trio.CapacityLimiter,
        request: ScanRequest,
        result: Future[FileScan | None],
    ) -> None:
        scan = None
        with suppress(trio_parallel.BrokenWorkerError, OSError):
            scan = await workers.run_sync(scan_file, request, kill_on_cancel=True, limiter=limiter)
        result.set_result(scan)


def _end_resource_tracker() -> None:
    """End the process that multiprocessing starts beside its first worker, and would keep as long as this one lives."""
    end = getattr(getattr(resource_tracker, "_resource_tracker", None), "_stop", None)
    if end is not None:
        end()
