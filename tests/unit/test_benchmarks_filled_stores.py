"""Filled stores hold what they say, in the shape that they say, and a journal is whole."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from turnkeeper.benchmarks.measuring.runs import be_quiet
from turnkeeper.benchmarks.stores import filled
from turnkeeper.benchmarks.stores.filled import (
    SCATTERED,
    SESSIONS,
    FilledStores,
    Filling,
    fill_stores,
    session_name,
)
from turnkeeper.storage.backend import open_reader
from turnkeeper.storage.verify import verify


def test_a_store_holds_the_events_of_sessions_that_ran_side_by_side(tmp_path: Path) -> None:
    """A batch has a run of each session, a scattered session's events lie far apart, and SQLite holds as many."""
    fillings = {
        tmp_path / "one": Filling(1_000, scattered=5),
        tmp_path / "ten": Filling(2_500, run_events=10),
        tmp_path / "rows": Filling(1_250, backend="sqlite"),
    }
    told: list[str] = []
    fill_stores(fillings, told.append)
    assert told[-1] == (
        "filling with events: 100 % of 1,005 (journal), 100 % of 3,000 (journal), 100 % of 1,300 (sqlite)"
    )
    for path, filling in fillings.items():
        reader = open_reader(str(path))
        assert reader.next_position() - 1 == filling.stored
        for number in (0, SESSIONS - 1):
            page = reader.read(session_name(number))
            assert [event.seq for event in page.events] == list(range(filling.session_events))
            assert not page.missing
        reader.close()
    reader = open_reader(str(tmp_path / "one"))
    positions = [event.position for event in reader.read(SCATTERED).events]
    reader.close()
    assert [after - before for before, after in pairwise(positions)] == [201] * 4


@pytest.mark.parametrize(("run_events", "batches"), [(1, 30), (10, 3)])
def test_a_filled_journal_is_whole(tmp_path: Path, run_events: int, batches: int) -> None:
    """Also after filling without syncs: verify finds all of it, and nothing wrong."""
    fill_stores({tmp_path / "store": Filling(3_000, run_events)}, be_quiet)
    found = verify(str(tmp_path / "store"))
    assert (found.events, found.batches, found.damaged, found.index_why) == (3_000, batches, [], "")


def test_a_full_disk_is_told_before_anything_is_made(tmp_path: Path) -> None:
    """What doesn't fit isn't begun."""
    with pytest.raises(OSError, match=r"takes 620,000,000,000.5 GB of disk and .* GB are free; make space"):
        fill_stores({tmp_path / "store": Filling(10**18)}, be_quiet)
    assert list(tmp_path.iterdir()) == []


def test_a_filling_that_is_only_read_is_made_once(tmp_path: Path) -> None:
    """Whoever asks for the same gets the same store; who changes one gets it for himself, and it goes when all rest."""
    told: list[str] = []
    with FilledStores(tmp_path, told.append) as stores:
        (first,) = stores.read(Filling(100))
        assert stores.read(Filling(100)) == [first]
        both = stores.take(Filling(100), Filling(200))
        assert both[0] == first
        assert sum("100 % of" in line for line in told) == 2
        stores.rest()
        assert list(tmp_path.iterdir()) == []
        (again,) = stores.read(Filling(100))
        assert again not in both
        stores.rest()
        assert list(tmp_path.iterdir()) == [again]
    assert list(tmp_path.iterdir()) == []


def test_stores_that_nobody_uses_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes first, and none that somebody has."""
    with FilledStores(tmp_path, be_quiet) as stores:
        (old,) = stores.read(Filling(100))
        stores.rest()
        (used,) = stores.read(Filling(200))
        monkeypatch.setattr(filled, "free_bytes", lambda directory: 0 if old.exists() else 1 << 40)
        (new,) = stores.read(Filling(300))
        assert sorted(tmp_path.iterdir()) == sorted([used, new])
