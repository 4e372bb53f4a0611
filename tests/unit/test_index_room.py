"""How much room a commit asks for: never less than its index entries can take."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from turnkeeper.storage.index_room import STEP_BYTES, IndexRoom, bytes_needed
from turnkeeper.storage.journal import Journal
from turnkeeper.storage.requests import Append, Appended

from ..stores import create, event, new_store


class Growth:
    """What each commit was given as its need, and by how much the index grew."""

    def __init__(self, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
        self._journal = journal
        self._index = journal._index
        self._need = 0
        self.commits = 0
        make = journal._index_room.make

        def note(runs: int, header_bytes: int) -> None:
            self._need = bytes_needed(runs, header_bytes, self._index.used_bytes(), self._index.page_bytes)
            make(runs, header_bytes)

        monkeypatch.setattr(journal._index_room, "make", note)

    def commit(self, batch: list[Append]) -> None:
        """Commit a batch, and compare."""
        before = self._index.used_bytes()
        assert {type(answer) for answer in self._journal.commit(batch)} == {Appended}
        assert self._index.used_bytes() - before <= self._need
        self.commits += 1


def test_no_commit_makes_the_index_grow_by_more_than_was_made_sure_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New streams, appends, keys and patches, few and many at once, while a reader keeps every page from reuse."""
    rng = random.Random(5)
    heads: dict[str, int] = {}

    def batch(width: int) -> list[Append]:
        if len(heads) < 15000 or rng.random() < 0.2:
            new = [f"{rng.randrange(1 << 40):010x}" for _ in range(width)]
            heads.update(dict.fromkeys(new, 1))
            return [create(each, event(each, 0), key=each, title="t" * rng.randrange(200)) for each in new]
        made = []
        how = rng.choice(("plain", "plain", "key", "patch"))
        for each in rng.sample(sorted(heads), min(width, len(heads))):
            key = f"{each} {heads[each]}" if how == "key" else None
            patch = {"title": "t" * rng.randrange(3000)} if how == "patch" else None
            made.append(Append(each, 1, heads[each], event(each, heads[each]), patch, key))
            heads[each] += 1
        return made

    with new_store(tmp_path / "store") as store:
        journal = store.open()
        growth = Growth(journal, monkeypatch)
        with journal._index.reading():
            for width in [1, 1, 10, *[1000] * 15, *[1, 2, 5, 20, 20, 20, 200] * 12]:
                growth.commit(batch(width))
                journal.between_commits()
    assert growth.commits == 102


def test_room_is_asked_for_in_steps_and_the_first_time_for_all_of_the_file(tmp_path: Path) -> None:
    """Most commits ask for none; a former writer's index may have holes, so it is gone through once."""
    with new_store(tmp_path / "store") as store:
        journal = store.open()
        asked: list[tuple[int, int]] = []

        class Noting:
            def allocate(self, path: str, offset: int, length: int) -> None:
                assert path == f"{journal.index_directory}/data.mdb"
                asked.append((offset, length))

        room = IndexRoom(Noting(), journal.index_directory, journal._index)  # type: ignore[arg-type]
        used = journal._index.used_bytes()
        for _ in range(100):
            room.keep_ahead()
            room.make(1, 100)
        assert asked == [(0, used + STEP_BYTES)]
        room.make(1000, 100_000)
        assert [offset for offset, _ in asked] == [0, used + STEP_BYTES]
