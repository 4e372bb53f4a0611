"""Children for supervisors under test, policies that restart them at once or not soon, and what becomes of one."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from turnkeeper.runtime.restart import RestartPolicy
from turnkeeper.runtime.supervision.child import ChildStatistics
from turnkeeper.runtime.supervision.child_spec import ChildSpec, RestartKind
from turnkeeper.runtime.supervision.supervisor import Supervisor

AT_ONCE = RestartPolicy(intensity=3, period_seconds=60, backoff_first=0, backoff_max=0)
NEVER_SOON = RestartPolicy(intensity=3, period_seconds=600, backoff_first=300, backoff_max=300)


class Recorder:
    """Makes functions that are children: each notes when it begins and ends, and ends as it is told to."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._orders: dict[str, list[anyio.Event]] = {}
        self._how: dict[str, Exception | None] = {}

    def spec(self, name: str, restart: RestartKind = "permanent", *, fails: Exception | None = None) -> ChildSpec:
        """Give the spec of such a child, whose start may fail."""

        async def child(*, started: Callable[[], None]) -> None:
            if fails is not None:
                raise fails
            self.log.append(f"{name} begins")
            order = anyio.Event()
            self._orders.setdefault(name, []).append(order)
            started()
            try:
                await order.wait()
                if (error := self._how[name]) is not None:
                    raise error
            finally:
                self.log.append(f"{name} ends")

        return ChildSpec(name, child, restart=restart)

    def end(self, name: str, error: Exception | None = None) -> None:
        """Let the child of this name end."""
        self._how[name] = error
        self._orders[name][-1].set()

    async def begun(self, name: str, times: int) -> None:
        """Wait until the child has begun so often."""
        while len(self._orders.get(name, [])) < times:  # noqa: ASYNC110
            await anyio.sleep(0.001)


async def phase_comes(supervisor: Supervisor, name: str, phase: str) -> ChildStatistics:
    """Wait until the child is in the phase."""
    while True:
        for child in supervisor.children():
            if (child.name, child.phase) == (name, phase):
                return child
        await anyio.sleep(0.001)
