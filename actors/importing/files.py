"""The files of an import: finding them below a folder, and opening one without ever hanging on it.

What is no regular file (a FIFO, a socket, a device) or can't be read becomes a problem in the report, never an
exception and never a wait. Nothing on disk is changed. Content is not looked at here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .report import ImportReport

SUFFIX = ".jsonl"
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class SessionFile:
    """An open file, as long as it was when it was opened: what is appended meanwhile belongs to the next import."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self.size = size
        self._descriptor = descriptor

    def read_at(self, offset: int, length: int) -> bytes:
        """Read up to `length` bytes. Raises OSError, also once the file is closed."""
        return os.pread(self._descriptor, length, offset)

    def close(self) -> None:
        """Close the file; a late reader must not meet another one under the same number."""
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


def find_files(path: Path, report: ImportReport) -> Iterator[Path]:
    """Yield the regular file at the path, or all below the folder there, in the order of their names.

    Links are followed, each folder is entered once. Whatever is left out is reported.
    """
    entered: set[tuple[int, int]] = set()
    pending = [path]
    while pending:
        path = pending.pop()
        try:
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                if path.suffix.lower() == SUFFIX:
                    report.add_problem(path, 0, "a folder named like a session file")
                if (status.st_dev, status.st_ino) not in entered:
                    entered.add((status.st_dev, status.st_ino))
                    pending += (path / name for name in sorted(os.listdir(path), key=os.fsencode, reverse=True))
                continue
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in a path from the command line
            report.add_problem(path, 0, f"can't be read: {reason(error)}")
            continue
        if stat.S_ISREG(status.st_mode):
            yield path
        else:
            report.add_problem(path, 0, _not_regular(status.st_mode))


@contextmanager
def open_session_file(path: Path) -> Iterator[SessionFile]:
    """Open a regular file to read, without waiting for anything. Raises OSError, also for what is no regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    file = SessionFile(path, descriptor, status.st_size)
    try:
        if not stat.S_ISREG(status.st_mode):  # it changed after it was found
            raise OSError(_not_regular(status.st_mode))
        yield file
    finally:
        file.close()


def reason(error: Exception) -> str:
    """Return what the system says about a failed call, without the path, which the report names itself."""
    return (getattr(error, "strerror", None) or str(error)).lower()


def _not_regular(mode: int) -> str:
    return f"{_KINDS.get(stat.S_IFMT(mode), 'a special file')}, not a session file"
