"""Who owns tasks that are not to outlive their owner, and when such an owner is gone.

An owner is a runtime, known by its token. It is gone when it says so, or its process has ended; when only its
connection has, it may come back for a while. One that an earlier node knew is waited for as long as its process lives.
Part of the node, on trio.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import trio

from turnkeeper.runtime.identity import is_gone

from ...protocol import PATIENCE_SECONDS

COME_BACK_SECONDS: Final = PATIENCE_SECONDS
"""How long an owner whose connection ended may take to attach again, while its process lives."""


class Owner(NamedTuple):
    """The runtime behind a connection: its token, and its process {boot, pid, start, host}; pid 0 is unseen here."""

    token: str
    process: Mapping[str, Any]


class Owners:
    """The owners that may come back. `is_attached` says whether a token has a connection; `gone` is told who hasn't.

    What waits runs in `nursery`.
    """

    def __init__(self, nursery: trio.Nursery, is_attached: Callable[[str], bool], gone: Callable[[str], None]) -> None:
        self._nursery = nursery
        self._is_attached = is_attached
        self._gone = gone
        self._deadlines: dict[str, float] = {}

    def is_awaited(self, token: str | None) -> bool:
        """Say whether this owner's connection has ended, and it is waited for, but not for ever."""
        return token in self._deadlines

    def await_return(self, owner: Owner) -> None:
        """Wait for an owner whose connection has ended to come back, for a while, or for its process to end."""
        is_awaited = owner.token in self._deadlines
        self._deadlines[owner.token] = trio.current_time() + COME_BACK_SECONDS
        if not is_awaited:
            self._nursery.start_soon(self._wait_for_return, owner)

    def await_end(self, owner: Owner) -> None:
        """Wait until the process of an owner that an earlier node knew has ended.

        Where it can't be seen from here, as in another pid namespace, it has to attach soon.
        """
        if owner.process.get("pid") == 0:
            self.await_return(owner)
        else:
            self._nursery.start_soon(self._wait_for_end, owner)

    async def _wait_for_return(self, owner: Owner) -> None:
        has_ended = False
        try:
            while not has_ended and trio.current_time() < self._deadlines[owner.token]:
                with trio.move_on_at(self._deadlines[owner.token]):
                    await _wait_gone(owner.process)
                    has_ended = True
        finally:
            del self._deadlines[owner.token]
        if has_ended or not self._is_attached(owner.token):
            self._gone(owner.token)

    async def _wait_for_end(self, owner: Owner) -> None:
        await _wait_gone(owner.process)
        self._gone(owner.token)


async def _wait_gone(process: Mapping[str, Any]) -> None:
    """Wait until a process has ended; for ever if that can't be seen from here."""
    pid = process.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        await trio.sleep_forever()
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        pidfd = None
    try:
        # Opened first, looked at second: a pid that is another's by now is no reason to wait.
        if pidfd is None or is_gone(process):
            if not is_gone(process):
                await trio.sleep_forever()  # another host's, or another namespace's
            return
        await trio.lowlevel.wait_readable(pidfd)
    finally:
        if pidfd is not None:
            os.close(pidfd)
