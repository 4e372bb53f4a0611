"""`turnkeeper journal cat`: the journal's lines as they lie on disk, without the filling between them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from turnkeeper.actors.client.asking import ask_writer_hello
from turnkeeper.storage.backend import require_journal
from turnkeeper.storage.filesystem import FileSystem
from turnkeeper.storage.index import shared_index
from turnkeeper.storage.index_records import Indexed
from turnkeeper.storage.reading import store_files
from turnkeeper.storage.scanning import (
    Batch,
    Hopper,
    Segment,
    Stretch,
    is_foreign,
    open_segment,
    segment_name,
    segment_numbers,
    stretch_finding,
)

from .commands import command
from .failures import Failure
from .invocation import Invocation
from .printing import print_line, print_note
from .store_view import StoreView, look_at


@command("cat", example="turnkeeper journal cat | jq -c 'select(.type == \"turn/end\")'")
@click.option("--batches", is_flag=True, help="The control lines instead: one a segment, one a batch.")
def cat(invocation: Invocation, batches: bool) -> None:
    """Print all events of all sessions, in the order in which they were stored.

    What is damaged is left out, told on stderr, and the exit code is 5.
    """
    store = invocation.store
    require_journal(store)
    if batches:
        if not ControlLines(store).print_all():
            raise Failure("damaged", "control lines are damaged", store, "turnkeeper journal verify shows where")
        return
    with look_at(store) as view:
        view.warn_of_damage()
        missing = _print_events(view)
    if missing:
        what = f"{missing} events can't be read"
        raise Failure("damaged", what, store, "turnkeeper journal verify shows which", missing=missing)


def _print_events(view: StoreView) -> int:
    """Print every event by its position; give how many positions have none that can be read."""
    after = expected = missing = 0
    while True:
        place = after
        events, after, _ = view.ask(lambda reader: reader.scan(place))  # noqa: B023 - asked at once
        for event in events:
            missing += event.position - expected - 1
            expected = event.position
            print_line(event.line)
        missing += after - expected
        expected = after
        if after == place:
            return missing


class ControlLines:
    """The control lines of one store. No further than the index of a living writer goes, if there is one."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._is_whole = True

    def print_all(self) -> bool:
        """Print them in order; False if some are damaged."""
        hello = ask_writer_hello(self._store)
        with store_files(self._store) as (fs, uuid):
            last: Indexed | None = None
            if hello is not None:
                with shared_index(f"{fs.root}/{hello['index']}") as index, index.reading() as snapshot:
                    last = index.read_indexed(snapshot)
                if last is None:
                    return True
            numbers = [number for number in segment_numbers(fs) if last is None or number <= last.segment]
            for number in numbers:
                self._print_segment(fs, uuid, number, last, is_newest=number == numbers[-1])
        return self._is_whole

    def _print_segment(self, fs: FileSystem, uuid: str, number: int, last: Indexed | None, *, is_newest: bool) -> None:
        try:
            segment = open_segment(fs, number, uuid)
        except OSError as error:
            self._tell(f"{segment_name(number)}: can't be opened: {error.strerror}")
            return
        try:
            for finding in segment.findings:
                self._tell(str(finding))
            if is_foreign(segment):
                return
            if segment.header is not None:
                print_line(segment.view.read(0, segment.header_length - 1))
            for batch in self._batches(segment, last):
                if is_newest and last is None and batch.end > segment.view.size:
                    print_note(f"{segment_name(number)} ends in batch {batch.header.number}, which is unfinished")
                    return
                print_line(segment.view.read(batch.offset, batch.header.length - 1))
        finally:
            fs.close(segment.handle)

    def _batches(self, segment: Segment, last: Indexed | None) -> Iterator[Batch]:
        """Yield the batches of one file, up to the last one that is indexed; tell the damage between them."""
        for hop in Hopper(segment.view, segment.begin()):
            if isinstance(hop, Stretch):
                self._tell(str(stretch_finding(hop)))
                continue
            if last is not None and (hop.segment, hop.offset) > (last.segment, last.offset):
                return
            yield hop

    def _tell(self, what: str) -> None:
        self._is_whole = False
        print_note(what)
