"""What an agent says of a turn that it has replayed."""

from __future__ import annotations

from typing import TypeAlias, TypedDict

Span: TypeAlias = tuple[float, float]
"""When something began and when it ended, by the monotonic clock of the machine."""


class TurnReport(TypedDict):
    """How many events the turn had, each flush, and each start of a task, from its request until it ran."""

    events: int
    flushes: list[Span]
    starts: list[Span]
