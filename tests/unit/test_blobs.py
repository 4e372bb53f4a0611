"""Contract of blobs: kept once by content, checked whenever read, named by runs, and removed only when nothing does."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.storage import blobs
from turnkeeper.storage.collecting import KEEP_FILE, BlobCollection
from turnkeeper.storage.errors import BlobMissing, Corrupt, Failed, InvalidLine, StoreFull, TooLarge
from turnkeeper.storage.filesystem import LocalFileSystem
from turnkeeper.storage.journal import Journal
from turnkeeper.storage.limits import BLOB_GRACE_SECONDS, BLOBS_A_LOOK, RESERVE_BYTES
from turnkeeper.storage.requests import Append, Appended

from ..stores import StoreInTest, appended, commit_one, create, event, lines, new_store

PICTURE = b"\x89PNG\r\n\x00\n" + bytes(range(256)) * 40


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreInTest]:
    """A new store with its journal open."""
    with new_store(tmp_path / "store") as made:
        made.open()
        yield made


@pytest.fixture
def journal(store: StoreInTest) -> Journal:
    """The open journal of the store."""
    assert store.journal is not None
    return store.journal


def put(store: StoreInTest, content: bytes = PICTURE) -> str:
    """Put a blob into a store."""
    return blobs.put(str(store.path), content)


def path_of(store: StoreInTest, digest: str) -> Path:
    """Give the path of a blob's file."""
    return store.path / "blobs" / digest[:2] / digest


def grow_old(path: Path, seconds: float = BLOB_GRACE_SECONDS + 60) -> None:
    """Let a file have been written so long ago."""
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def collect(journal: Journal) -> None:
    """Go through all blobs once, as the writer does at times."""
    journal._blobs._due = 0.0
    journal.between_commits()


# -- files by content


def test_a_blob_lies_under_the_digest_of_its_content_and_is_its_owners_alone(store: StoreInTest) -> None:
    """blobs/<ab>/<digest>, digest being BLAKE2b-256; directories 0700, files 0600, and nothing else is left."""
    digest = put(store)
    path = path_of(store, digest)
    assert digest == blake2b(PICTURE, digest_size=32).hexdigest()
    assert path.read_bytes() == PICTURE
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, path.parent.parent)] == [
        0o600,
        0o700,
        0o700,
    ]
    assert [each for each in (store.path / "blobs").rglob("*") if each.is_file()] == [path]


@given(content=st.binary(max_size=5000))
def test_what_was_put_is_got(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Any bytes come back as they were, none too."""
    root = str(tmp_path_factory.getbasetemp())
    assert blobs.get(root, blobs.put(root, content)) == content


def test_a_blob_that_is_there_is_not_written_again(store: StoreInTest) -> None:
    """The same file stays, and counts as put just now."""
    path = path_of(store, put(store))
    before = path.stat()
    grow_old(path)
    put(store)
    assert path.stat().st_ino == before.st_ino
    assert path.stat().st_mtime >= before.st_mtime


@pytest.mark.parametrize("place", [0, 1, len(PICTURE) // 2, len(PICTURE) - 1])
def test_a_flipped_byte_is_found_and_putting_again_mends_it(store: StoreInTest, place: int) -> None:
    """Reading is refused with the file's name; the next put replaces the file."""
    digest = put(store)
    path = path_of(store, digest)
    path.write_bytes(PICTURE[:place] + bytes([PICTURE[place] ^ 1]) + PICTURE[place + 1 :])
    with pytest.raises(Corrupt, match="don't fit their digest") as caught:
        blobs.get(str(store.path), digest)
    assert caught.value.path == f"blobs/{digest[:2]}/{digest}"
    put(store)
    assert blobs.get(str(store.path), digest) == PICTURE


@pytest.mark.parametrize("length", [0, 1, len(PICTURE) - 1])
def test_a_cut_blob_is_found(store: StoreInTest, length: int) -> None:
    """A shorter file has another digest."""
    digest = put(store)
    os.truncate(path_of(store, digest), length)
    with pytest.raises(Corrupt):
        blobs.get(str(store.path), digest)


def test_a_missing_blob_is_named(store: StoreInTest) -> None:
    """By its digest, and by the stream that names it, if one does."""
    digest = blobs.digest_of(PICTURE)
    with pytest.raises(BlobMissing, match=digest) as caught:
        blobs.get(str(store.path), digest, "otter")
    assert (caught.value.stream, caught.value.digest) == ("otter", digest)
    assert not blobs.renew(str(store.path), digest)


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "a" * 63, "A" * 64, "a" * 64 + "\n", "é" * 64])
def test_what_is_no_digest_becomes_no_path(store: StoreInTest, digest: str) -> None:
    """It is refused before a file is looked for."""
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        blobs.get(str(store.path), digest)


