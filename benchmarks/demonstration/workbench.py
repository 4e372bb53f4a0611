"""Where the tasks of one column have their files: what agents note of them, what they witness, and what they print.

All of it lies outside the store, but for what the store's tasks print. The directory of it all marks the processes of
the column's tasks, each with its name behind that.
"""

from __future__ import annotations

import os
from pathlib import Path

from .planned_tasks import MARK, PlannedTask


class Workbench:
    """The files of a column's tasks, in `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.notes = root / "notes"
        self.logs = root / "logs"
        self.outputs = root / "outputs"
        self.witnesses = root / "witnesses"
        self.hold = root / "hold"

    def prepare(self) -> int:
        """Make the directories, and the FIFO that is read by what lasts; give the descriptor that holds that open."""
        for directory in (self.root, self.notes, self.logs, self.outputs, self.witnesses):
            directory.mkdir()
        os.mkfifo(self.hold, 0o600)
        return os.open(self.hold, os.O_RDWR | os.O_CLOEXEC)

    @property
    def mark(self) -> str:
        """Give what marks this column's processes, as it stands in their environments."""
        return f"{MARK}={self.root}"

    def environment(self, name: str) -> dict[str, str]:
        """Give the variable that marks a task's processes."""
        return {MARK: f"{self.root}/{name}"}

    def argv(self, name: str, task: PlannedTask) -> list[str]:
        """Give a task's command."""
        return task.argv(name, self.witnesses / name, self.hold)


def task_name(session: str, turn: int) -> str:
    """Give the name of the task of a session's turn; it is also its key."""
    return f"{session}-turn-{turn:03d}"
