"""Who works in a directory, and an end to that: no process of a store outlives the directory that it was measured in.

Whoever is measured leaves by himself when his host goes. What is left then was left by somebody who was killed, and is
killed as well.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Final

from turnkeeper.actors.client.asking import ask_stop
from turnkeeper.runtime.tasks import tree
from turnkeeper.storage.errors import StorageError
from turnkeeper.storage.lock import store_is_held
from turnkeeper.storage.store import STORE_FILE

LEAVE_SECONDS: Final = 20.0
"""How long all that serves a store may take to end, once its host is gone."""

_NODE_SECONDS = 10.0
_STOP_SECONDS = 1.0
_POLL_SECONDS = 0.02
_REMOVALS = 3


def inhabitants(directory: Path) -> list[tree.Process]:
    """Find the processes of the stores at and below a directory: node, writer, spawner and shims work inside of theirs.

    The commands don't; they end when their shims do.
    """
    place = str(directory.resolve())
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if f"{os.readlink(f'/proc/{pid}/cwd')}/".startswith(f"{place}/"):
                found.append(tree.process_of(int(pid)))
    return [each for each in found if each is not None and each.is_alive]


def clear(directory: Path) -> None:
    """Send away who still works in a directory, kill who doesn't leave, and remove it with all that is in it."""
    _stop_nodes(directory)
    deadline = time.monotonic() + LEAVE_SECONDS
    while (left := inhabitants(directory)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    for each in left:
        tree.kill_below(each.pid)
        tree.send_signal(each.pid, each.start, signal.SIGKILL)
    for _ in range(_REMOVALS):  # who was killed may have made a file while others were removed
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(_POLL_SECONDS)


def _stop_nodes(directory: Path) -> None:
    """Stop what still serves a store in the directory: a node whose client was killed, or never came."""
    deadline = time.monotonic() + _NODE_SECONDS
    for store in (str(file.parent) for file in directory.rglob(STORE_FILE)):
        while store_is_held(store) and time.monotonic() < deadline:
            with contextlib.suppress(StorageError, OSError):
                ask_stop(store, _STOP_SECONDS)
            time.sleep(_POLL_SECONDS)
