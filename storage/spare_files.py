"""Small files that can be written anew on a disk without any space left.

Beside each lies a spare one, made while there was space. On a full disk the new content goes into the spare, which
needs none, and the two change names, atomically; so it can be done any number of times. Meant for what must be said
when a store is opened and closed: whose it is, and which index may be trusted.
"""

from __future__ import annotations

import contextlib
import errno
import os

from .filesystem import FileSystem, write_whole_file
from .full_disk import lacks_space

SPARE_BYTES = 4096
"""A spare's length: a block of most file systems. Behind the content stand blanks, which JSON doesn't mind."""


def rewrite_file(fs: FileSystem, path: str, content: bytes) -> None:
    """Do as `write_whole_file`, also on a full disk if there was space before. Raises OSError.

    `content` has SPARE_BYTES at most, and blanks behind it are no harm.
    """
    spare = f"{path}.spare"
    try:
        write_whole_file(fs, path, content)
    except OSError as error:
        if not (lacks_space(error) and fs.exists(spare)):
            raise
        _change_names(fs, path, spare, content)
    else:
        with contextlib.suppress(OSError):
            _make_spare(fs, spare)


def _make_spare(fs: FileSystem, spare: str) -> None:
    if not fs.exists(spare):
        handle = fs.open(spare, create=True)
        try:
            fs.write(handle, 0, b" " * SPARE_BYTES)
        finally:
            fs.close(handle)


def _change_names(fs: FileSystem, path: str, spare: str, content: bytes) -> None:
    # What is the spare now may be the file itself on the disk, if the names' last change isn't there yet.
    fs.sync_directory(os.path.dirname(path))
    handle = fs.open(spare, write=True)
    try:
        fs.write(handle, 0, content.ljust(fs.size(handle)))
        fs.sync(handle)
    finally:
        fs.close(handle)
    try:
        fs.exchange(path, spare)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        fs.replace(spare, path)  # the next spare is made when there is space
    fs.sync_directory(os.path.dirname(path))
