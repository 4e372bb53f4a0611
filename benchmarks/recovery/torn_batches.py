"""A torn tail, as a writer leaves it that dies in the middle of its write: a batch of which the second half is missing.

The batch is a good successor to the last one, with that one's lines, so that nothing but its missing half is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from turnkeeper.storage.format import (
    BATCH_PREFIX,
    FILLING,
    BatchHeader,
    encode_batch_header,
    encode_run,
    parse_batch_header,
)
from turnkeeper.storage.limits import BATCH_BYTES_MAX, HEADER_BYTES_MAX
from turnkeeper.storage.store import JOURNAL_DIRECTORY

_READ_BYTES: Final = 1024 * 1024
_LAST_BYTES_MAX: Final = BATCH_BYTES_MAX + HEADER_BYTES_MAX + 16 * _READ_BYTES
"""How far from a file's end its last batch begins at most, filling included."""


def tear_next_batch(store: Path) -> int:
    """Write half of one more batch behind the last one of a journal that nobody writes; give how many bytes that is.

    Raises RuntimeError where there is no batch at the journal's end.
    """
    path = max((store / JOURNAL_DIRECTORY).glob("*.jsonl"))
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        tail, begin = b"", size
        while (start := tail.rfind(FILLING + BATCH_PREFIX)) < 0:
            if begin == 0 or len(tail) > _LAST_BYTES_MAX:
                raise RuntimeError(f"no batch stands at the end of {path}")
            step = min(_READ_BYTES, begin)
            begin = file.seek(begin - step)
            tail = file.read(step) + tail
        batch = tail[start + 1 :].rstrip(FILLING) + FILLING
        file.seek(begin + start + 1 + len(batch))
        return file.write(_successor(batch))


def _successor(batch: bytes) -> bytes:
    """Give the first half of a batch that could follow this one, with the same lines."""
    line, _, lines = batch.partition(FILLING)
    header: BatchHeader = parse_batch_header(line + FILLING)
    runs = [encode_run(run._replace(seq=run.seq + run.events)) for run in header.runs]
    position = header.position + header.events
    next_line, _ = encode_batch_header(header.number + 1, position, header.time, header.size, runs, header.h)
    return (next_line + lines[: len(lines) // 2]).rstrip(FILLING)
