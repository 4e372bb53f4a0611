"""When a task has been silent for too long: the decision to tell, once a silence, and nothing else.

A task is silent while the size of its output stays the same. Nothing here looks at a clock or a file: whoever watches
says what time it is and how long the output was, on any clock that only goes on. What is told is for the caller to
record; told what was recorded before, a watch that takes over doesn't tell of the same silence twice.
"""

from __future__ import annotations


class StallWatch:
    """Watches one task's output for silences of `silent_seconds` and more.

    `since` is when the output last changed, at the size `output_bytes`: the task's start, or, at an adoption, the
    time of the last write as far as it is known. `told` is the size at which a silence was told of last, None if never.
    """

    def __init__(self, silent_seconds: float, since: float, output_bytes: int = 0, *, told: int | None = None) -> None:
        self._silent_seconds = silent_seconds
        self._since = since
        self._output_bytes = output_bytes
        self._is_told = told == output_bytes

    @property
    def due(self) -> float | None:
        """When to look next at the latest; None once this silence is told, so that any later look will do."""
        return None if self._is_told else self._since + self._silent_seconds

    def look(self, now: float, output_bytes: int) -> float | None:
        """Take what was seen; give for how many seconds the task has been silent if that is to be told now.

        A size that shrank is a change like any other: whoever cuts its output is at work.
        """
        if output_bytes != self._output_bytes:
            self._output_bytes = output_bytes
            self._since = now
            self._is_told = False
            return None
        silent = now - self._since
        if self._is_told or silent < self._silent_seconds:
            return None
        self._is_told = True
        return silent
