"""What writer and readers need of whatever keeps a store: one synchronous interface, and no word about how it is kept.

A backend owes what the contract says of one stream's log, of lists, forks and deletion; nothing here says more than
its types can. `Backend` is driven by one thread of one process, the writer, which holds the store's lock. A
`BackendReader` reads from any process, beside the writer and without one, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from .requests import Page, Request, Result, StoredEvent, StreamRow

if TYPE_CHECKING:
    from .findings import Finding
    from .opening import OpeningReport


class Backend(Protocol):
    """An open store, as its one writer drives it. Not usable in a forked child."""

    @property
    def index_directory(self) -> str:
        """What readers open beside this writer, relative to the store; the writer says it in its hello."""
        ...

    @property
    def next_position(self) -> int:
        """The position that the next event will have, from 1."""
        ...

    @property
    def report(self) -> OpeningReport:
        """What opening found and did."""
        ...

    def commit(self, requests: Sequence[Request]) -> list[Result]:
        """Carry out the requests, in order; give one result for each.

        What is answered is durable and readable from every process; a refused request is an error among the results.
        Raises Failed when it can't be told what was stored, and then takes nothing more.
        """
        ...

    def between_commits(self) -> None:
        """Do what nobody has to wait for; called when the answers are out. Raises Failed, OSError."""
        ...

    def resolve(self, wanted: str) -> str:
        """Give the id that `wanted` names: an id, a host's key, or a unique prefix. Raises NotFound, Ambiguous."""
        ...

    def row(self, id: str) -> StreamRow:
        """Give what is known of a stream. Raises NotFound."""
        ...

    def missing(self, id: str) -> list[tuple[int, int]]:
        """List (first seq, number) of a stream's events that were lost."""
        ...

    def statistics(self) -> dict[str, int]:
        """Count `batches`, the commits that stored something, and `streams`; give the next `position`."""
        ...

    def close(self) -> None:
        """Close cleanly; after a failure only let go."""
        ...


class BackendReader(Protocol):
    """Reads one store, for one thread at a time. Not usable in a forked child."""

    @property
    def findings(self) -> list[Finding]:
        """What was found wrong where no writer has looked yet."""
        ...

    def resolve(self, wanted: str) -> str:
        """Give the id that `wanted` names: an id, a host's key, or a unique prefix. Raises NotFound, Ambiguous."""
        ...

    def row(self, wanted: str) -> StreamRow:
        """Give what is known of a stream. Raises NotFound, Ambiguous."""
        ...

    def read(self, id: str, *, start: int = 0, stop: int | None = None, limit: int = 1000) -> Page:
        """Read events `start` to `stop` (without it), `limit` at most. Raises NotFound, ValueError."""
        ...

    def read_last(self, id: str, last: int) -> Page:
        """Read the newest `last` events. Raises NotFound, ValueError."""
        ...

    def rows(
        self,
        limit: int,
        before: tuple[int, str] | None = None,
        *,
        include_deleted: bool = False,
        label: tuple[str, str] | None = None,
        **equal: str,
    ) -> list[StreamRow]:
        """List streams with events, by recency of commit, below `before` (a row's position and id)."""
        ...

    def scan(self, after: int, size_max: int = ...) -> tuple[list[StoredEvent], int]:
        """Read events of all streams above the position `after`; give them and the position that is reached."""
        ...

    def next_position(self) -> int:
        """Give the position that the next event will have."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...
