"""Order a living shim to stop its task: a file says what, a signal says that there is something to read.

Nobody but the shim signals a task's processes while it lives. The last order counts, so a repeated one does no harm.
"""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Mapping
from typing import Any, Literal

from . import directory, tree


def order_stop(path: str, shim: Mapping[str, Any], *, grace: float, by: Literal["stop", "owner"] = "stop") -> bool:
    """Order the shim, of this identity, to stop the task whose directory is `path`; False if the shim is dead.

    `grace` is in seconds. Where the order can't be written, the shim is told by SIGTERM, which is a stop, with the
    grace that the task was started with.

    Raises:
        OSError: No descriptor is left.
    """
    number = signal.SIGTERM
    with contextlib.suppress(OSError):
        directory.write_whole(f"{path}/{directory.CONTROL}", {"do": "stop", "grace": grace, "by": by})
        number = signal.SIGUSR1
    return shim["boot"] == directory.boot_id() and tree.send_signal(shim["pid"], shim["start"], number)


def read_order(default_grace: float) -> tuple[str, float]:
    """Read by whom the task is to be stopped, whose directory is the present one, and with which grace.

    Somebody has said that there is an order; if it can't be read, it is the plain one.
    """
    order = None
    with contextlib.suppress(OSError):
        order = directory.read_map(directory.CONTROL)
    order = order or {}
    try:
        grace = float(order["grace"])
    except (KeyError, TypeError, ValueError, OverflowError):
        grace = math.nan
    return "owner" if order.get("by") == "owner" else "stop", grace if 0 <= grace < math.inf else default_grace
