"""Contract: blobs of a store, whichever backend keeps its events: what is named has to be there, and then stays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.storage import blobs
from turnkeeper.storage.contract import (
    answer_to,
    appended,
    creation,
    event,
    events,
    refused,
)
from turnkeeper.storage.errors import BlobMissing, InvalidLine
from turnkeeper.storage.limits import BLOB_GRACE_SECONDS
from turnkeeper.storage.requests import Append, Appended

from .backends import BACKENDS, DirectoryStore, new_store

PICTURE = b"\x89PNG\r\n\x00\n" * 100


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DirectoryStore]:
    """A new store of each backend."""
    with new_store(tmp_path / "store", request.param) as made:
        yield made


def put(store: DirectoryStore, content: bytes = PICTURE) -> str:
    """Put a blob into a store; it is old already."""
    digest = blobs.put(str(store.path), content)
    path = store.path / blobs.blob_path(digest)
    then = path.stat().st_mtime - BLOB_GRACE_SECONDS - 60
    os.utime(path, (then, then))
    return digest


def test_a_missing_blob_refuses_its_append_alone(store: DirectoryStore) -> None:
    """Neighbours of the same commit are stored; the same append is, once the blob was put; sent again, it was once."""
    backend = store.open()
    digest = blobs.digest_of(PICTURE)
    wanted = creation("a", events("a", 0, 2), blobs=[digest])
    missing, other = backend.commit([wanted, creation("b", event("b", 0))])
    assert refused(BlobMissing, missing).digest == digest
    assert isinstance(other, Appended)
    put(store)
    first = appended(backend, wanted)
    (store.path / blobs.blob_path(digest)).unlink()
    assert appended(backend, wanted) == first
    assert "blobs" not in backend.row("a").summary


@pytest.mark.parametrize("named", [["../x"], "x", [5], {"a": 1}, None])
def test_what_is_no_digest_is_never_named(store: DirectoryStore, named: object) -> None:
    """It is refused, and nothing is stored."""
    backend = store.open()
    refused(InvalidLine, answer_to(backend, creation("a", event("a", 0), blobs=named)))
    assert backend.statistics()["streams"] == 0


def test_named_blobs_outlive_the_writer_and_unnamed_ones_dont(store: DirectoryStore) -> None:
    """Each opening collects, after an orderly end and after the writer's death, and keeps whatever any append named."""
    backend = store.open()
    named = [put(store, bytes([number])) for number in range(3)]
    results = backend.commit(
        [
            creation("a", event("a", 0), blobs=named[:2]),
            Append("a", 1, 1, event("a", 1), {"blobs": named[1:2], "title": "x"}),
            Append("a", 1, 2, event("a", 2), {"blobs": named[2:]}),
        ]
    )
    assert all(isinstance(result, Appended) for result in results)
    for end in (store.close, store.die):
        left = put(store, b"left over")
        end()
        store.open()
        found = {each.name for each in (store.path / "blobs").rglob("*") if each.is_file()}
        assert found == set(named)
        assert left not in found


def test_a_full_store_still_tells_what_is_missing(store: DirectoryStore) -> None:
    """The refusal that no space can cure comes first; nothing of either is stored."""
    backend = store.open()
    store.is_full = True
    refused(BlobMissing, answer_to(backend, creation("a", event("a", 0), blobs=["0" * 64])))
    assert backend.statistics()["streams"] == 0
