"""The names of a store's actors, as they lie in its directory: who has one, and where it is asked.

    actors/<name>.lock    an open-file-description lock that the actor's process holds, and who that is
    actors/<name>.sock    the socket where it is served

The lock says whether the name is taken; both files of a process that was killed stay, and the next one of the name
takes them over. Blocking calls that don't block. No event loop is imported.
"""

from __future__ import annotations

import io
import json
import os
import socket
from contextlib import suppress
from typing import Any

from turnkeeper.runtime.identity import Identity, own_identity
from turnkeeper.runtime.inheritance import close_in_children
from turnkeeper.storage import lock
from turnkeeper.storage.errors import StoreRefused
from turnkeeper.storage.limits import ID_PATTERN

from .directory import StoreDirectory
from .errors import NameTaken

ACTORS_DIRECTORY = "actors"


class ActorNames:
    """The names of the actors of the store at a path, which may be moved meanwhile."""

    def __init__(self, path: str) -> None:
        """Open the store's directory. Raises StoreMissing or StoreRefused."""
        self._store = StoreDirectory(path)

    def claim(self, name: str) -> Claim:
        """Take a name, whose former owner may have been killed; from now on callers can connect, and wait.

        Raises:
            NameTaken: A living process has it. StoreRefused: It can't be had. ValueError, TypeError: It is no name.
        """
        check_name(name)
        try:
            with suppress(FileExistsError):
                os.mkdir(ACTORS_DIRECTORY, 0o700, dir_fd=self._store.descriptor)
            return Claim(self._store, name, self._lock(name))
        except OSError as error:
            path = f"{self._store.path}/{ACTORS_DIRECTORY}/{name}"
            raise StoreRefused(path, f"can't be made ({error.strerror or error})") from error

    def connect(self, name: str) -> socket.socket:
        """Connect to the process that serves a name. Raises OSError as `StoreDirectory.connect` does."""
        return self._store.connect(_socket_file(name))

    def close(self) -> None:
        """Give the directory up. Closing again is no error."""
        self._store.close()

    def _lock(self, name: str) -> io.FileIO:
        """Take the lock of a name. Raises NameTaken."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            descriptor = os.open(_lock_file(name), flags, 0o600, dir_fd=self._store.descriptor)
            file = io.FileIO(descriptor, "r+")
            try:
                if not lock.take(descriptor):
                    raise NameTaken(name, _owner_in(file))
                if self._is_in_place(name, descriptor):
                    return file
                # Its owner removed it in the moment between: the lock that counts is another file's.
                file.close()
            except BaseException:
                file.close()
                raise

    def _is_in_place(self, name: str, descriptor: int) -> bool:
        try:
            there = os.stat(_lock_file(name), dir_fd=self._store.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(descriptor))


class Claim:
    """A name that this process has, and the socket that listens under it. A `with` gives it back if its body fails."""

    def __init__(self, store: StoreDirectory, name: str, held: io.FileIO) -> None:
        """Say who has the name, and listen; `held` carries the lock and is given up if this fails."""
        self.name = name
        self._directory = -1
        self._held = held
        try:
            close_in_children(held)
            held.truncate(0)
            held.write(json.dumps(own_identity().as_map()).encode() + b"\n")
            # A descriptor of its own: the name is given back wherever the store lies by then, by whoever closed it.
            self._directory = os.open(ACTORS_DIRECTORY, os.O_RDONLY | os.O_CLOEXEC, dir_fd=store.descriptor)
            with suppress(FileNotFoundError):
                os.unlink(f"{name}.sock", dir_fd=self._directory)
            self.listener = store.listen(_socket_file(name))
            close_in_children(self.listener)
        except BaseException:
            held.close()
            if self._directory >= 0:
                os.close(self._directory)
            raise

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is not None:
            self.release()

    def release(self) -> None:
        """Give the name back. Again is no error; in a forked child, where the lock is closed already, it is nothing."""
        if self._held.closed:
            return
        self.listener.close()
        for file in (f"{self.name}.sock", f"{self.name}.lock"):
            with suppress(FileNotFoundError):  # with the store, perhaps
                os.unlink(file, dir_fd=self._directory)
        os.close(self._directory)
        self._held.close()


def check_name(name: object) -> None:
    """Raise TypeError or ValueError for what can't be an actor's name."""
    if not isinstance(name, str):
        raise TypeError(f"an actor's name is a text, not {name!r:.100}")
    if not ID_PATTERN.match(name):
        raise ValueError(f"an actor's name has 1 to 64 characters of a-z, 0-9 and -, unlike {name!r:.100}")


def _lock_file(name: str) -> str:
    return f"{ACTORS_DIRECTORY}/{name}.lock"


def _socket_file(name: str) -> str:
    return f"{ACTORS_DIRECTORY}/{name}.sock"


def _owner_in(file: io.FileIO) -> dict[str, Any]:
    """Read who has a lock; nothing if that isn't written yet."""
    try:
        return Identity.from_map(json.loads(file.read())).as_map()
    except (ValueError, AttributeError):
        return {}
