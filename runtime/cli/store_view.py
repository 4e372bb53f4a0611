"""A store as the reading commands see it: served or not, on a disk that can't be written, never changed by a look.

While nobody serves the store its clean index is read without a lock, and somebody may begin to serve it at any moment:
so each answer counts only if still nobody does afterwards, and is otherwise asked for again from the index that the
writer names. No event loop is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from turnkeeper.actors.client.asking import ask_writer_hello
from turnkeeper.storage.backend import BackendReader, open_reader
from turnkeeper.storage.errors import Deleted
from turnkeeper.storage.lock import store_is_held
from turnkeeper.storage.requests import StreamRow

from .printing import places, print_note

Answer = TypeVar("Answer")


class StoreView:
    """An open view of the store at `path`. Make one with `look_at`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._open()

    @property
    def is_served(self) -> bool:
        """Say whether a writer serves the store."""
        return self.served_index is not None

    def ask(self, question: Callable[[BackendReader], Answer]) -> Answer:
        """Put a question to the store. Raises what reading raises."""
        while True:
            try:
                answer = question(self.reader)
            except Exception:
                if self.is_served or not store_is_held(self.path):
                    raise
            else:
                if self.is_served or not store_is_held(self.path):
                    return answer
            self.close()
            self._open()

    def damaged_streams(self) -> set[str]:
        """Name the streams of which events are known to be lost, where no writer has written that down yet."""
        return {stream for finding in self.reader.findings for stream in finding.streams}

    def warn_of_damage(self) -> None:
        """Say on stderr that the opening found damage, if it did."""
        if self.reader.findings:
            what = f"warning: the journal is damaged in {places(len(self.reader.findings))}"
            print_note(f"{what}: {self.path}: turnkeeper journal verify shows where")

    def close(self) -> None:
        """Close the index and the files."""
        self.reader.close()

    def _open(self) -> None:
        hello = ask_writer_hello(self.path)
        self.served_index: str | None = None if hello is None else hello["index"]
        self.reader = open_reader(self.path, self.served_index)


@contextmanager
def look_at(path: str) -> Iterator[StoreView]:
    """Open a view of the store. Raises StoreMissing, StoreRefused, NewerFormat, NodeNotAnswering."""
    view = StoreView(path)
    try:
        yield view
    finally:
        view.close()


def find_session(path: str, wanted: str) -> StreamRow:
    """Look up the session that is meant, deleted or not. Raises NotFound, Ambiguous, and what `look_at` does."""
    with look_at(path) as view:
        try:
            return view.ask(lambda reader: reader.row(wanted))
        except Deleted as error:
            id = error.wanted
            return view.ask(lambda reader: reader.row(id))
