"""Reading streams and the journal, from any process, served or not, changing nothing on disk.

A run is read whole and its CRC checked before a line of it is given. Extents and file names come from one snapshot of
the index, which is closed before anything is read; a file that is missing, or a line that isn't the expected one, is
looked up once more in a new snapshot and then given as a gap. A served file is never read beyond what is indexed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager

from .errors import Ambiguous, Corrupt, Deleted, NotFound
from .filesystem import FileSystem, LocalFileSystem
from .findings import Finding
from .format import is_id
from .hopping import JournalHop
from .index import Index, shared_index
from .index_records import Extent
from .index_tables import Transaction
from .limits import READ_CHUNK_BYTES
from .positions import PositionWalk
from .requests import Gap, Page, PositionPage, StoredEvent, StreamRow, Summary, check_bounds
from .row_filter import RowFilter
from .run_reader import RunReader, checked_lines
from .store import describe
from .trust import judge_index

ROWS_WALKED_MAX = 1024
"""After so many streams a list that asks for something special looks through all summaries at once."""

_CANDIDATES_MAX = 10_000


def resolve(index: Index, snapshot: Transaction, wanted: str) -> str:
    """Give the id that an id, a host's key or a unique prefix names.

    A stream that is deleted, or has no owner, answers to its whole id alone.

    Raises NotFound, which is Deleted if that is why; Ambiguous.
    """
    if not wanted:
        raise NotFound(wanted)
    if is_id(wanted) and index.snapshot_state(snapshot, wanted) is not None:
        return wanted
    named = index.stream_named(snapshot, wanted)
    if named is not None and not index.summary(snapshot, named).get("deleted"):
        return named
    candidates = index.streams_beginning(snapshot, wanted, _CANDIDATES_MAX, ownerless=False) if is_id(wanted) else []
    living = [candidate for candidate in candidates if not index.summary(snapshot, candidate).get("deleted")]
    if len(living) > 1:
        raise Ambiguous(wanted, living[:10])
    if not living:
        deleted = candidates if named is None else [named]
        raise Deleted(deleted[0]) if len(deleted) == 1 else NotFound(wanted)
    return living[0]


class _Filling:
    """A page while it is read: at most `limit` events, and none behind the one with which lines have `size` bytes."""

    __slots__ = ("limit", "page", "size")

    def __init__(self, page: Page, limit: int, size: int) -> None:
        self.page = page
        self.limit = limit
        self.size = size

    @property
    def is_full(self) -> bool:
        return len(self.page.events) >= self.limit or self.size <= 0

    def add(self, stored: StoredEvent) -> None:
        self.page.events.append(stored)
        self.size -= len(stored.line)


class Reader:
    """Reads one store. Make one with `open_reader`; for one thread at a time; close it."""

    def __init__(
        self, root: str, index: Index, fs: FileSystem, files: ExitStack, findings: list[Finding] | None = None
    ) -> None:
        self.root = root
        self.findings = findings or []
        self._index = index
        self._fs = fs
        self._files = files
        self._runs = RunReader(fs)
        self._walk = PositionWalk(fs, index, self._runs)

    # -- streams

    def resolve(self, wanted: str) -> str:
        """Give the id that `wanted` names: an id, a host's key, or a unique prefix. Raises NotFound, Ambiguous."""
        with self._index.reading() as snapshot:
            return resolve(self._index, snapshot, wanted)

    def row(self, wanted: str) -> StreamRow:
        """Give what is known of a stream. Raises NotFound, Ambiguous."""
        with self._index.reading() as snapshot:
            row = self._index.row(snapshot, resolve(self._index, snapshot, wanted))
        assert row is not None
        return row

    def ids_beginning(self, prefix: str, limit: int) -> list[str]:
        """List the ids of streams that begin so, in their order: deleted ones too, and those without owner."""
        with self._index.reading() as snapshot:
            return self._index.streams_beginning(snapshot, prefix, limit) if is_id(prefix) else []

    def read(
        self, id: str, *, start: int = 0, stop: int | None = None, limit: int = 1000, size_max: int | None = None
    ) -> Page:
        """Read events `start` to `stop` (without it), `limit` at most; what can't be read stands in `missing`.

        Ends behind the event with which the lines have `size_max` bytes. A fork's first events are its parent's, under
        the parent's id. A deleted beginning isn't given. Bounds beyond the end give fewer events or none; each answer
        tells the head. Raises NotFound for an unknown id, ValueError for a bound that is negative or no whole number.
        """
        check_bounds(start, stop, limit, size_max)
        head, summary = self._head(id)
        filling = _Filling(Page([], head, []), limit, sys.maxsize if size_max is None else size_max)
        end = head if stop is None else min(stop, head)
        self._read_into(filling, id, summary, max(start, summary.get("deleted_to") or 0), end)
        return filling.page

    def _read_into(self, filling: _Filling, id: str, summary: Summary, start: int, end: int) -> None:
        """Read into a page, first from the streams that this one was forked from."""
        for stream, place, stop in self._parts(id, summary, start, end):
            while place < stop and not filling.is_full:
                place = self._read_chunk(stream, place, stop, filling)

    def _parts(self, id: str, summary: Summary, start: int, end: int) -> list[tuple[str, int, int]]:
        """Say which stream has which of a fork's events, in order; there may be any number of forks of forks."""
        parts = []
        while start < end:
            own = int(summary.get("parent_seq") or 0)
            parts.append((id, max(start, own), end))
            if start >= own:
                break
            id, end = str(summary["parent"]), min(own, end)
            summary = self._head(id)[1]
        return parts[::-1]

    def read_last(self, id: str, last: int) -> Page:
        """Read the newest `last` events."""
        check_bounds(last)
        return self.read(id, start=max(0, self._head(id)[0] - last), limit=last)

    def _head(self, id: str) -> tuple[int, Summary]:
        with self._index.reading() as snapshot:
            state = self._index.snapshot_state(snapshot, id)
            if state is None:
                raise NotFound(id)
            return state.head, self._index.summary(snapshot, id)

    def _read_chunk(self, id: str, start: int, end: int, filling: _Filling) -> int:
        """Read some extents from one snapshot; give where to go on, unless the page is full."""
        page = filling.page
        wanted = min(end, start + filling.limit - len(page.events))
        extents = self._extents(id, start, wanted)
        place = start
        for extent, content in zip(extents, self._runs.contents(extents), strict=True):
            if extent.first > place:
                page.missing.append(Gap(place, extent.first - place, "they were lost by damage", "", 0))
            place = max(place, extent.first)
            stop = min(wanted, extent.first + extent.events)
            try:
                lines = self._lines(id, extent, content)
            except Corrupt as error:
                page.missing.append(Gap(place, stop - place, error.reason, error.path, error.offset))
            else:
                for seq in range(place, stop):
                    index = seq - extent.first
                    filling.add(StoredEvent(extent.position + index, id, seq, lines[index]))
                    if filling.is_full:
                        return seq + 1
            place = stop
        if not extents:
            page.missing.append(Gap(start, wanted - start, "they were lost by damage", "", 0))
            place = wanted
        return place

    def _extents(self, id: str, start: int, stop: int) -> list[Extent]:
        with self._index.reading() as snapshot:
            return self._index.extents(snapshot, id, start, stop, READ_CHUNK_BYTES)

    def _lines(self, id: str, extent: Extent, content: bytes) -> list[bytes]:
        """Check a run; read it once more from a new snapshot if it isn't where it was. Raises Corrupt."""
        try:
            return checked_lines(id, extent, content)
        except Corrupt:
            again = self._extents(id, extent.first, extent.first + 1)
            if not again:
                raise
            return self._runs.lines(id, again[0])

    def rows(
        self,
        limit: int,
        before: tuple[int, str] | None = None,
        *,
        include_deleted: bool = False,
        label: tuple[str, str] | None = None,
        cwd: Collection[str] | str = (),
        having: str | None = None,
        **equal: str,
    ) -> list[StreamRow]:
        """List streams with events, by recency of commit, below `before` (a row's position and id).

        What is asked for is as `BackendReader.rows` says.
        """
        rows: list[StreamRow] = []
        wanted = RowFilter(include_deleted, label, cwd, having, equal)
        with self._index.reading() as snapshot:
            for stream in self._candidates(snapshot, before, wanted):
                if len(rows) >= limit:
                    break
                row = self._index.row(snapshot, stream)
                if row is not None and wanted.fits(row.summary):
                    rows.append(row)
        return rows

    def _candidates(self, snapshot: Transaction, before: tuple[int, str] | None, wanted: RowFilter) -> Iterator[str]:
        """Walk the streams that may fit, newest first: by recency as long as that finds some soon."""
        for walked, place in enumerate(self._index.recent(snapshot, before)):
            if walked == ROWS_WALKED_MAX and wanted.is_selective:
                yield from (stream for _, stream in self._index.places_holding(snapshot, wanted, place))
                return
            if wanted.passes(self._index.summary_content(snapshot, place[1])):
                yield place[1]

    # -- the whole journal, by position

    def next_position(self) -> int:
        """Give the position that the next event will have."""
        with self._index.reading() as snapshot:
            indexed = self._index.read_indexed(snapshot)
        return 1 if indexed is None else indexed.next_position

    def scan(self, after: int, size_max: int = READ_CHUNK_BYTES) -> PositionPage:
        """Read events with positions above `after`, in order, until they add up to `size_max` bytes.

        Call again with the position that is reached: up to there nothing is left out that isn't among what is lost.
        Raises ReadFailed if what comes next can't be read now, and may be later.
        """
        return self._walk.page(after, size_max)

    def close(self) -> None:
        """Close the index and the files."""
        self._runs.close()
        self._files.close()


