"""Stores copied while they are used, moved back, and gone on with in two places."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from turnkeeper.storage.requests import Append
from turnkeeper.storage.verify import verify

from ..stores import StoreInTest, appended, create, event, lines, new_store


def _copy(source: Path, target: Path) -> None:
    """Copy a directory as people do, with everything that can be copied."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def _open_there(store: StoreInTest, path: Path) -> StoreInTest:
    """Take the lock of a copied store."""
    made = StoreInTest(path)
    assert made.description == store.description
    return made


def test_the_index_of_a_copy_that_was_moved_back_is_not_opened(tmp_path: Path) -> None:
    """A copy may have got the very inode numbers of the original, and its index is from the middle of something."""
    path = tmp_path / "store"
    for _ in range(5):
        with new_store(path) as store:
            journal = store.open()
            appended(journal, create("a", lines("a", 0, 3)))
            _copy(path, tmp_path / "copy")
            appended(journal, Append("a", 1, 3, event("a", 3)))
        shutil.rmtree(path)
        _copy(tmp_path / "copy", path)
        back = StoreInTest(path)
        try:
            journal = back.open()
            assert journal.report.rebuilt == "its file is a copy"
            assert journal.report.findings == []
            assert journal.row("a").head == 3
            assert appended(journal, Append("a", 1, 3, event("a", 3))).head == 4
        finally:
            back.end()
        shutil.rmtree(path)
        shutil.rmtree(tmp_path / "copy")


def test_a_copy_of_a_live_store_holds_a_beginning(tmp_path: Path) -> None:
    """What was acknowledged before the copy was begun is in it, whatever is appended meanwhile."""
    with new_store(tmp_path / "store") as store:
        journal = store.open()
        head = appended(journal, create("a", lines("a", 0, 3))).head
        copying = subprocess.Popen(["cp", "-a", str(tmp_path / "store"), str(tmp_path / "copy")])
        last = head
        while copying.poll() is None:
            last = appended(journal, Append("a", 1, last, event("a", last, f"hello {last}"))).head
        assert copying.returncode == 0
        copy = _open_there(store, tmp_path / "copy")
        try:
            journal = copy.open()
            assert journal.report.rebuilt
            found = copy.events()["a"]
        finally:
            copy.end()
    assert head <= len(found) <= last
    assert found == [event("a", seq, f"hello {seq}").removesuffix(b"\n") for seq in range(len(found))]


def test_a_store_and_its_copy_go_on_by_themselves(tmp_path: Path) -> None:
    """Both have the same beginning and the same name; what is written to one is nothing to the other."""
    with new_store(tmp_path / "store") as store:
        journal = store.open()
        appended(journal, create("a", lines("a", 0, 2)))
        _copy(tmp_path / "store", tmp_path / "copy")
        copy = _open_there(store, tmp_path / "copy")
        try:
            there = copy.open()
            assert there.index_directory != journal.index_directory
            seqs = range(2, 20)
            for seq in seqs:
                appended(journal, Append("a", 1, seq, event("a", seq, "here")))
                appended(there, Append("a", 1, seq, event("a", seq, "there")))
            appended(there, create("b", event("b", 0)))
            for each, text in ((store, "here"), (copy, "there")):
                assert [line + b"\n" for line in each.events()["a"][2:]] == [event("a", seq, text) for seq in seqs]
            assert store.events().keys() == {"a"}
            store.close()
            copy.close()
        finally:
            copy.end()
        for path in (tmp_path / "store", tmp_path / "copy"):
            verification = verify(str(path))
            assert (verification.damaged, verification.torn_tail, verification.index_why) == ([], None, "")
