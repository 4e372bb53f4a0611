"""xoscar's actors, as exchanges (`driving.exchanges`): on asyncio, in the process of whoever calls them or in another.

Importing this needs xoscar, which is no dependency. Its mailboxes have no bounds.
"""

from __future__ import annotations

from functools import partial
from multiprocessing.connection import Connection

import anyio
import xoscar

from ..driving.exchanges import time_asks, time_tells
from ..measuring.measured_process import stand_by

_ADDRESS = "127.0.0.1"


class XoscarTaker(xoscar.Actor):  # type: ignore[misc]  # it has no types
    """Does what our Taker does."""

    def __init__(self) -> None:
        super().__init__()
        self._taken = 0

    async def take(self, text: str) -> None:
        """Do nothing but count."""
        self._taken += 1

    async def echo(self, text: str) -> str:
        """Give it back."""
        return text

    async def taken(self) -> int:
        """Tell how many were taken since this was asked last."""
        taken, self._taken = self._taken, 0
        return taken


def tell_xoscar(starter: Connection, directory: str) -> None:
    """Tell an actor of the same loop."""
    anyio.run(_tell, starter, backend="asyncio")


def ask_xoscar(starter: Connection, directory: str) -> None:
    """Ask an actor in another process."""
    anyio.run(_ask, starter, backend="asyncio")


async def _tell(starter: Connection) -> None:
    async with await xoscar.create_actor_pool(_ADDRESS, n_process=0) as pool:
        ref = await xoscar.create_actor(XoscarTaker, address=pool.external_address)
        await stand_by(starter, partial(time_tells, tell=ref.take.tell, taken=ref.taken))


async def _ask(starter: Connection) -> None:
    async with await xoscar.create_actor_pool(_ADDRESS, n_process=1) as pool:
        ref = await xoscar.create_actor(XoscarTaker, address=next(iter(pool.sub_processes)))
        await stand_by(starter, partial(time_asks, ask=ref.echo))
