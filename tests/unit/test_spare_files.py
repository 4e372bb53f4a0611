"""Small files that are written anew without any space: old or new after any crash, and as often as is wanted."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import random
from pathlib import Path

import pytest

from turnkeeper.storage.filesystem import LocalFileSystem, read_whole_file
from turnkeeper.storage.spare_files import rewrite_file

from ..simulated_disk import Death, SimulatedDisk

BLOCK = 1024


def blocks(length: int) -> int:
    """Give how many blocks of the disk a file of this length has."""
    return -(-length // BLOCK)


class FullDisk(LocalFileSystem):
    """A disk on which no file gets another block while `is_full`."""

    is_full = False
    exchanges = True

    def write(self, handle: int, offset: int, content: bytes) -> None:
        """Write what has space already."""
        if self.is_full and blocks(offset + len(content)) > blocks(self.size(handle)):
            raise OSError(errno.ENOSPC, "injected")
        super().write(handle, offset, content)

    def exchange(self, one: str, other: str) -> None:
        """Change names, where the file system can."""
        if not self.exchanges:
            raise OSError(errno.ENOSYS, "injected")
        super().exchange(one, other)


def written(number: int) -> bytes:
    """Make a content of more than a sector; hardly one is as long as another."""
    return json.dumps({"number": number, "copies": [number] * (200 + number * 7 % 11)}).encode() + b"\n"


def read(fs: LocalFileSystem | SimulatedDisk) -> int:
    """Read what was written, whole."""
    found = json.loads(read_whole_file(fs, "record.json"))
    assert set(found["copies"]) == {found["number"]}
    return int(found["number"])


def test_a_file_is_written_again_and_again_on_a_full_disk(tmp_path: Path) -> None:
    """Each time the new content is there and nothing else is left behind; with space it is written as ever."""
    fs = FullDisk(str(tmp_path))
    rewrite_file(fs, "record.json", written(0))
    fs.is_full = True
    for number in range(1, 8):
        rewrite_file(fs, "record.json", written(number))
        assert read(fs) == number
        assert sorted(fs.names("")) == ["record.json", "record.json.spare"]
    fs.is_full = False
    rewrite_file(fs, "record.json", written(8))
    assert read_whole_file(fs, "record.json") == written(8)


def test_where_names_cannot_be_exchanged_the_spare_serves_once(tmp_path: Path) -> None:
    """Behind it the disk is full for this file, too, which then stays as it is; with space there is a spare again."""
    fs = FullDisk(str(tmp_path))
    fs.exchanges = False
    rewrite_file(fs, "record.json", written(0))
    for begin in (1, 3):
        fs.is_full = True
        rewrite_file(fs, "record.json", written(begin))
        with pytest.raises(OSError, match="injected"):
            rewrite_file(fs, "record.json", written(begin + 1))
        assert read(fs) == begin
        fs.is_full = False
        rewrite_file(fs, "record.json", written(begin + 1))


def test_a_failure_that_is_no_lack_of_space_leaves_the_spare_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the disk can't sync isn't tried in another place."""
    fs = FullDisk(str(tmp_path))
    rewrite_file(fs, "record.json", written(0))

    def fail(handle: int) -> None:
        raise OSError(errno.EIO, "injected")

    monkeypatch.setattr(fs, "sync", fail)
    with pytest.raises(OSError, match="injected"):
        rewrite_file(fs, "record.json", written(1))
    assert read(fs) == 0
    assert not read_whole_file(fs, "record.json.spare").strip()


class FullSimulatedDisk(SimulatedDisk):
    """A simulated disk on which no file gets another block when it is full."""

    def write(self, handle: int, offset: int, content: bytes) -> None:
        """Write what has space already."""
        if self.free == 0 and blocks(offset + len(content)) > blocks(self.size(handle)):
            raise OSError(errno.ENOSPC, "full")
        super().write(handle, offset, content)


@pytest.mark.parametrize("keeping", ["old", "new", "torn"])
def test_a_crash_at_any_operation_leaves_one_content_or_the_other(tmp_path: Path, keeping: str) -> None:
    """Twice in a row, as the second one writes into what was the file itself before."""
    for operation in itertools.count(1):
        disk = FullSimulatedDisk(tmp_path)
        rewrite_file(disk, "record.json", written(0))
        disk.free = 0
        disk.fail_at = disk.operations + operation
        done = 0
        with contextlib.suppress(Death):
            for number in (1, 2):
                rewrite_file(disk, "record.json", written(number))
                done = number
        disk.crash(random.Random(operation), lambda name, page: keeping)
        assert read(disk) in (done, done + 1)
        if done == 2:
            return


def test_who_rewrites_behind_an_exchange_that_was_not_synced_syncs_it_first(tmp_path: Path) -> None:
    """Else the spare may be what the disk still knows as the file, and a crash would leave it half-written."""
    for operation in itertools.count(1):
        disk = FullSimulatedDisk(tmp_path)
        rewrite_file(disk, "record.json", written(0))
        disk.free = 0
        before = disk.operations
        rewrite_file(disk, "record.json", written(1))
        last = disk.operations - before

        disk = FullSimulatedDisk(tmp_path)
        rewrite_file(disk, "record.json", written(0))
        disk.free = 0
        disk.fail_at = disk.operations + last  # the sync of the names
        with pytest.raises(Death):
            rewrite_file(disk, "record.json", written(1))
        disk.fail_at = disk.operations + operation
        died = False
        try:
            rewrite_file(disk, "record.json", written(2))
        except Death:
            died = True
        disk.crash(random.Random(operation), lambda name, page: "torn")
        assert read(disk) in (0, 1, 2)
        if not died:
            return
