"""The index's files in a story: real LMDB files in memory, one environment each, however many processes use it.

LMDB allows one environment a process, and here all processes are in one: so they share it, and none closes it. What an
index knows beside its tables is each process's own, as it would be.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from turnkeeper.storage.errors import IndexFailed
from turnkeeper.storage.index import Index, _open_environment
from turnkeeper.storage.index_tables import Transaction
from turnkeeper.storage.reading import Reader

if TYPE_CHECKING:
    from .processes import Machine


class SharedIndex(Index):
    """An index of which other processes have the environment, too. `machine.index_fails` fails its next commit."""

    machine: Machine

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Run the one write transaction, or fail as a full disk makes it fail."""
        with super().writing() as transaction:
            yield transaction
            if self.machine.index_fails:
                self.machine.index_fails = False
                raise IndexFailed("the index transaction failed: injected")

    def close(self) -> None:
        """Leave the environment to the others."""


class IndexFiles:
    """Opens indexes to write, as `Index` does."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def open_writable(self, path: str) -> SharedIndex:
        """Open or make the index in the directory `path`."""
        environments = self._machine.environments
        if path not in environments:
            environments[path] = _open_environment(path, readonly=False)
        return _index(self._machine, path, writable=True)


def open_reader(machine: Machine, root: str, served_index: str | None = None) -> Reader:
    """Open the store to read, beside the writer that named this index in its hello. Raises Failed."""
    path = machine.disk.path(str(served_index))
    if path not in machine.environments:
        raise IndexFailed(f"the index {path} can't be opened: it is gone")
    return Reader(root, _index(machine, path, writable=False), machine.disk, ExitStack())


def _index(machine: Machine, path: str, *, writable: bool) -> SharedIndex:
    environment: Any = machine.environments[path]
    index = SharedIndex(environment, writable=writable)
    index.machine = machine
    return index
