"""Notes of a story: the words of a chaos round's notes, kept in memory, until their writer is dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnkeeper.benchmarks.chaos.notes import Note, Notebook

if TYPE_CHECKING:
    from .processes import Machine, Process


class MemoryNotebook(Notebook):
    """The notes of one writer in a process, or of who tells the story, among all notes of its story."""

    def __init__(self, machine: Machine, process: Process | None, notes: list[Note], name: str) -> None:
        self.name = name
        self._machine = machine
        self._process = process
        self._notes = notes
        self._lines = 0

    @property
    def counts(self) -> bool:
        """Say whether what is noted now counts: the dead note nothing."""
        return self._process is None or self._process.is_alive

    def close(self) -> None:
        """Do nothing: there is no file."""

    def _write(self, what: str, **members: Any) -> None:
        if self.counts:
            self._lines += 1
            place = {"file": self.name, "line": self._lines}
            self._notes.append({"what": what, "at": self._machine.time_ns() / 1e9, **members, **place})
