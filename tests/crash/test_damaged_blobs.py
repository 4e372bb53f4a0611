"""Blobs that were removed or changed behind the store's back: verify names them, and the events that lose by it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from turnkeeper.storage import blobs
from turnkeeper.storage.requests import Append
from turnkeeper.storage.verify import verify

from ..stores import StoreInTest, appended, create, event, lines, new_store

PICTURE, OTHER, UNNAMED = b"picture" * 300_000, b"other", b"put and never named"


@pytest.fixture
def store(memory_path: Path) -> Iterator[StoreInTest]:
    """A store with a picture that events 4 and 6 of `a` and 1 of `b` show, and another that one of the first does."""
    with new_store(memory_path / "store") as made:
        journal = made.open()
        picture, other = (blobs.put(str(made.path), content) for content in (PICTURE, OTHER))
        blobs.put(str(made.path), UNNAMED)
        appended(journal, create("a", lines("a", 0, 3), blobs=[other]))
        appended(journal, create("b", event("b", 0)))
        run = lines("a", 3, 1) + event("a", 4, f"see {picture}") + lines("a", 5, 1)
        journal.commit(
            [Append("a", 1, 3, run, {"blobs": [picture]}), Append("b", 1, 1, event("b", 1), {"blobs": [picture]})]
        )
        appended(journal, Append("a", 1, 6, event("a", 6), {"blobs": [picture]}))
        yield made


def index_of(store: StoreInTest) -> str | None:
    """Give the index that the store's writer serves, if it has one."""
    return None if store.journal is None else store.journal.index_directory


def path_of(store: StoreInTest, content: bytes) -> Path:
    """Give where a content lies."""
    return store.path / blobs.blob_path(blobs.digest_of(content))


def test_whole_blobs_are_counted(store: StoreInTest) -> None:
    """Each once, however many events name it, and only those that are named."""
    found = verify(str(store.path), index_of(store))
    assert (found.blobs, found.damaged) == (2, [])
    assert found.as_map()["blobs"] == 2


def _remove(path: Path) -> None:
    path.unlink()


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def _link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


@pytest.mark.parametrize("served", [True, False])
@pytest.mark.parametrize("spoil", [_remove, _flip, _cut, _empty, _lengthen, _link])
def test_a_spoiled_blob_is_named_with_the_events_that_need_it(
    store: StoreInTest, spoil: Callable[[Path], None], served: bool
) -> None:
    """By stream and number, where a line says so; the index and the rest of the store are whole."""
    spoil(path_of(store, PICTURE))
    if not served:
        store.close()
    found = verify(str(store.path), index_of(store))
    (finding,) = found.damaged
    assert finding.kind == ("missing blob" if spoil is _remove else "damaged blob")
    assert finding.segment == blobs.blob_path(blobs.digest_of(PICTURE))
    assert finding.streams == {"a": [(4, 1), (6, 1)], "b": [(1, 1)]}
    assert found.index_ok


def test_where_no_line_says_which_event_it_was_all_of_the_run_are_named(store: StoreInTest) -> None:
    """As a reference may stand in data that lies in a blob itself."""
    path_of(store, OTHER).unlink()
    (finding,) = verify(str(store.path), index_of(store)).damaged
    assert finding.streams == {"a": [(0, 3)]}


def test_what_nobody_names_is_nobodys_loss(store: StoreInTest) -> None:
    """A blob that was put and not named yet, or never, may go."""
    path_of(store, UNNAMED).unlink()
    assert verify(str(store.path), index_of(store)).damaged == []
