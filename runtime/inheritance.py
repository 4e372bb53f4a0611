"""What a forked child must not keep: the sockets and locks of its parent's actors.

As long as a child had them, its parent's death would end neither a connection nor a lock, and others would wait for an
actor that is gone. Programs that are started have none of it: every descriptor of ours is closed on exec.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Closeable(Protocol):
    """A socket or an open file; closing it again is no error."""

    def close(self) -> None: ...


def close_in_children(resource: Closeable) -> None:
    """Have it closed in every forked child, as long as it is alive here."""
    _resources.add(resource)


def _close_all() -> None:
    for resource in list(_resources):
        resource.close()
    _resources.clear()


_resources: weakref.WeakSet[Closeable] = weakref.WeakSet()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all)
