"""The index as its writer drives it: the records that it keeps in memory change nothing of what it says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from turnkeeper.storage import index as index_module
from turnkeeper.storage.format import BatchHeader, Run
from turnkeeper.storage.index import Index
from turnkeeper.storage.index_records import placed_runs
from turnkeeper.storage.scanning import Batch

REMEMBERED = 2


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An index of which two streams' records are kept in memory."""
    monkeypatch.setattr(index_module, "_HOT_RECORDS_MAX", REMEMBERED)
    with contextlib.closing(Index.in_memory()) as made:
        yield made


def apply(index: Index, number: int, runs: list[tuple[str, int]]) -> dict[str, str]:
    """Index a batch of runs of one event, each of a stream and its number; give what contradicts."""
    told = [Run(stream, 1, seq, 1, 100, 7) for stream, seq in runs]
    position = 1 if index.indexed is None else index.indexed.next_position
    header = BatchHeader(number, position, 1_700_000_000_000, 100 * len(told), told, "0" * 8, "0" * 8, 200)
    offset = 1000 * number
    with index.writing() as transaction:
        return index.apply(transaction, Batch(1, offset, header), placed_runs(header, offset), position + len(runs))


def heads(index: Index, streams: str) -> list[int | None]:
    """Give how many events streams of one letter have, as the snapshot says."""
    with index.reading() as transaction:
        states = [index.snapshot_state(transaction, stream) for stream in streams]
    return [None if state is None else state.head for state in states]


def test_a_batch_of_more_streams_than_are_remembered_is_indexed_whole(index: Index) -> None:
    """Also one with a stream twice, which no writer of ours makes, but whose header is good."""
    assert apply(index, 1, [(stream, 0) for stream in "abcd"]) == {}
    assert apply(index, 2, [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("a", 2)]) == {}
    assert heads(index, "abcde") == [3, 2, 2, 2, None]


def test_looking_at_streams_remembers_few_of_them(index: Index) -> None:
    """A writer whose requests are all refused, or stored already, keeps no more of them than one that appends."""
    for number, stream in enumerate("abcdefgh"):
        apply(index, number, [(stream, 0)])
    with index.reading() as transaction:
        found = [index.state(transaction, stream) for stream in "abcdefgh"]
    assert all(state is not None and state.head == 1 for state in found)
    assert len(index._hot) <= REMEMBERED
