"""What readers see of a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from ..backend import Backend, BackendReader
from ..requests import Page, StoredEvent
from .stores import StoreInContract


@contextmanager
def reading(store: StoreInContract) -> Iterator[BackendReader]:
    """Open the store to read for the body."""
    with closing(store.reader()) as reader:
        yield reader


def page(store: StoreInContract, id: str, **bounds: Any) -> Page:
    """Read a stream, whole unless there are bounds; nothing of it may be missing."""
    with reading(store) as reader:
        found = reader.read(id, **({"limit": 1_000_000} | bounds))
    assert found.missing == []
    return found


def content(store: StoreInContract, id: str) -> bytes:
    """Read all of a stream's lines."""
    return b"".join(stored.line + b"\n" for stored in page(store, id).events)


def places(store: StoreInContract, id: str, **bounds: Any) -> list[tuple[str, int]]:
    """Read a stream; give under which id and number each event is stored."""
    return [(stored.stream, stored.seq) for stored in page(store, id, **bounds).events]


def listed(store: StoreInContract, **filters: Any) -> list[str]:
    """List the streams' ids."""
    with reading(store) as reader:
        return [row.id for row in reader.rows(1000, **filters)]


def scanned(store: StoreInContract, size_max: int) -> list[StoredEvent]:
    """Read the whole store by position, in pieces."""
    found: list[StoredEvent] = []
    after = 0
    with reading(store) as reader:
        while True:
            more, reached, lost = reader.scan(after, size_max)
            assert not lost
            if reached == after:
                return found
            found += more
            after = reached


def reopened(store: StoreInContract) -> Iterator[Backend]:
    """Give the store again, as it is, closed and opened, and after its writer's death."""
    store.close()
    yield store.open()
    store.die()
    yield store.open()
