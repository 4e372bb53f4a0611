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

from turnkeeper.runtime.tasks import shim

TASKS = "tasks"
ID_BYTES_MAX = 400
"""Longer than any id. A larger buffer would be taken from the heap, and written to between the forks."""


def main() -> None:
    """Fork a shim for each id that comes, until none can come any more."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    if len(sys.argv) > 1:
        _limit_descriptors(int(sys.argv[1]))
    with contextlib.suppress(OSError):
        shim.rehearse(TASKS)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # A collection would write into every object that the forks share.
    gc.collect()
    gc.freeze()
    gc.disable()
    while task := os.read(0, ID_BYTES_MAX).decode():
        try:
            pid = os.fork()
        except OSError as error:
            with contextlib.suppress(OSError):
                os.write(0, f"{task} {error.errno}".encode())
            continue
        if pid == 0:
            _be_shim(task)


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
