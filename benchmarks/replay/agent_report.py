"""What an agent says of a turn that it has replayed."""

from __future__ import annotations

from typing import TypedDict


class TurnReport(TypedDict):
    """How many events the turn had, and when each flush began and ended, by the monotonic clock of the machine."""

    events: int
    flushes: list[tuple[float, float]]
