"""Contract: what the SQLite backend tells of events that its database lacks, to who reads by position."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from turnkeeper.storage.backend import open_reader
from turnkeeper.storage.contract import creation, event, events
from turnkeeper.storage.requests import Append, LostEvents
from turnkeeper.storage.sqlite.losses import NOBODYS, PAGE_DAMAGED, ROWS_GONE

from .backends import new_store

COUNT = 200
"""Events of `a` at even positions and of `b` at odd ones."""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A store whose database is closed, with events of two streams in turn on several pages."""
    with new_store(tmp_path / "store", "sqlite") as made:
        backend = made.open()
        backend.commit([creation("b", event("b", 0)), creation("a", event("a", 0))])
        backend.commit([Append(id, 1, seq, events(id, seq, 1)) for seq in range(1, COUNT // 2) for id in ("b", "a")])
        made.close()
        yield made.path


def remove(path: Path, *commands: str) -> None:
    """Change the database by hand."""
    with closing(sqlite3.connect(path / "store.sqlite")) as database, database:
        for command in commands:
            database.execute(command)


def walked(path: Path, size_max: int) -> tuple[list[int], list[LostEvents]]:
    """Read all positions, page by page; each page has to settle each of its positions."""
    positions: list[int] = []
    lost: list[LostEvents] = []
    after = 0
    with closing(open_reader(str(path))) as reader:
        while (page := reader.scan(after, size_max)).reached > after:
            settled = [event.position for event in page.events]
            for each in page.lost:
                settled += range(each.position, each.position + each.width)
            assert set(settled) >= set(range(after + 1, page.reached + 1))
            positions += [event.position for event in page.events]
            lost += page.lost
            after = page.reached
        assert after == COUNT
    return positions, lost


@pytest.mark.parametrize("size_max", [1, 1 << 20])
@pytest.mark.parametrize(("first", "last"), [(1, 1), (8, 8), (COUNT, COUNT)])
def test_a_row_that_is_gone_is_told_of_its_stream(path: Path, size_max: int, first: int, last: int) -> None:
    """The first, one in the middle and the last: by stream and number."""
    remove(path, f"DELETE FROM events WHERE position BETWEEN {first} AND {last}")
    positions, lost = walked(path, size_max)
    stream, seq = ("a" if first % 2 == 0 else "b"), (first - 1) // 2
    assert [(each.position, each.stream, each.gap.first, each.gap.events) for each in lost] == [(first, stream, seq, 1)]
    assert lost[0].gap.reason == ROWS_GONE
    assert positions == [each for each in range(1, COUNT + 1) if each != first]


def test_rows_of_several_streams_that_are_gone_are_told_of_each(path: Path) -> None:
    """Each with the numbers that it lacks."""
    remove(path, "DELETE FROM events WHERE position BETWEEN 9 AND 12")
    _, lost = walked(path, 1 << 20)
    assert sorted((each.stream, each.gap.first, each.gap.events) for each in lost) == [("a", 4, 2), ("b", 4, 2)]


def test_losses_far_from_each_other_are_each_told_where_they_are(path: Path) -> None:
    """None is told at the other one's place."""
    remove(path, "DELETE FROM events WHERE position IN (9, 100)")
    _, lost = walked(path, 1 << 20)
    assert [(each.position, each.stream, each.gap.first) for each in lost] == [(9, "b", 4), (100, "a", 49)]


def test_several_losses_between_two_events_of_a_stream_are_each_told_with_all_its_numbers(path: Path) -> None:
    """Which of them stood at which place nobody can know; no position is told that isn't lost."""
    remove(path, "DELETE FROM events WHERE position IN (10, 12)")
    positions, lost = walked(path, 1 << 20)
    told = [(each.position, each.width, each.stream, each.gap.first, each.gap.events) for each in lost]
    assert told == [(10, 1, "a", 4, 2), (12, 1, "a", 4, 2)]
    assert positions == [each for each in range(1, COUNT + 1) if each not in (10, 12)]


def test_rows_of_a_stream_that_is_gone_itself_are_told_as_nobodys(path: Path) -> None:
    """Nothing says any more whose they were."""
    remove(path, "DELETE FROM events WHERE stream = 'a'", "DELETE FROM streams WHERE id = 'a'")
    positions, lost = walked(path, 1 << 20)
    assert {(each.stream, each.gap.reason) for each in lost} == {("", NOBODYS)}
    assert positions == list(range(1, COUNT, 2))


@pytest.mark.parametrize("size_max", [1, 1 << 20])
def test_a_damaged_page_is_told_by_the_index_of_numbers_and_gone_on_behind(path: Path, size_max: int) -> None:
    """Its events are named one by one, and those on the pages beside it are given."""
    database = path / "store.sqlite"
    content = database.read_bytes()
    with closing(sqlite3.connect(database)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (line,) = connection.execute("SELECT line FROM events WHERE position = 100").fetchone()
    page = content.index(line) // size * size
    database.write_bytes(content[:page] + bytes(size) + content[page + size :])
    positions, lost = walked(path, size_max)
    assert 1 < len(lost) < COUNT / 2
    assert {each.gap.reason for each in lost} == {PAGE_DAMAGED}
    assert sorted([*positions, *(each.position for each in lost)]) == list(range(1, COUNT + 1))
    assert 100 in [each.position for each in lost]
    assert all(
        (each.stream, each.gap.first) == ("ba"[each.position % 2 == 0], (each.position - 1) // 2) for each in lost
    )