def test_a_link_in_a_blobs_place_is_not_followed(store: StoreInTest) -> None:
    """Reading it is refused as damage."""
    digest = put(store)
    path = path_of(store, digest)
    path.rename(store.path / "elsewhere")
    path.symlink_to(store.path / "elsewhere")
    with pytest.raises(Corrupt, match="can't be read"):
        blobs.get(str(store.path), digest)


def test_a_blob_over_the_limit_is_refused(store: StoreInTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written, and a file that is longer than any blob is damage and isn't read."""
    digest = put(store)
    monkeypatch.setattr(blobs, "BLOB_BYTES_MAX", len(PICTURE) - 1)
    with pytest.raises(TooLarge):
        put(store)
    with pytest.raises(Corrupt):
        blobs.get(str(store.path), digest)


def test_the_journals_reserve_is_not_for_blobs(store: StoreInTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that would use it up is refused before anything is written; one that is there already needs no space."""
    digest = put(store)
    monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda self: RESERVE_BYTES)
    with pytest.raises(StoreFull):
        put(store, b"other")
    assert not path_of(store, blobs.digest_of(b"other")).exists()
    assert put(store) == digest


@pytest.mark.parametrize(("code", "error"), [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, Failed)])
@pytest.mark.parametrize("operation", ["write", "sync", "replace", "sync_directory"])
def test_a_failing_disk_leaves_no_half_blob(
    store: StoreInTest, monkeypatch: pytest.MonkeyPatch, operation: str, code: int, error: type[Exception]
) -> None:
    """Whatever step fails, the error says so, and a name has its whole content or is not there; no temporary stays."""

    def fail(*arguments: object) -> None:
        raise OSError(code, "injected")

    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, operation, fail)
        with pytest.raises(error):
            put(store)
    files = [each for each in (store.path / "blobs").rglob("*") if each.is_file()]
    assert [each.read_bytes() for each in files] == [PICTURE] * (operation == "sync_directory")
    assert blobs.get(str(store.path), put(store)) == PICTURE


def test_a_put_returns_when_content_and_name_are_synced(store: StoreInTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content before it has its name, then every directory on the way; the latter also for one that was there."""
    done: list[str] = []

    def recorded(name: str) -> Callable[..., object]:
        real = getattr(LocalFileSystem, name)

        def record(self: LocalFileSystem, *arguments: Any, **named: Any) -> object:
            done.append(f"{name} {arguments[0]}" if name == "sync_directory" else name)
            return real(self, *arguments, **named)

        return record

    for name in ("write", "sync", "replace", "sync_directory"):
        monkeypatch.setattr(LocalFileSystem, name, recorded(name))
    directories = [f"sync_directory {path}" for path in (f"blobs/{blobs.digest_of(PICTURE)[:2]}", "blobs", "")]
    put(store)
    assert done == ["write", "sync", "replace", *directories]
    done.clear()
    put(store)
    assert done == directories


def test_a_killed_put_leaves_no_name_without_content(store: StoreInTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a temporary file is left when its process ends between two steps, and the next put isn't in its way."""

    class Killed(BaseException):
        """The end of the process."""

    def die(*arguments: object) -> None:
        raise Killed

    for operation in ("sync", "replace"):
        with monkeypatch.context() as patched, suppress(Killed):
            patched.setattr(LocalFileSystem, operation, die)
            patched.setattr(LocalFileSystem, "remove", die)
            put(store)
    left = [each.name for each in (store.path / "blobs").rglob("*") if each.is_file()]
    assert len(left) == 2
    assert all(name.endswith(".tmp") for name in left)
    assert blobs.get(str(store.path), put(store)) == PICTURE


# -- named by runs


def test_an_append_may_name_what_was_put(store: StoreInTest, journal: Journal) -> None:
    """Its digest belongs to the run and not to the summary."""
    digest = put(store)
    assert isinstance(commit_one(journal, create("a", event("a", 0), blobs=[digest])), Appended)
    assert "blobs" not in journal.row("a").summary
    assert journal._is_blob_named(digest)


def test_an_append_that_names_a_missing_blob_is_refused_alone(store: StoreInTest, journal: Journal) -> None:
    """Nothing of it is stored and its neighbours are; put again, the same append is."""
    digest = blobs.digest_of(PICTURE)
    wanted = create("a", event("a", 0), blobs=[digest])
    refused, stored = journal.commit([wanted, create("b", event("b", 0))])
    assert isinstance(refused, BlobMissing)
    assert (refused.stream, refused.digest) == ("a", digest)
    assert isinstance(stored, Appended)
    assert list(store.events()) == ["b"]
    put(store)
    first = appended(journal, wanted)
    assert appended(journal, wanted) == first


def test_lines_that_are_stored_are_acknowledged_though_their_blob_was_lost_since(
    store: StoreInTest, journal: Journal
) -> None:
    """A resend asks what is stored, not what became of it."""
    digest = put(store)
    wanted = create("a", event("a", 0), blobs=[digest])
    first = appended(journal, wanted)
    path_of(store, digest).unlink()
    assert appended(journal, wanted) == first


@pytest.mark.parametrize("named", ["../x", ["../x"], [1], {"a": 1}, None])
def test_what_is_no_digest_is_never_named(store: StoreInTest, journal: Journal, named: object) -> None:
    """The run is refused as a bug or an attack."""
    assert isinstance(commit_one(journal, create("a", event("a", 0), blobs=named)), InvalidLine)


def test_blobs_of_one_run_add_up(store: StoreInTest, journal: Journal) -> None:
    """Appends that one commit joins into a run keep what each of them names, and an index built anew equals it."""
    digests = [put(store, bytes([number])) for number in range(4)]
    appended(journal, create("a", event("a", 0), blobs=digests[:1]))
    results = journal.commit(
        [
            Append("a", 1, 1, event("a", 1), {"blobs": digests[:2], "title": "x"}),
            Append("a", 1, 2, event("a", 2), {"blobs": digests[2:3]}),
            Append("a", 1, 3, event("a", 3)),
        ]
    )
    assert all(isinstance(result, Appended) for result in results)
    assert [journal._is_blob_named(digest) for digest in digests] == [True, True, True, False]
    kept = store.index_entries()
    assert len(kept["blobs"]) == 4
    store.kill()
    store.delete_index()
    store.open()
    assert store.index_entries() == kept


# -- collection


def test_what_a_run_names_stays_and_what_none_names_goes_when_it_is_old(store: StoreInTest, journal: Journal) -> None:
    """The age counts from the last put, so what is about to be named is never removed."""
    named, left, fresh = (put(store, content) for content in (b"named", b"left", b"fresh"))
    half = path_of(store, left).with_name(f"{left}.12345678.tmp")
    young = half.with_name(f"{left}.87654321.tmp")
    foreign = half.with_name("README")
    for path in (half, young, foreign):
        path.write_bytes(b"?")
    appended(journal, create("a", event("a", 0), blobs=[named]))
    for path in (path_of(store, named), path_of(store, left), half, foreign):
        grow_old(path)
    collect(journal)
    found = {each for each in (store.path / "blobs").rglob("*") if each.is_file()}
    assert found == {path_of(store, named), path_of(store, fresh), young, foreign}
    assert blobs.get(str(store.path), named) == b"named"


def test_opening_collects_too(store: StoreInTest) -> None:
    """What a killed client left is gone after the next opening, once it is old; from a trusted index and a new one."""
    for content, is_deleted in ((b"one", False), (b"two", True)):
        digest = put(store, content)
        grow_old(path_of(store, digest))
        store.kill()
        if is_deleted:
            store.delete_index()
        store.open()
        assert not path_of(store, digest).exists()


def test_a_put_makes_an_old_blob_young(store: StoreInTest, journal: Journal) -> None:
    """One that is there and unnamed gets its hour again, and so it does when only asked for."""
    root = str(store.path)
    for again in (lambda: put(store), lambda: blobs.renew(root, blobs.digest_of(PICTURE))):
        path = path_of(store, put(store))
        grow_old(path)
        again()
        collect(journal)
        assert path.exists()


def test_a_look_is_short_however_many_blobs_there_are(tmp_path: Path) -> None:
    """A round takes as many looks as it needs, of so many files each, and then finds the same again."""
    fs = LocalFileSystem(str(tmp_path))
    (tmp_path / "blobs" / "ab").mkdir(parents=True)
    for number in range(2 * BLOBS_A_LOOK):
        (tmp_path / "blobs" / "ab" / f"ab{number:062x}").touch()
    asked: list[str] = []

    def is_named(digest: str) -> bool:
        asked.append(digest)
        return False

    collection = BlobCollection(fs, is_named)
    now = os.stat(tmp_path).st_mtime + BLOB_GRACE_SECONDS + 60
    looks = 1
    while not collection.look(now):
        assert len(asked) <= looks * BLOBS_A_LOOK
        looks += 1
    assert (looks, len(asked)) == (3, 2 * BLOBS_A_LOOK)
    assert list((tmp_path / "blobs" / "ab").iterdir()) == []


def test_what_cant_be_looked_at_is_no_failure_of_the_writer(store: StoreInTest, journal: Journal) -> None:
    """A file where a directory should be ends the round, and commits go on."""
    put(store)
    (store.path / "blobs" / "zz").write_bytes(b"")
    collect(journal)
    appended(journal, create("a", event("a", 0)))


def test_nothing_is_collected_once_the_journal_was_damaged(store: StoreInTest, journal: Journal) -> None:
    """A lost header may have named it: a note keeps everything, over later openings too, until it is removed."""
    named = put(store)
    appended(journal, create("a", lines("a", 0, 2), blobs=[named]))
    appended(journal, create("b", event("b", 0)))
    store.kill()
    grow_old(path_of(store, named))
    content = store.segment().read_bytes()
    place = content.index(b'{"$batch":1,') + 5
    store.segment().write_bytes(content[:place] + b"X" + content[place + 1 :])
    store.delete_index()
    for _ in range(2):
        reopened = store.open()
        assert not reopened._is_blob_named(named)
        collect(reopened)
        assert path_of(store, named).exists()
        store.close()
    (store.path / KEEP_FILE).unlink()
    collect(store.open())
    assert not path_of(store, named).exists()


def test_rounds_are_rare(store: StoreInTest, journal: Journal) -> None:
    """Between two of them commits don't look at a single file."""
    path = path_of(store, put(store))
    grow_old(path)
    appended(journal, create("a", event("a", 0)))
    journal.between_commits()
    assert path.exists()
    collect(journal)
    assert not path.exists()
