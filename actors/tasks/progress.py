"""How far a task is, read from what it prints."""

from __future__ import annotations

from typing import Any


class ProgressReader:
    """Reads one task's output piece by piece and knows the latest progress; see `value`."""

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the output, cut anywhere."""

    def skip(self) -> None:
        """Take note that bytes were passed over: the line that comes next may be the rest of one."""

    def value(self, *, ended: bool = False) -> dict[str, Any] | None:
        """Give {percent?, current?, total?, unit?, phase?, message?, reported}, None if nothing told of progress.

        `ended` says that nothing will come any more, so that the last line is whole.
        """
        return None


class Pace:
    """Spaces a changing value: at most `per_second` are given out, and the last one always."""

    def __init__(self, per_second: float = 5.0) -> None:
        self._seconds = 1 / per_second

    def put(self, value: Any) -> None:
        """Take the newest value in place of one that still waits."""

    def due(self) -> float | None:
        """Say when `take` will give something, on the clock of its `now`; None if nothing waits."""
        return None

    def take(self, now: float, *, last: bool = False) -> Any | None:
        """Give the newest value, if one waits and it is time, or nothing will follow; else None."""
        return None
