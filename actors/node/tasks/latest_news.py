"""The latest values of one task, for who listens to it: how much it has printed, how far it is. Part of the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..switchboard import Switchboard

PROGRESS: Final = "task/progress"
OUTPUT: Final = "task/output"


class LatestNews:
    """What is told of a task; `place` gives the number of its next record, behind which a value is old."""

    def __init__(self, task: str, switchboard: Switchboard, place: Callable[[], int]) -> None:
        self._task = task
        self._switchboard = switchboard
        self._place = place
        self._told: dict[str, dict[str, Any]] = {}

    def tell(self, output_bytes: int, progress: dict[str, Any] | None, time: int) -> None:
        """Tell what is another value than before; all of it to whoever listens from now on."""
        if not self._switchboard.is_wanted(self._task):
            self._told.clear()
            return
        for type, value in ((OUTPUT, {"output_bytes": output_bytes}), (PROGRESS, progress)):
            if value is not None and self._told.get(type) != value:
                self._told[type] = value
                news = {"seq": self._place(), "time": time, "data": value}
                self._switchboard.publish(self._task, type, news)
