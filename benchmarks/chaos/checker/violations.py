"""What is wrong: which promise, of what, and how it was broken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Violation(NamedTuple):
    """A broken promise.

    `subject` is whose: a stream, a task's key, a follower, a process. `seq` is the number of the event that it is
    about, `note` the note; either may be missing. `journal` and `notes` are lines around those, as they stand on disk.
    """

    promise: str
    subject: str
    says: str
    seq: int | None = None
    note: Mapping[str, Any] | None = None
    journal: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def as_map(self) -> dict[str, Any]:
        """Give it as plain values."""
        where = {} if self.note is None else {name: self.note[name] for name in ("file", "line", "at")}
        return {
            "promise": self.promise,
            "subject": self.subject,
            "says": self.says,
            "seq": self.seq,
            **where,
            "journal": list(self.journal),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return f"{self.promise}: {self.subject}: {self.says}"
