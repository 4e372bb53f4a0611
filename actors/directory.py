"""A store's directory as those see it who don't serve it: held open, so that its path may be long, or change.

Sockets are reached through the directory's descriptor, and the lock is only asked about. Blocking calls that don't
block: nothing here waits for another process. No event loop is imported.
"""

from __future__ import annotations

import json
import os
import socket

from turnkeeper.storage import lock
from turnkeeper.storage.errors import StoreMissing, StoreRefused
from turnkeeper.storage.store import STORE_FILE, WRITER_FILE, check_directory

from .errors import NodeNotAnswering

_DESCRIPTORS = "/proc/self/fd"

_BACKLOG = 128
"""Connections that may wait to be accepted."""


class StoreDirectory:
    """An open directory; `descriptor` is valid until `close`."""

    def __init__(self, path: str) -> None:
        """Open the directory at `path`. Raises StoreMissing or StoreRefused where there can't be a store."""
        check_directory(path)
        self.path = path
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise StoreMissing(path, "the store was removed a moment ago") from None
        except PermissionError as error:
            raise StoreRefused(path, f"can't be opened ({error.strerror})") from None

    def connect(self, name: str) -> socket.socket:
        """Connect to one of the store's sockets and return the connection, non-blocking.

        It may still be waiting in the backlog of a process that never takes it: only a hello counts. Raises OSError
        where nobody listens (FileNotFoundError, ConnectionRefusedError) or too many wait (BlockingIOError).
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            connection.connect(self._address(name))
        except BaseException:
            connection.close()
            raise
        return connection

    def listen(self, name: str) -> socket.socket:
        """Make one of the store's sockets, for this user alone, and listen there, non-blocking.

        Raises OSError where it can't be made, or is there already.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.bind(self._address(name))
            os.chmod(name, 0o600, dir_fd=self.descriptor)
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            raise
        return listener

    def _address(self, name: str) -> str:
        root = f"{_DESCRIPTORS}/{self.descriptor}" if os.path.isdir(_DESCRIPTORS) else self.path
        return f"{root}/{name}"

    def is_held(self) -> bool:
        """Say whether a process holds the store's lock: it serves, starts, ends or is stuck. Free: all are dead."""
        try:
            store_file = os.open(STORE_FILE, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.descriptor)
        except FileNotFoundError:
            return False
        try:
            return lock.is_held(store_file)
        finally:
            os.close(store_file)

    def last_writer(self) -> int | None:
        """Return the pid of the last writer, living or not, as it wrote it down; None if nobody did."""
        try:
            file = os.open(WRITER_FILE, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.descriptor)
            with open(file, "rb") as content:
                return int(json.load(content)["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def not_answering(self, pid: int | None) -> NodeNotAnswering:
        """Make the error for a store that wasn't served in time: by `pid`, if that lives, else by its last writer."""
        from turnkeeper.runtime.identity import process_state  # for this rare moment only

        for each in (pid, self.last_writer()):
            state = "gone" if each is None else process_state(each)
            if state not in ("gone", "zombie"):
                return NodeNotAnswering(each, state)
        return NodeNotAnswering(None, "none stayed alive")

    def close(self) -> None:
        """Give the descriptor up; closing again is no error."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
