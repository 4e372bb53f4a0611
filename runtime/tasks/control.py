"""Order a living shim to stop its task: a file says what, a signal says that there is something to read.

Nobody but the shim signals a task's processes while it lives. There is one order only, a stop, so several are as good
as one: whoever gave the first is whose stop it is, and the least grace counts, also if the shim read none of them yet.
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
    grace that the task was started with. One order at a time: the node's.

    Raises:
        OSError: No descriptor is left.
    """
    number = signal.SIGTERM
    with contextlib.suppress(OSError):
        first, least = _read(path) or (by, grace)
        order = {"do": "stop", "grace": min(grace, least), "by": first}
        directory.write_whole(f"{path}/{directory.CONTROL}", order)
        number = signal.SIGUSR1
    return shim["boot"] == directory.boot_id() and tree.send_signal(shim["pid"], shim["start"], number)


def read_order(default_grace: float) -> tuple[str, float]:
    """Read by whom the task whose directory is the present one is to be stopped, and with which grace.

    Somebody has said that there is an order; if it can't be read, it is the plain one.
    """
    order = None
    with contextlib.suppress(OSError):
        order = _read(".")
    return order or ("stop", default_grace)


def _read(path: str) -> tuple[str, float] | None:
    order = directory.read_map(f"{path}/{directory.CONTROL}") or {}
    try:
        grace = float(order["grace"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return ("owner" if order.get("by") == "owner" else "stop", grace) if 0 <= grace < math.inf else None
