"""The writer's process: opens the store, says so to the node on stdout, and serves.

Run as a script with a boot line on stdin, and the lock and the listening socket inherited. Each line that it says is
a JSON object:

    {"op": "progress", "done": …, "total": …}    a long opening, in bytes
    {"op": "serving", "report": {…}}             the store is open; what opening found and did
    {"op": "error", "error": …, "args": […]}     the store can't be opened, in the error's wire form; it ends

The report's `moments` are seconds of the system's monotonic clock, the same in every process: the writer's `start`,
`replaying` (the index is open, and the journal's end is looked for; null where no journal keeps the store), `open`. It
serves a moment later, when it has loaded what it needs for that.

The end of stdin is the order to end, also while it opens: opening may be given up at any point. The only processes that
it starts scan a large journal's files for a new index, and have ended before it serves.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

if (_root := os.path.abspath(f"{__file__}/../../../..")) not in sys.path:
    sys.path.insert(0, _root)

from turnkeeper.actors import protocol
from turnkeeper.actors.boot import read_boot
from turnkeeper.actors.node_log import log
from turnkeeper.actors.writer.scanning_files import scan_files
from turnkeeper.runtime import failpoints
from turnkeeper.runtime.identity import boot_id, is_gone, own_identity
from turnkeeper.storage.backend import Backend, open_backend
from turnkeeper.storage.errors import IndexFailed, StorageError, StoreRefused

PROGRESS_SECONDS = 0.2
"""Progress is said this often at most."""

COLLECTED_OBJECTS = 20_000
"""How many more objects there must be than after the last look for garbage, for the next one.

A commit of a thousand runs has some ten objects for each, all alive until it is answered: the interpreter's own 700 had
it look at them again and again, for a tenth of the writer's time, and never find anything.
"""

FINDINGS_SAID_MAX = 100
"""Findings in the report to the node; all of them are in node.log."""


def main() -> None:
    """Be the writer until it is told to end; ends the process."""
    start = time.monotonic()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    boot = read_boot(sys.stdin.buffer)
    if boot is None:
        return
    if failpoints.directory() is not None:
        from turnkeeper.actors.failpoints import WRITER

        failpoints.arm(WRITER)
        failpoints.set_limits()
    backend = _open_backend(boot)
    if backend is not None:
        report = _report(backend, start)
        from turnkeeper.actors.writer.writer import serve

        listener = socket.socket(fileno=boot["listener"])
        # What was made until now lives as long as the process: the collector needn't look at it again.
        gc.freeze()
        gc.set_threshold(COLLECTED_OBJECTS)
        _say({"op": protocol.SERVING, "report": report})
        serve(backend, listener, boot["path"], boot["store"], boot_id())
    os._exit(0)  # everything is closed; the interpreter's own tidying takes longer than all the rest of an end


def _open_backend(boot: dict[str, Any]) -> Backend | None:
    try:
        return open_backend(
            ".",
            boot=boot_id(),
            is_gone=is_gone,
            holder=own_identity().as_map(),
            distrust_index=boot["distrust_index"],
            progress=_Progress(),
            scan=scan_files,
        )
    except StorageError as error:
        if isinstance(error, IndexFailed) and not boot["distrust_index"]:
            log(f"the writer ends, the next one builds the index anew: {error}")
            os._exit(protocol.INDEX_FAILED_EXIT_CODE)
        refusal = error
    except OSError as error:
        refusal = StoreRefused(boot["path"], f"it can't be opened ({error.strerror or error})")
    log(f"the writer ends: {refusal}")
    _say({"op": protocol.ERROR, **protocol.error_to_wire(refusal)})
    return None


class _Progress:
    """Tells the node how far opening has come, and gives up when the node orders the end or has died."""

    def __init__(self) -> None:
        self._next = time.monotonic() + PROGRESS_SECONDS
        self._stdin = select.poll()
        self._stdin.register(0, select.POLLIN)

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() < self._next:
            return
        if self._stdin.poll(0):  # nothing is ever written there behind the boot line: it has ended
            os._exit(0)
        _say({"op": protocol.PROGRESS, "done": done, "total": total})
        self._next = time.monotonic() + PROGRESS_SECONDS


def _report(backend: Backend, start: float) -> dict[str, Any]:
    report = backend.report
    moments = {"start": start, "replaying": report.replaying, "open": time.monotonic()}
    for finding in report.findings:
        log(f"opening found: {finding}")
    return {
        "torn_bytes": report.torn_bytes,
        "possibly_acknowledged": report.possibly_acknowledged,
        "quarantined": report.quarantined,
        "hopped_batches": report.hopped_batches,
        "rebuilt": report.rebuilt,
        "moments": moments,
        "findings": [finding.as_map() for finding in report.findings[:FINDINGS_SAID_MAX]],
    }


def _say(message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # a node that has died is noticed by the end of stdin
        os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
