"""Disks that somebody else fills to the last byte, at the worst moments."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from turnkeeper.storage.errors import Failed, IndexFailed, StoreFull
from turnkeeper.storage.filesystem import LocalFileSystem
from turnkeeper.storage.journal import Journal
from turnkeeper.storage.requests import Append, Appended
from turnkeeper.storage.trust import read_index_record

from ..small_disk import SmallDisk, small_disk
from ..stores import StoreInTest, appended, commit_one, create, event, lines, new_store


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, memory_path: Path) -> Iterator[SmallDisk]:
    """A file system of its own, in memory."""
    with small_disk(request.param, memory_path) as mounted:
        yield mounted


class OvertakenFileSystem(LocalFileSystem):
    """Just before a batch is written, when its room has been looked at, `overtake` is called."""

    overtake: Callable[[], None] = staticmethod(lambda: None)

    def write(self, handle: int, offset: int, content: bytes) -> None:
        """Write, but let somebody else be quicker if it is a batch."""
        if content.startswith(b'{"$batch"'):
            self.overtake()
        super().write(handle, offset, content)


def begun(streams: int) -> list[Append]:
    """Make the first appends of so many streams, with what the index keeps of them."""
    return [create(f"s{n:04}", event(f"s{n:04}", 0), key=f"key {n}", title="t" * 600) for n in range(streams)]


@pytest.mark.root
def test_a_disk_that_is_filled_in_the_middle_of_a_commit_stores_it_and_refuses_the_next(disk: SmallDisk) -> None:
    """All space is gone between the look for it and the write: batch and index lie in what was taken before."""
    with new_store(disk.path / "store") as store:
        fs = OvertakenFileSystem(str(store.path))
        journal = store.open(fs=fs)
        for count in (1, 1000):
            appended(journal, create(f"first-of-{count}", event(f"first-of-{count}", 0)))
            journal.between_commits()
            fs.overtake = disk.fill
            assert {type(each) for each in journal.commit(begun(1000)[1000 - count :])} == {Appended}
            assert isinstance(commit_one(journal, create("late", event("late", 0))), StoreFull)
            journal.between_commits()
            fs.overtake = staticmethod(lambda: None)
            disk.free()
        assert appended(journal, create("late", event("late", 0))).head == 1
        assert len(store.events()) == 2 + 1000 + 1


@pytest.mark.root
def test_a_store_is_killed_opened_and_closed_on_a_disk_without_a_byte(disk: SmallDisk) -> None:
    """It is read and refuses what would be written, keeps its index, and goes on where it was when there is space."""
    with new_store(disk.path / "store") as store:
        appended(store.open(), create("a", lines("a", 0, 3)))
        disk.fill()
        for _ in range(2):
            store.kill()
            disk.fill()
            assert refuses(store.open())
            assert [len(each) for each in store.events().values()] == [3]
            store.close()
            disk.fill()
            assert refuses(store.open())
            store.close()
            record = read_index_record(LocalFileSystem(str(store.path)))
            assert record is not None
            assert record.state == "clean"
        disk.free()
        journal = store.open()
        assert journal.report.rebuilt == ""
        assert appended(journal, Append("a", 1, 3, event("a", 3))).head == 4
        assert not list(store.path.glob("*.tmp"))


def refuses(journal: Journal) -> bool:
    """Say whether an append is refused because the disk is full."""
    return isinstance(commit_one(journal, Append("a", 1, 3, event("a", 3))), StoreFull)


@pytest.mark.root
def test_an_index_that_is_not_trusted_gives_its_space_to_the_next_one(disk: SmallDisk) -> None:
    """As after the machine's death on a full disk: it is built anew without a free byte, and the store is served."""
    with new_store(disk.path / "store") as store:
        store.open().commit(begun(200))
        store.kill()
        disk.fill()
        journal = store.open(boot="another boot")
        assert "the machine went down" in journal.report.rebuilt
        assert len(store.events()) == 200
        assert isinstance(commit_one(journal, create("late", event("late", 0))), StoreFull)
        disk.free()
        assert appended(journal, create("late", event("late", 0))).head == 1


