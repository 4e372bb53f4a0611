"""Disk space for what the next commit adds to the index, taken before the batch is written, as the filling is.

An index transaction comes behind the batch's sync, when it is too late to refuse: one that found no space would end the
writer. So data.mdb has space allocated behind its last page, more than a commit can need, and a disk that doesn't give
it is full while nothing has been written yet. Readers write themselves into lock.mdb, through a map: a place there that
has no space kills them (SIGBUS), so it has all of it from the beginning.

The allocation changes no file's length and none of its bytes. Where a file system knows no allocation, nothing is
promised: then a full disk may end the writer, and its successor settles what became of the batch.
"""

from __future__ import annotations

import errno

from .filesystem import FileSystem
from .full_disk import lacks_space
from .index import READERS_MAX, Index
from .limits import KIB

AHEAD_BYTES = 256 * KIB
"""Space is taken while less than this lies behind the last page ..."""

STEP_BYTES = 512 * KIB
"""... until so much does."""

_PAGES_A_RUN = 8
"""A run changes a record of each table at most; each of them may copy a page, and split it."""

_PLAIN_RUN_BYTES = 80
"""What a run without a patch takes in a header; what is above that may be keys and blobs, ..."""

_BYTES_A_PAGE = 12
"""... of which each takes 38 bytes of the header at least, and changes three pages at most."""

_PAGES_A_COMMIT = 32
"""Roots, the pages that list free pages, and what else there is once in each commit."""

_RECORD_BYTES = 2 * KIB
"""What the records of one run's stream may grow to, but for its patch."""

_LOCK_BYTES = (READERS_MAX + 64) * 64
"""A line of the processor's cache for each reader, and a page for what stands before them."""

_FIRST_READERS_BYTES = 4 * KIB


class IndexRoom:
    """The space of the open `index` in `directory`."""

    def __init__(self, fs: FileSystem, directory: str, index: Index) -> None:
        self._fs = fs
        self._path = f"{directory}/data.mdb"
        self._index = index
        self._allocated = 0

    def make(self, runs: int, header_bytes: int) -> None:
        """Have space for a batch of so many runs and such a header. Raises OSError where there is none."""
        used = self._index.used_bytes()
        needed = bytes_needed(runs, header_bytes, used, self._index.page_bytes)
        if self._allocated - used < needed:
            self._extend(used + needed + STEP_BYTES)

    def keep_ahead(self) -> None:
        """Have some space ahead, so that most commits needn't make it. Raises OSError where there is none."""
        used = self._index.used_bytes()
        if self._allocated - used < AHEAD_BYTES:
            self._extend(used + STEP_BYTES)

    def _extend(self, end: int) -> None:
        # The first time from the beginning: an index of a former writer's may have holes.
        try:
            self._fs.allocate(self._path, self._allocated, end - self._allocated)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            # A limit on files' lengths: the index may well need less than is asked for.
        self._allocated = end


def bytes_needed(runs: int, header_bytes: int, used: int, page_bytes: int) -> int:
    """Give the most that an index of `used` bytes can grow by in one commit.

    It copies what it changes, so at most all pages there are, and adds what is new, in pages that are half full.
    """
    patches = max(0, header_bytes - runs * _PLAIN_RUN_BYTES)
    changed = runs * _PAGES_A_RUN + patches // _BYTES_A_PAGE
    everything = (2 * used + 4 * header_bytes + runs * _RECORD_BYTES) // page_bytes
    return (min(changed, everything) + _PAGES_A_COMMIT) * page_bytes


def make_room_for_readers(fs: FileSystem, directory: str) -> None:
    """Give lock.mdb the space that all readers together need, before LMDB opens it; or else that of the first ones.

    Raises OSError where not even LMDB itself could write there.
    """
    path = f"{directory}/lock.mdb"
    try:
        fs.allocate(path, 0, _LOCK_BYTES)
    except OSError as error:
        if not lacks_space(error):
            raise
        fs.allocate(path, 0, _FIRST_READERS_BYTES)  # it has that already, if it was ever opened
