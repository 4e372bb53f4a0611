"""Which streams lose events when the journal ends before what its own index knows: a file was cut, replaced or removed.

The index is kept, as it alone still knows the heads; so it also says whose events stood in what is gone. Reads files,
changes nothing.
"""

from __future__ import annotations

from .filesystem import FileSystem
from .index import Index
from .index_records import Indexed
from .index_tables import Transaction
from .scanning import Batch, is_foreign, open_segment


def streams_that_lost(fs: FileSystem, store: str, index: Index, indexed: Indexed) -> list[str]:
    """Name the streams that had events in the batches up to `indexed`, the last one known, that are not there now."""
    last = _batches_from(fs, store, indexed.segment, indexed.offset, indexed.batch)
    if last is not None and last[0].header.h == indexed.h:
        return last[1]
    with index.reading() as snapshot:
        begin = _first_lost(fs, store, index, snapshot, indexed)
        found = []
        for position, stream in index.recent(snapshot, None):
            if position < begin:
                break
            if index.has_events_between(snapshot, stream, begin, indexed.next_position):
                found.append(stream)
    return found


def _first_lost(fs: FileSystem, store: str, index: Index, snapshot: Transaction, indexed: Indexed) -> int:
    """Give the position behind the last batch that can be reached from a mark of the index, or 1."""
    for segment, offset in index.marks_before(snapshot, indexed.next_position):
        found = _batches_from(fs, store, segment, offset, indexed.batch - 1)
        if found is not None:
            header = found[0].header
            return header.position + header.events
    return 1


def _batches_from(fs: FileSystem, store: str, number: int, offset: int, stop: int) -> tuple[Batch, list[str]] | None:
    """Hop from the batch that should stand at a place to the last that follows it, `stop` at most; None if none does.

    Gives also the streams of that batch whose bytes are damaged.
    """
    try:
        segment = open_segment(fs, number, store)
    except OSError:
        return None
    try:
        view = segment.view
        batch = None if is_foreign(segment) else view.batch_at(offset)
        if batch is None or batch.header.number > stop:
            return None
        while (following := view.batch_at(batch.end)) is not None and following.header.number <= stop:
            batch = following
        return batch, [run.stream for run in view.bad_runs(batch)]
    finally:
        fs.close(segment.handle)