def open_reader(root: str, served_index: str | None = None) -> Reader:
    """Open the store at `root` to read.

    `served_index` is the index that a living writer named. Without it nobody serves: a cleanly closed index is read,
    and where there is none the headers are hopped into an index in memory. Raises StoreMissing, StoreRefused,
    NewerFormat, Failed.
    """
    files = ExitStack()
    with files:
        fs, store = files.enter_context(store_files(root))
        if served_index is None:
            return _open_unserved(root, fs, store, files)
        index = files.enter_context(shared_index(fs.path(served_index)))
        return Reader(root, index, fs, files.pop_all())
    raise AssertionError


@contextmanager
def store_files(root: str) -> Iterator[tuple[LocalFileSystem, str]]:
    """Hold a store's directory open, so that neither a long path nor a rename matters; give its files and its UUID."""
    store = describe(root).store
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield LocalFileSystem(f"/proc/self/fd/{directory}" if sys.platform == "linux" else root), store
    finally:
        os.close(directory)


def _open_unserved(root: str, fs: LocalFileSystem, store: str, files: ExitStack) -> Reader:
    judgement = judge_index(fs, store, "")
    record = judgement.record
    if judgement.trusted and record is not None and record.state == "clean":
        index = Index.open_readable(fs.path(record.directory), lock=False)
        files.callback(index.close)
        return Reader(root, index, fs, files.pop_all())
    index = Index.in_memory()
    files.callback(index.close)
    findings: list[Finding] = []
    end = JournalHop(fs, store, index, report=findings.append, witness=judgement.witness).run()
    if end.segment is not None:
        fs.close(end.segment.handle)
    return Reader(root, index, fs, files.pop_all(), findings)
