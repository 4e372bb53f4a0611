"""Walking the journal by position: all events behind one, whosever they are, and what of them is lost.

The headers say which events have which positions. Where positions are missing between two good headers, or at the end,
the index is asked what stood there: what it still finds is read as ever, and all else is lost, and told. Bytes that
can't be read now, and may be later, end the walk before them. So no position is passed over without a word.
"""

from __future__ import annotations

from collections.abc import Iterator

from .errors import Corrupt, ReadFailed
from .filesystem import FileSystem
from .index import Index
from .index_records import Extent, Indexed, placed_runs
from .requests import Gap, LostEvents, PositionPage, StoredEvent
from .run_reader import RunReader
from .scanning import Batch, SegmentView, segment_name, segment_numbers

LOST_WITHOUT_A_TRACE = "neither a batch nor the index says what stood there, so any session may have lost them"


PLACES_KEPT = 64
"""So many followers of one reader, each at a position of its own, find the place of theirs without hopping to it."""


class PositionWalk:
    """Walks page by page, each from one snapshot of the index, and goes on where one of the last pages ended."""

    def __init__(self, fs: FileSystem, index: Index, runs: RunReader) -> None:
        self._fs = fs
        self._index = index
        self._runs = runs
        self._places: dict[int, tuple[int, int]] = {}

    def page(self, after: int, size_max: int) -> PositionPage:
        """Give what has positions above `after`, in order, until it adds up to `size_max` bytes.

        Raises ReadFailed if the first of it can't be read now, and may be later.
        """
        with self._index.reading() as snapshot:
            indexed = self._index.read_indexed(snapshot)
            mark = self._index.mark_before(snapshot, after + 1)
        if indexed is None or after + 1 >= indexed.next_position:
            return PositionPage([], after, [])
        begin = self._places.get(after, mark or (0, 0))
        filling = _Filling(self._fs, self._index, self._runs, after, size_max)
        try:
            self._keep(filling.fill(indexed, begin))
        except OSError as error:
            if filling.reached == after:
                what = f"the events from position {after + 1} on can't be read now ({error.strerror})"
                raise ReadFailed(what) from error
        return PositionPage(filling.events, filling.reached, filling.lost)

    def _keep(self, end: tuple[int, int, int] | None) -> None:
        """Remember where a page ended: who follows asks for what is behind it, others who follow may still have to."""
        if end is not None:
            reached, segment, place = end
            self._places.pop(reached, None)
            self._places[reached] = (segment, place)
            if len(self._places) > PLACES_KEPT:
                del self._places[next(iter(self._places))]


class _Filling:
    """One page while it is read: what it has, and the position up to which nothing is left out."""

    def __init__(self, fs: FileSystem, index: Index, runs: RunReader, reached: int, size_max: int) -> None:
        self.events: list[StoredEvent] = []
        self.lost: list[LostEvents] = []
        self.reached = reached
        self._fs = fs
        self._index = index
        self._runs = runs
        self._left = size_max

    def fill(self, indexed: Indexed, begin: tuple[int, int]) -> tuple[int, int, int] | None:
        """Walk from a segment and an offset on; give the place behind the last whole batch. Raises OSError."""
        last = (indexed.segment, indexed.offset)
        segment, place = begin
        number, cursor = segment, None
        for number in (each for each in segment_numbers(self._fs) if segment <= each <= indexed.segment):
            view = self._view(number)
            place = place if number == segment else 0
            while view is not None and (number, place) <= last:
                batch = view.batch_at(place) or view.next_batch(place)
                if batch is None or (number, batch.offset) > last:
                    break
                if batch.header.position > self.reached + 1:
                    self._fill_gap(batch.header.position, number, place)
                if self._left > 0:
                    self._take_batch(batch)
                    place = batch.end
                    cursor = (self.reached, number, place)
                if self._left <= 0:
                    return cursor
        self._fill_gap(indexed.next_position, number, place)
        return cursor

    def _take_batch(self, batch: Batch) -> None:
        header = batch.header
        for run, offset, position in placed_runs(header, batch.offset):
            if run.events and position + run.events > self.reached + 1:
                place = (run.seq, batch.segment, offset, run.size, run.events, run.epoch, run.crc, position)
                self._take_run(run.stream, Extent(*place))
        self.reached = max(self.reached, header.position + header.events - 1)

    def _take_run(self, stream: str, extent: Extent) -> None:
        """Take a run's events that aren't taken yet, or note that they are lost. Raises OSError."""
        known = max(0, self.reached + 1 - extent.position)
        try:
            lines = self._runs.read(stream, extent)
        except Corrupt as error:
            count = extent.events - known
            gap = Gap(extent.first + known, count, error.reason, error.path, error.offset)
            self.lost.append(LostEvents(extent.position + known, count, stream, gap))
        else:
            self._left -= extent.size
            for place in range(known, extent.events):
                self.events.append(StoredEvent(extent.position + place, stream, extent.first + place, lines[place]))
        self.reached = extent.position + extent.events - 1

    def _fill_gap(self, stop: int, number: int, place: int) -> None:
        """Take what has the positions up to `stop` (without it), for which no good header stands. Raises OSError."""
        if stop <= self.reached + 1:
            return
        for stream, extent in self._indexed_between(self.reached + 1, stop):
            if extent.position + extent.events <= self.reached + 1:
                continue
            if self._left <= 0:
                return
            self._lose(extent.position, number, place)
            self._take_run(stream, extent)
        if self._left > 0:
            self._lose(stop, number, place)

    def _indexed_between(self, begin: int, end: int) -> Iterator[tuple[str, Extent]]:
        """List whose runs have these positions, as the index knows them, in their order."""
        found = []
        with self._index.reading() as snapshot:
            for position, stream in self._index.recent(snapshot, None):
                if position < begin:
                    break
                extents = self._index.all_extents(snapshot, stream)
                found += [
                    (each.position, stream, each)
                    for each in extents
                    if each.position < end and each.position + each.events > begin
                ]
        yield from ((stream, extent) for _, stream, extent in sorted(found))

    def _lose(self, stop: int, number: int, place: int) -> None:
        """Note that nobody knows whose the events up to `stop` (without it) are."""
        count = stop - self.reached - 1
        if count > 0:
            gap = Gap(0, count, LOST_WITHOUT_A_TRACE, segment_name(number), place)
            self.lost.append(LostEvents(self.reached + 1, count, "", gap))
            self.reached = stop - 1

    def _view(self, number: int) -> SegmentView | None:
        """Open a segment; None if it went away. Raises OSError."""
        try:
            handle = self._runs.handle(number)
        except FileNotFoundError:
            return None
        return SegmentView(self._fs, number, handle, self._fs.size(handle))
