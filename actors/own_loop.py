"""End a process of ours, the node or the writer, whose event loop doesn't turn, so that the ordinary restart follows.

Where it was stuck goes into node.log. A loop that waits for a disk is left to it: another process would wait as well.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable

from turnkeeper.runtime.watchdog import PROCESS_BLOCKED_SECONDS, Blockage, Watchdog, is_traced

from .node_log import log


async def watch_own_loop(sleep: Callable[[float], Awaitable[None]]) -> None:
    """Watch the loop that this runs in, until cancelled; `sleep` is the loop's own."""
    await Watchdog(PROCESS_BLOCKED_SECONDS, _end, excuse_disk=True).watch(sleep)


def _end(blockage: Blockage) -> None:
    if not is_traced():
        log(f"{blockage}, and this process is ended; where it was:\n{blockage.stacks.rstrip()}")
        # As if somebody else had killed it: nothing about the index is to be concluded from it.
        os.kill(os.getpid(), signal.SIGKILL)
