"""What storage refuses or fails with, split by what the caller can do about it.

Each error carries fields and makes its message from them, so that it survives pickling and a socket.
A *refused* request is certainly not stored; `Failed` alone means "outcome unknown: send again".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class StorageError(Exception):
    """Every error that storage raises on purpose; its arguments are its fields, in order."""

    def __str__(self) -> str:
        return self.message()

    def message(self) -> str:
        """Say what happened, where, and what to do, in one line."""
        return " ".join(str(argument) for argument in self.args)


class NotFound(StorageError):
    """No stream answers to this id, prefix or key. Reading one creates nothing."""

    def __init__(self, wanted: str) -> None:
        super().__init__(wanted)
        self.wanted = wanted

    def message(self) -> str:
        return f"no session, task or stream {self.wanted!r} in this store"


class Deleted(NotFound):
    """The stream `wanted`, named here by its id, was deleted. It is kept and can be had back."""

    def message(self) -> str:
        return f"{self.wanted} is deleted; undelete it to use it again"


class Ambiguous(StorageError):
    """A prefix that several ids share; `candidates` lists at most ten of them."""

    def __init__(self, wanted: str, candidates: list[str]) -> None:
        super().__init__(wanted, candidates)
        self.wanted = wanted
        self.candidates = list(candidates)

    def message(self) -> str:
        return f"{self.wanted!r} is the beginning of several ids: {', '.join(self.candidates)}; give more of it"


class WrongKind(StorageError):
    """The stream `id` is there, and is a `kind`, where a `wanted` was asked for."""

    def __init__(self, id: str, kind: str, wanted: str) -> None:
        super().__init__(id, kind, wanted)
        self.id = id
        self.kind = kind
        self.wanted = wanted

    def message(self) -> str:
        return f"{self.id} is no {self.wanted} but of the kind {self.kind!r}; give the id of a {self.wanted}"


class Exists(StorageError):
    """The id, or the host's key, already names the stream `id`."""

    def __init__(self, id: str, what: str = "id") -> None:
        super().__init__(id, what)
        self.id = id
        self.what = what

    def message(self) -> str:
        return f"this {self.what} is taken by {self.id}"


class SessionBusy(StorageError):
    """A living owner holds the stream. `owner` has boot, pid, start, host."""

    def __init__(self, stream: str, owner: Mapping[str, Any]) -> None:
        super().__init__(stream, dict(owner))
        self.stream = stream
        self.owner = dict(owner)

    def message(self) -> str:
        owner = self.owner
        return (
            f"{self.stream} is open in process {owner.get('pid')} on {owner.get('host')}; "
            "close it there, or open with takeover"
        )


class Conflict(StorageError):
    """The append doesn't begin at the head. `expected` is the head; `stored` leading lines are stored already.

    With `key` it isn't about numbers: another event is stored under that key.
    """

    def __init__(self, stream: str, expected: int, stored: int = 0, key: str | None = None) -> None:
        super().__init__(stream, expected, stored, key)
        self.stream = stream
        self.expected = expected
        self.stored = stored
        self.key = key

    def message(self) -> str:
        if self.key is not None:
            return f"{self.stream}: the key {self.key!r} has another event already; use a new key for a new event"
        return f"{self.stream}: the next event is number {self.expected}; {self.stored} of the lines are stored"


class Fenced(StorageError):
    """Somebody else owns the stream now. `owner` is its present owner, or None; `stored` as in Conflict."""

    def __init__(self, stream: str, owner: Mapping[str, Any] | None, stored: int = 0) -> None:
        super().__init__(stream, None if owner is None else dict(owner), stored)
        self.stream = stream
        self.owner = None if owner is None else dict(owner)
        self.stored = stored

    def message(self) -> str:
        by = f"process {self.owner.get('pid')} on {self.owner.get('host')}" if self.owner else "a later opening"
        return f"{self.stream} was taken over by {by}; {self.stored} of the lines are stored; open it again to go on"


class InvalidFork(StorageError):
    """A stream can't begin with the first `seq` events of `parent`, and why."""

    def __init__(self, parent: str, seq: int, why: str) -> None:
        super().__init__(parent, seq, why)
        self.parent = parent
        self.seq = seq
        self.why = why

    def message(self) -> str:
        return f"{self.parent} can't be forked at {self.seq}: {self.why}"


