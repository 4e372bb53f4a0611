"""The wish that a task be stopped: recorded first, then given to whoever can stop it. Part of the node, on trio."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import trio

from ...tasks import records
from .ledger import Ledger

STOP_SECONDS: Final = 10.0
"""How long a stop is given beyond its grace: what KILL doesn't end may be in a system call that nothing interrupts."""

By = Literal["stop", "owner"]


class Wish(NamedTuple):
    """Who wishes that the task be stopped, and the seconds until KILL."""

    by: By
    grace: float


class StopWish:
    """The newest wish that one task be stopped, and what has become of it.

    A shim that was given it may be killed before it has stopped everything; then what it left is stopped.
    """

    def __init__(self) -> None:
        self.newest: Wish | None = None
        self.given_to: Literal["shim", "leftovers"] | None = None
        self.is_recorded = False
        self._give_up_at = 0.0

    def make(self, wish: Wish) -> None:
        """Wish that it be stopped; a later wish may have another grace."""
        self.newest, self.given_to = wish, None
        self._give_up_at = trio.current_time() + wish.grace + STOP_SECONDS

    @property
    def has_hope(self) -> bool:
        """Say whether there is a wish that may come true soon."""
        return self.newest is not None and trio.current_time() < self._give_up_at

    async def record(self, ledger: Ledger, time: int) -> None:
        """Record that the task is to be stopped, before anything is done for that; the first wish counts."""
        if self.newest is None or self.is_recorded:
            return
        if ledger.summary.get("state") != "stopping":
            await ledger.record(records.stopping(ledger.id, time, by=self.newest.by, grace=self.newest.grace))
        self.is_recorded = True
