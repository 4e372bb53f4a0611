"""The process that forks a shim for each task: a script, with a socket of whole messages as its standard input.

Run as `python -I -S -P spawner.py [DESCRIPTORS]` in the store's directory. A message is the id of a task whose
directory is made; nothing is answered, but `<id> <errno>` if no process could be forked. A shim doesn't notice when the
spawner dies, and the spawner not what becomes of a shim: the kernel reaps it. All signals that can be blocked are, the
shims take over the mask, so none is ever lost. At the end of its input it ends.

It is small on purpose: all that it has loaded and frozen is shared by its forks. DESCRIPTORS is the limit of open files
that tasks are to have, as the starter may have raised its own.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import sys
import traceback

if (
    _root := os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
) not in sys.path:
    sys.path.insert(0, _root)

from turnkeeper.runtime import failpoints
from turnkeeper.runtime.tasks import shim

TASKS = "tasks"
ID_BYTES_MAX = 400
"""Longer than any id. A larger buffer would be taken from the heap, and written to between the forks."""

# CPython takes objects of up to 512 bytes from pools (Objects/obmalloc.c), each for one size, a multiple of 16.
# A pool's head says what of it is taken.
SMALL_BYTES_MAX = 512
SIZE_STEP_BYTES = 16
POOL_BYTES = 16 * 1024
POOL_HEAD_BYTES = 48
NEW_IN_ROW = 4  # places of a new pool that are seen to follow each other
FILLED_BYTES_MAX = 1024 * 1024
"""Of each size no more is filled than this, should this Python have other pools."""


def main() -> None:
    """Fork a shim for each id that comes, until none can come any more."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    if len(sys.argv) > 1:
        _limit_descriptors(int(sys.argv[1]))
    with contextlib.suppress(OSError):
        shim.rehearse(TASKS)
    if failpoints.directory() is not None:
        from turnkeeper.runtime.tasks.failpoints import SHIM, SPAWNER

        failpoints.arm({**SPAWNER, **SHIM})
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # A collection would write into every object that the forks share.
    gc.collect()
    gc.freeze()
    gc.disable()
    filling = fill_pools()
    while task := os.read(0, ID_BYTES_MAX).decode():
        try:
            pid = os.fork()
        except OSError as error:
            with contextlib.suppress(OSError):
                os.write(0, f"{task} {error.errno}".encode())
            continue
        if pid == 0:
            _be_shim(task)
    del filling


def fill_pools() -> list[object]:
    """Fill all pools of objects in which there is room, so that forks begin with new ones; give what fills them.

    Whatever a fork takes from a pool is written down in the pool's head. In a pool that has room somewhere, head and
    room are two pages that become copies, in a new one both are the same. That is a seventh of a shim's memory.
    """
    filling: list[object] = []
    for size in range(SIZE_STEP_BYTES, SMALL_BYTES_MAX + 1, SIZE_STEP_BYTES):
        begun: list[object] = []
        for number in range(FILLED_BYTES_MAX // size):
            found = _object_of(size, number)
            is_next = begun and id(found) == id(begun[-1]) + size
            if not is_next:
                filling += begun
                begun = []
            if is_next or id(found) % POOL_BYTES == POOL_HEAD_BYTES:
                begun.append(found)
            else:
                filling.append(found)
            # So many in a row from a pool's head on: it is a new one, as all others are full. It is left empty.
            if len(begun) == NEW_IN_ROW:
                break
    return filling


def _object_of(size: int, number: int) -> object:
    """Make an object that takes so many bytes, and that no collector or cache of its type knows."""
    if size == SIZE_STEP_BYTES:
        return object()
    if size == 2 * SIZE_STEP_BYTES:
        return (1 << 20) + number
    return bytes(size - sys.getsizeof(b""))


def _be_shim(task: str) -> None:
    code = 1
    try:
        shim.run(task)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _limit_descriptors(soft: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


if __name__ == "__main__":
    main()