class TooLarge(StorageError):
    """`what` has `size` bytes, over `limit`. Nothing was stored."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(what, size, limit)
        self.what = what
        self.size = size
        self.limit = limit

    def message(self) -> str:
        return f"{self.what} has {self.size:,} bytes, over the limit of {self.limit:,}"


class InvalidLine(StorageError):
    """A line that isn't the frame of the event it should be: a bug or an attack, never stored."""

    def __init__(self, stream: str, seq: int, why: str) -> None:
        super().__init__(stream, seq, why)
        self.stream = stream
        self.seq = seq
        self.why = why

    def message(self) -> str:
        return f"{self.stream}: line {self.seq} is refused: {self.why}"


class InvalidValue(StorageError):
    """A value that JSON can't hold exactly, or that an event of its type can't have.

    `event` is its number in the call, and that of a stored event in its log; `path` is a JSON path into its data.
    """

    def __init__(self, event: int, type: str, path: str, why: str) -> None:
        super().__init__(event, type, path, why)
        self.event = event
        self.type = type
        self.path = path
        self.why = why

    def message(self) -> str:
        return f"event {self.event} ({self.type}) at {self.path}: {self.why}"


class StoreFull(StorageError):
    """The disk's reserve is used up. Nothing was stored; appends work again when space returns."""

    def __init__(self, free: int, needed: int) -> None:
        super().__init__(free, needed)
        self.free = free
        self.needed = needed

    def message(self) -> str:
        return f"the file system has {self.free:,} bytes free and {self.needed:,} are kept in reserve; make space"


class Corrupt(StorageError):
    """Bytes that were acknowledged are damaged. `missing` are (first seq, count) of what can't be read.

    Who follows the store is also told `positions`, (first, count) of what it isn't given; else they are (0, 0).
    """

    def __init__(
        self,
        stream: str,
        reason: str,
        path: str = "",
        offset: int = 0,
        missing: list[tuple[int, int]] | None = None,
        positions: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(stream, reason, path, offset, missing or [], positions)
        self.stream = stream
        self.reason = reason
        self.path = path
        self.offset = offset
        self.missing = [(first, count) for first, count in missing or []]
        self.positions = (positions[0], positions[1])

    def message(self) -> str:
        place = f" ({self.path} at byte {self.offset})" if self.path else ""
        gaps = ", ".join(f"{first}-{first + count - 1}" for first, count in self.missing)
        missing = f"; missing events: {gaps}" if gaps else ""
        position, count = self.positions
        missing += f"; missing positions: {position}-{position + count - 1}" if count else ""
        return f"{self.stream} is damaged: {self.reason}{place}{missing}; the rest can be read"


class BlobMissing(StorageError):
    """The blob `digest`, which `stream` names (empty where nothing but the blob was asked for), isn't in this store.

    Of an append nothing was stored; it is stored when the blob was put again.
    """

    def __init__(self, stream: str, digest: str) -> None:
        super().__init__(stream, digest)
        self.stream = stream
        self.digest = digest

    def message(self) -> str:
        named = f", which {self.stream} names," if self.stream else ""
        return f"blob {self.digest}{named} isn't in this store; put it again"


class Failed(StorageError):
    """A write, sync or index transaction failed: the outcome is unknown, and whoever asked must ask again."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def message(self) -> str:
        return f"{self.what}; whether it was stored is unknown, send again"


class ReadFailed(Failed):
    """Reading failed where another try may succeed: nothing was passed over, and nothing is known to be damaged."""

    def message(self) -> str:
        return f"{self.what}; nothing was passed over, read again"


class IndexFailed(Failed):
    """It was the index that failed, which can be built anew: it isn't to be opened again."""

    def message(self) -> str:
        return f"{self.what}; the journal is the truth: turnkeeper journal rebuild makes the index anew"


class StoreRefused(StorageError):
    """This path can't be a store: missing, unwritable, not a directory, of a refused file system, not ours."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def message(self) -> str:
        return f"{self.path}: {self.why}"


class StoreMissing(StoreRefused):
    """There is no store at this path, and reading makes none."""


class NewerFormat(StorageError):
    """The store was written by a newer version; it isn't damaged and wasn't touched."""

    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(path, found, known)
        self.path = path
        self.found = found
        self.known = known

    def message(self) -> str:
        return f"{self.path}: written by a newer version (format {self.found}, this one knows {self.known}); upgrade"
