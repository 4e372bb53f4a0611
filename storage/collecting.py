"""Removing blobs that no run names: what was put by clients that died before they named it. The writer's alone.

A blob may be put long before it is named, so one is removed only when it is old, by the time of its last put; a client
whose blob was removed nevertheless is told so at commit, and puts it again. Nothing is removed where the journal was
found damaged, as its lost headers may have named it: the file `blobs/keep` says so, to later writers too, until
somebody removes it.

A round through all blobs goes in looks of bounded length, between commits: its cost never depends on what is stored.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from .blobs import is_digest
from .filesystem import FileSystem, write_whole_file
from .limits import BLOB_GRACE_SECONDS, BLOB_LOOK_SECONDS, BLOB_ROUND_SECONDS, BLOBS_A_LOOK
from .store import BLOBS_DIRECTORY

KEEP_FILE = f"{BLOBS_DIRECTORY}/keep"

_KEEP_NOTE = (
    b"The journal was found damaged. Blobs that nothing names any more may belong to what was lost, so none is removed "
    b"while this file is here. Remove it when nothing is to be recovered.\n"
)


class BlobCollection:
    """The collection of one store's blobs. `is_named` says whether a kept run names a digest."""

    def __init__(self, fs: FileSystem, is_named: Callable[[str], bool]) -> None:
        self._fs = fs
        self._is_named = is_named
        self._directories: list[str] = []
        self._names: list[str] = []
        self._directory = ""
        self._due = 0.0

    def keep_all(self) -> None:
        """Let nothing be collected any more, in later runs of the writer neither. Raises OSError."""
        if self._fs.exists(BLOBS_DIRECTORY) and not self._fs.exists(KEEP_FILE):
            write_whole_file(self._fs, KEEP_FILE, _KEEP_NOTE)

    def look_if_due(self) -> None:
        """Take a look if it is time for one."""
        now = time.monotonic()
        if now < self._due:
            return
        try:
            is_over = self.look(time.time())
        except OSError:
            # Nothing but space is at stake, and the next commit will say what is wrong with the disk.
            self._directories, self._names, is_over = [], [], True
        self._due = now + (BLOB_ROUND_SECONDS if is_over else BLOB_LOOK_SECONDS)

    def look(self, now: float) -> bool:
        """Look at the next files of the round, and remove those that are left over at `now`, in seconds since 1970.

        Returns whether the round is over. Raises OSError.
        """
        if not self._directories and not self._names:
            self._begin()
        looked = 0
        while looked < BLOBS_A_LOOK and (self._names or self._directories):
            if not self._names:
                self._directory = f"{BLOBS_DIRECTORY}/{self._directories.pop()}"
                self._names = self._fs.names(self._directory)
                looked += 1
                continue
            self._judge(self._names.pop(), now)
            looked += 1
        return not self._directories and not self._names

    def _begin(self) -> None:
        """Begin a round at some directory: a store that is often opened for a moment is gone through as well."""
        if self._fs.exists(KEEP_FILE):
            return
        directories = [name for name in self._fs.names(BLOBS_DIRECTORY) if len(name) == 2]
        begin = random.randrange(len(directories)) if directories else 0
        self._directories = directories[begin:] + directories[:begin]

    def _judge(self, name: str, now: float) -> None:
        """Remove a file that is old and either half written or named by nothing; leave alone what isn't ours."""
        path = f"{self._directory}/{name}"
        if not (name.endswith(".tmp") or is_digest(name)):
            return
        try:
            if now - self._fs.modified(path) < BLOB_GRACE_SECONDS:
                return
        except FileNotFoundError:
            return  # a client has given it its name
        if name.endswith(".tmp") or not self._is_named(name):
            self._fs.remove(path)
