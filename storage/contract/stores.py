"""The store that a clause is given: made by whoever runs the suite, for the backend under test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol
from unittest import SkipTest

from ..backend import Backend, BackendReader


class StoreInContract(Protocol):
    """One store of the backend under test, with at most one writer at a time.

    Whatever can't be done to a backend raises `unittest.SkipTest`, saying why: the clause that needs it is skipped.
    """

    alive: set[str]
    """Tokens of the owners that live; the `is_gone` that the backend is given says that all others are gone."""

    now: int
    """What the clock that the backend is given says, in ms."""

    is_full: bool
    """Whether the file system has no space left."""

    def open(self) -> Backend:
        """Open the store to write; it is closed, or its writer dead, by now.

        Raises StoreRefused, naming the process, while another one has it open.
        """
        ...

    def reader(self) -> BackendReader:
        """Open the store to read, beside its writer if it has one."""
        ...

    def close(self) -> None:
        """Close the writer in order."""
        ...

    def die(self) -> None:
        """Let the writer end as SIGKILL does: nothing is written or tidied up any more."""
        ...

    def fail_next_commit(self, *, stored: bool) -> None:
        """Let the next commit that writes anything fail as a broken disk does, with its lines stored or not."""
        ...

    def damage(self, stream: str) -> None:
        """Spoil something that is kept of this stream's newest events, and of no other stream; nobody writes now.

        In such a way that it shows in a list: what only reading the events shows is no matter of lists.
        """
        ...

    def cost(self) -> int:
        """Count what this process has read from the backend so far: bytes, or what else grows with the work."""
        ...


def is_gone_by(alive: set[str]) -> Callable[[Mapping[str, Any]], bool]:
    """Make the `is_gone` that a store's `alive` stands for."""
    return lambda who: who["token"] not in alive


def bytes_read() -> int:
    """Count the bytes that this process has read from files so far: the `cost` of a backend that keeps files."""
    try:
        first = Path("/proc/self/io").read_text().split(None, 2)
    except OSError as error:
        raise SkipTest(f"this system doesn't count what a process reads ({error.strerror})") from None
    assert first[0] == "rchar:"
    return int(first[1])