@pytest.mark.root
def test_an_opening_that_needs_space_is_refused_as_an_append_is(disk: SmallDisk) -> None:
    """A lost index can't be built anew on a full disk: StoreFull, and with space again nothing is missing."""
    with new_store(disk.path / "store") as store:
        appended(store.open(), create("a", lines("a", 0, 3)))
        store.close()
        store.delete_index()
        disk.fill()
        with pytest.raises(StoreFull):
            store.open()
        disk.free()
        store.open()
        assert [len(each) for each in store.events().values()] == [3]


@pytest.mark.root
def test_readers_of_a_full_disk_live_however_many_they_are(disk: SmallDisk) -> None:
    """Each writes itself into a map of the index's lock file, which would kill it where the file has no space."""
    with new_store(disk.path / "store") as store:
        journal = store.open()
        appended(journal, create("a", event("a", 0)))
        disk.fill()
        reader = [sys.executable, "-c", READER, str(store.path / journal.index_directory)]
        assert subprocess.run(reader, timeout=20, check=False).returncode == 0


READER = """
import contextlib, sys
from turnkeeper.storage.index import Index
index = Index.open_readable(sys.argv[1], lock=True)
with contextlib.ExitStack() as held:
    for _ in range(200):
        held.enter_context(index.reading())
"""
"""Takes two hundred readers' places."""


class RoomlessFileSystem(LocalFileSystem):
    """Gives the index no room behind what it has, with this error."""

    code = 0

    def allocate(self, path: str, offset: int, length: int) -> None:
        """Refuse, or do it."""
        if self.code:
            raise OSError(self.code, "injected")
        super().allocate(path, offset, length)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_room_that_the_index_does_not_get_is_store_full(memory_path: Path, code: int) -> None:
    """The batch is refused before a byte of it is written; the same journal takes it when there is room."""
    with new_store(memory_path / "store") as store:
        fs = RoomlessFileSystem(str(store.path))
        journal = store.open(fs=fs)
        appended(journal, create("a", event("a", 0)))
        before = store.content()
        fs.code = code
        journal.between_commits()
        batch = begun(300)
        assert {type(answer) for answer in journal.commit(batch)} == {StoreFull}
        assert store.content() == before
        fs.code = 0
        assert {type(answer) for answer in journal.commit(batch)} == {Appended}
        assert len(store.events()) == 301


def test_room_that_fails_otherwise_ends_the_writer_before_anything_is_written(memory_path: Path) -> None:
    """A disk that fails is no full one: nothing more is taken, and the next opening finds what was there."""
    with new_store(memory_path / "store") as store:
        fs = RoomlessFileSystem(str(store.path))
        journal = store.open(fs=fs)
        appended(journal, create("a", event("a", 0)))
        before = store.content()
        fs.code = errno.EIO
        with pytest.raises(Failed):
            journal.commit(begun(300))
        assert store.content() == before
        store.kill()
        assert len(reopened(store)) == 1


def test_without_allocation_an_index_still_grows(memory_path: Path) -> None:
    """Where the file system gives no room ahead, or a limit on files forbids to ask for it, nothing is refused."""
    with new_store(memory_path / "store") as store:
        fs = RoomlessFileSystem(str(store.path))
        journal = store.open(fs=fs)
        fs.code = errno.EFBIG
        assert {type(answer) for answer in journal.commit(begun(300))} == {Appended}


def test_an_index_that_a_full_disk_stopped_is_kept(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transaction failed for want of space, so nothing speaks against it: the successor opens it."""
    with new_store(memory_path / "store") as store:
        journal = store.open()
        appended(journal, create("a", event("a", 0)))
        fill_in_index_transaction(journal, monkeypatch)
        with pytest.raises(Failed, match="the disk is full") as raised:
            commit_one(journal, Append("a", 1, 1, event("a", 1)))
        assert not isinstance(raised.value, IndexFailed)
        monkeypatch.undo()
        store.kill()
        assert [len(each) for each in reopened(store).values()] == [2]


def fill_in_index_transaction(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk be full from the next index transaction on, and that fail for it."""

    def fail(*arguments: object) -> None:
        monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda self: 0)
        raise IndexFailed("the index transaction failed: mdb_txn_commit: No space left on device")

    monkeypatch.setattr(journal, "_index_batch", fail)


def reopened(store: StoreInTest) -> dict[str, list[bytes]]:
    """Open a store whose journal was let go of, and give what is in it; its index must have been trusted."""
    assert store.open().report.rebuilt == ""
    return store.events()
