"""What writer and readers need of whatever keeps a store: one synchronous interface, and no word about how it is kept.

A backend owes what the contract says of one stream's log, of lists, forks and deletion; nothing here says more than
its types can. `Backend` is driven by one thread of one process, the writer, which holds the store's lock. A
`BackendReader` reads from any process, beside the writer and without one, and changes nothing. Which one keeps a store
is written in its store.json; only here that word is looked at, and only what it names is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, get_args

from .errors import StoreRefused
from .requests import Page, PositionPage, Request, Result, StreamRow
from .store import BackendName, describe

if TYPE_CHECKING:
    from .filesystem import FileSystem
    from .findings import Finding
    from .hopping import FileScanner
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
        """List (first seq, number) of a damaged stream's own events that can't be read; it may take reading them."""
        ...

    def statistics(self) -> dict[str, int]:
        """Count `batches`, the commits that stored something, `streams`, and those that are `ownerless`.

        Give the next `position`, too.
        """
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

    def ids_beginning(self, prefix: str, limit: int) -> list[str]:
        """List the ids of streams that begin so, in their order: deleted ones too, and those without owner."""
        ...

    def read(
        self, id: str, *, start: int = 0, stop: int | None = None, limit: int = 1000, size_max: int | None = None
    ) -> Page:
        """Read events `start` to `stop` (without it), `limit` at most, until their lines have `size_max` bytes.

        Raises NotFound, ValueError.
        """
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
        cwd: Collection[str] | str = (),
        having: str | None = None,
        **equal: str,
    ) -> list[StreamRow]:
        """List streams with events, by recency of commit, below `before` (a row's position and id).

        `label` is a name and its value; of the paths in `cwd` one has to be the summary's `cwd` or `cwd_real`; `having`
        names a member that the summary has to have; each further keyword names a member and what it has to be.
        """
        ...

    def scan(self, after: int, size_max: int = ...) -> PositionPage:
        """Read events of all streams above the position `after`, and what of them is lost, up to some position.

        Raises ReadFailed if what comes next can't be read now, and may be later.
        """
        ...

    def next_position(self) -> int:
        """Give the position that the next event will have."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...


def open_backend(
    root: str,
    *,
    boot: str,
    is_gone: Callable[[Mapping[str, Any]], bool],
    holder: Mapping[str, Any],
    distrust_index: bool = False,
    progress: Callable[[int, int], None] | None = None,
    scan: FileScanner | None = None,
    fs: FileSystem | None = None,
    clock: Callable[[], int] | None = None,
) -> Backend:
    """Open the store at `root`, whose lock the caller holds, for its one writer; settle how its last one ended.

    `boot` identifies the machine's present run; `is_gone` says whether a stream's owner has ended; `holder` goes into
    writer.json, for people; `distrust_index` is the supervisor's word that the last writer died of a memory fault;
    `progress` is called with bytes done and bytes in all; `scan` scans a journal's files, several at a time; `clock`
    gives milliseconds since 1970. Raises StoreRefused, NewerFormat, Corrupt, Failed, OSError.
    """
    if _backend_of(root) == "sqlite":
        from .sqlite.writing import SqliteStore

        return SqliteStore.open(root, is_gone=is_gone, holder=holder, fs=fs, clock=clock)
    from .journal import Journal

    return Journal.open(
        root,
        boot=boot,
        is_gone=is_gone,
        holder=holder,
        distrust_index=distrust_index,
        progress=progress,
        scan=scan,
        fs=fs,
        clock=clock,
    )


def open_reader(root: str, served_index: str | None = None) -> BackendReader:
    """Open the store at `root` to read; `served_index` is what a living writer named in its hello, None without one.

    Raises StoreMissing, StoreRefused, NewerFormat, Failed.
    """
    if _backend_of(root) == "sqlite":
        from .sqlite.reading import SqliteReader

        return SqliteReader(root, served=served_index is not None)
    from . import reading

    return reading.open_reader(root, served_index)


def require_journal(root: str) -> None:
    """Refuse the store at `root` if no journal keeps it: what is asked for is about the journal's files.

    Raises StoreRefused, StoreMissing, NewerFormat.
    """
    backend = _backend_of(root)
    if backend != "journal":
        raise StoreRefused(root, f"this store has no journal, {backend} keeps it; this command is for journals")


def _backend_of(root: str) -> str:
    """Give the name of what keeps the store. Raises StoreRefused for one that this version doesn't know."""
    backend = describe(root).backend
    if backend not in get_args(BackendName):
        raise StoreRefused(root, f"{backend!r} keeps this store, which this version doesn't know; upgrade turnkeeper")
    return backend
