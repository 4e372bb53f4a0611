"""What an import tells its user: the totals, and every line that could not be taken as it stands.

A report is one mutable object for a whole import, passed to everything that reads or stores. It is bounded: beyond
`PROBLEMS_MAX` problems it only counts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROBLEMS_MAX = 100_000
"""Problems kept one by one; a file of garbage must not fill the memory."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that was damaged, left out or changed. `line` counts from 1; 0 means the file as a whole."""

    file: str
    line: int
    why: str


@dataclass(slots=True)
class ImportReport:
    """Totals of an import.

    The reader adds `problems`, and to `skipped` each record that repeats an earlier one of its session. Whoever stores
    adds `sessions`, `events` (those really appended), and to `skipped` each event that the store had already.
    """

    sessions: int = 0
    events: int = 0
    skipped: int = 0
    problems: list[Problem] = field(default_factory=list)
    problems_left_out: int = 0

    def add_problem(self, file: Path, line: int, why: str) -> None:
        """Note a problem at a line of the file (from 1), or with the whole file (0)."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(printable(file), line, why))
        else:
            self.problems_left_out += 1

    def totals(self) -> dict[str, Any]:
        """Return the totals as the command line prints them with ``--json``."""
        damaged = [{"file": each.file, "line": each.line, "why": each.why} for each in self.problems]
        totals: dict[str, Any] = {
            "sessions": self.sessions,
            "events": self.events,
            "skipped": self.skipped,
            "damaged_lines": damaged,
        }
        if self.problems_left_out:
            totals["damaged_lines_left_out"] = self.problems_left_out
        return totals


def printable(path: Path) -> str:
    """Return the path as text that can be printed and encoded, whatever bytes its name is made of."""
    return os.fsencode(path).decode("utf-8", "replace")
