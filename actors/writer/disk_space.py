"""Whether what is asked of the writer is being refused for want of space; said once, and not for each refusal."""

from __future__ import annotations

from collections.abc import Sequence

from turnkeeper.storage.errors import StorageError, StoreFull
from turnkeeper.storage.requests import Result

from ..node_log import log


class DiskSpace:
    """What the results of commits say about the disk. `refusal` is the last one that was for space, while it is full.

    The log has a line when it is full, if there is space for that, and one when it isn't any more.
    """

    refusal: StoreFull | None = None

    def note(self, results: Sequence[Result]) -> None:
        """Look at a commit's results. What alone is refused for another reason says nothing of the disk."""
        if StoreFull in map(type, results):
            before, self.refusal = self.refusal, next(each for each in results if isinstance(each, StoreFull))
            if before is None:
                log(f"the disk is full, and appends are refused until there is space: {self.refusal}")
        elif self.refusal is not None and not all(isinstance(each, StorageError) for each in results):
            self.refusal = None
            log("there is space again, and appends are stored")
