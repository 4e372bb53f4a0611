"""How a full disk is told from one that fails, and what an opening says on it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from .errors import Failed, StoreFull
from .filesystem import FileSystem
from .limits import RESERVE_BYTES

NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a system says of a full disk, a quota and a limit that are used up."""


def lacks_space(error: OSError) -> bool:
    """Say whether an error means that a disk is full, or a quota or a limit used up."""
    return error.errno in NO_SPACE


@contextmanager
def full_disk_as_refusal(fs: FileSystem) -> Iterator[None]:
    """Let what opens a store say that the disk is full in the same words as a commit does. Raises StoreFull.

    What fails in an index or a database may be damage, too; but that shows again when the reserve isn't used up.
    """
    try:
        yield
    except OSError as error:
        if not lacks_space(error):
            raise
        raise StoreFull(fs.free_bytes(), RESERVE_BYTES) from error
    except Failed as error:
        if fs.free_bytes() >= RESERVE_BYTES:
            raise
        raise StoreFull(fs.free_bytes(), RESERVE_BYTES) from error
