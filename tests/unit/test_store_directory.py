"""Making and refusing store directories, and the lock that lives on store.json."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from turnkeeper.storage import lock, store
from turnkeeper.storage.errors import NewerFormat, StoreMissing, StoreRefused

from ..stores import create, event, new_store


def test_a_new_store_is_private_whatever_the_umask(tmp_path: Path) -> None:
    """Directories are 0700 and files 0600 under umask 000 too."""
    old = os.umask(0)
    try:
        with new_store(tmp_path / "store") as made:
            made.open().commit([create("a", event("a", 0))])
            made.close()
    finally:
        os.umask(old)
    for path in [tmp_path / "store", *(tmp_path / "store").rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_missing_parent_is_named_and_nothing_is_made(tmp_path: Path) -> None:
    """Only the store itself is made, not what lies above it, unless asked."""
    wanted = tmp_path / "missing" / "store"
    with pytest.raises(StoreRefused, match="the directory above it is missing"):
        store.make_directory(str(wanted))
    assert not wanted.parent.exists()
    store.make_directory(str(wanted), parents=True)
    assert wanted.is_dir()


def test_a_file_is_no_store(tmp_path: Path) -> None:
    """A path that is a file, or lies below one, is refused."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "store"):
        with pytest.raises(StoreRefused):
            store.make_directory(str(path))
    with pytest.raises(StoreRefused, match="not a directory"):
        store.check_directory(str(tmp_path / "file"))


def test_looking_at_nothing_makes_nothing(tmp_path: Path) -> None:
    """A missing store, an empty directory and one that was never finished are StoreMissing and stay as they are."""
    (tmp_path / "empty").mkdir(mode=0o700)
    (tmp_path / "begun").mkdir(mode=0o700)
    (tmp_path / "begun" / "store.json").touch(0o600)
    for name in ("none", "empty", "begun"):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(StoreMissing):
            store.describe(str(tmp_path / name))
        assert sorted(tmp_path.rglob("*")) == before


def test_a_newer_format_is_not_called_damaged(tmp_path: Path) -> None:
    """A store of a later version says so, naming both versions."""
    (tmp_path / "store.json").write_text(json.dumps({"format": 9, "store": "x", "created": 1}))
    tmp_path.chmod(0o700)
    with pytest.raises(NewerFormat) as caught:
        store.describe(str(tmp_path))
    assert (caught.value.found, caught.value.known) == (9, 1)


@pytest.mark.parametrize(
    "content", [b"garbage", b"[]", b"{}", b'{"format":1,"store":"no"}', b"\xff\0", b'{"format":"x"}']
)
def test_a_description_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    """Whatever store.json holds, the answer is one clear error."""
    (tmp_path / "store.json").write_bytes(content)
    tmp_path.chmod(0o700)
    with pytest.raises(StoreRefused, match="isn't a turnkeeper store"):
        store.describe(str(tmp_path))


def test_a_store_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """A group-writable directory is refused with the command that mends it."""
    tmp_path.chmod(0o770)
    with pytest.raises(StoreRefused, match="chmod go-w"):
        store.check_directory(str(tmp_path))


@pytest.mark.root
def test_a_store_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """A directory that another user owns is refused."""
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(StoreRefused, match="12345"):
        store.check_directory(str(tmp_path))


def test_a_network_file_system_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS, SMB and 9p keep no promise about locks and syncs."""
    monkeypatch.setattr(store, "refused_file_system", lambda path: "NFS")
    tmp_path.chmod(0o700)
    with pytest.raises(StoreRefused, match="NFS keeps no promise"):
        store.check_directory(str(tmp_path))
    monkeypatch.undo()
    assert store.refused_file_system(str(tmp_path)) is None


@pytest.mark.root
def test_a_9p_magic_number_is_known() -> None:
    """The magic numbers are those of statfs: the name of a refused one is found through the same call."""
    assert store._REFUSED_FILE_SYSTEMS[0x6969] == "NFS"
    assert store.refused_file_system("/proc") is None


def test_a_store_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """store.json carries the lock, so it is never followed elsewhere."""
    (tmp_path / "elsewhere").touch()
    (tmp_path / "store").mkdir(mode=0o700)
    (tmp_path / "store" / "store.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreRefused, match="symbolic link"):
        store.open_store_file(str(tmp_path / "store"), create=True)


def test_the_lock_is_held_by_one_open_file_and_its_heirs(tmp_path: Path) -> None:
    """A second open file is refused, asking takes nothing, and a child that inherited the first keeps holding it."""
    with new_store(tmp_path / "store") as made:
        root = str(made.path)
        other = os.open(made.path / "store.json", os.O_RDWR)
        reader = os.open(made.path / "store.json", os.O_RDONLY)
        try:
            assert not lock.take(other)
            assert lock.is_held(other)
            assert lock.is_held(reader)
            assert not lock.is_held(made.lock), "the holder's own file isn't another's"
            assert lock.store_is_held(root)
            child = subprocess.Popen(
                [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[made.lock],
            )
            assert child.stdout is not None
            assert child.stdin is not None
            assert child.stdout.readline() == b"up\n"
            os.close(made.lock)
            assert lock.store_is_held(root), "the child still holds it"
            child.stdin.close()
            assert child.wait(timeout=10) == 0
            child.stdout.close()
            assert not lock.store_is_held(root)
            assert lock.take(other)
            made.lock = os.dup(other)
        finally:
            os.close(other)
            os.close(reader)


def test_what_a_store_was_made_as_is_checked(tmp_path: Path) -> None:
    """Finishing a finished store changes nothing and gives the same description."""
    with new_store(tmp_path / "store") as made:
        again = store.finish(made.lock, str(made.path))
        assert again == made.description == store.describe(str(made.path))
