"""The journal under a disk that fails, and under its process's death, at the n-th operation, for every n."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from turnkeeper.storage import journal as journal_module
from turnkeeper.storage.errors import Failed, StoreFull
from turnkeeper.storage.filesystem import LocalFileSystem
from turnkeeper.storage.requests import Append, Appended, Grant, Granted

from ..stores import StoreInTest, appended, create, event, lines, new_store, owner


class Death(BaseException):
    """Stands for SIGKILL: nothing of the process runs after it."""


class FailingFileSystem(LocalFileSystem):
    """Counts the operations that change the disk, and fails the n-th: before it, half-way, or after it."""

    def __init__(self, root: str, fail_at: int, how: str) -> None:
        super().__init__(root)
        self.fail_at = fail_at
        self.how = how
        self.done = 0
        self.failed = False

    def _step(self) -> bool:
        self.done += 1
        self.failed = self.failed or self.done == self.fail_at
        return self.done == self.fail_at

    def _fail(self, code: int = errno.EIO) -> None:
        raise Death if self.how.startswith("death") else OSError(code, "injected")

    def write(self, handle: int, offset: int, content: bytes) -> None:
        """Write, or write a part and fail."""
        if self._step():
            part = {"before": 0, "half": len(content) // 2, "after": len(content)}[self.how.partition(" ")[2]]
            super().write(handle, offset, content[:part])
            self._fail()
        super().write(handle, offset, content)

    def sync(self, handle: int) -> None:
        """Sync, or fail."""
        if self._step():
            if self.how.endswith("after"):
                super().sync(handle)
            self._fail()
        super().sync(handle)

    def rename(self, source: str, target: str) -> None:
        """Rename, or fail."""
        if self._step():
            if self.how.endswith("after"):
                super().rename(source, target)
            self._fail()
        super().rename(source, target)

    def replace(self, source: str, target: str) -> None:
        """Replace, or fail."""
        if self._step():
            if self.how.endswith("after"):
                super().replace(source, target)
            self._fail()
        super().replace(source, target)


PROGRAM = 12


def _requests(step: int) -> list[Append | Grant]:
    """Give what the clients send at one step: appends of two streams, and a takeover in the middle."""
    a_epoch = 1 if step <= PROGRAM // 2 else 2
    if step == 0:
        return [create("a", lines("a", 0, 2, "step")), create("b", lines("b", 0, 2, "step"))]
    return [
        Append("a", a_epoch, 2 * step, lines("a", 2 * step, 2, "step")),
        Append("b", 1, 2 * step, lines("b", 2 * step, 2, "step" * 300)),
    ]


def _run(store: StoreInTest, fail_at: int, how: str) -> tuple[int, bool]:
    """Run the program until it is done, opening the journal again after each failure; give the operations counted."""
    fs = FailingFileSystem(str(store.path), fail_at, how)
    acknowledged: dict[str, int] = {}
    step = 0
    while step < PROGRAM:
        try:
            journal = store.journal or store.open(fs=fs)
            if step == PROGRAM // 2 + 1:
                # A successor asks again after a lost answer, and would get a third epoch: it takes what it is told.
                row = journal.row("a")
                if row.epoch == 1:
                    (answer,) = journal.commit([Grant("a", owner("second"))])
                    assert isinstance(answer, Granted)
            for request, answer in zip(_requests(step), journal.commit(_requests(step)), strict=True):
                assert isinstance(answer, Appended), answer
                assert isinstance(request, Append)
                acknowledged[request.stream] = answer.head
            journal.between_commits()
            step += 1
        except (Death, Failed, OSError):
            assert fs.failed
            store.kill()
    _check(store, acknowledged)
    return fs.done, fs.failed


def _check(store: StoreInTest, acknowledged: dict[str, int]) -> None:
    """Everything acknowledged is there, in order, once; with the kept index and with one built anew."""
    for anew in (False, True):
        store.kill()
        if anew:
            store.delete_index()
        journal = store.open()
        assert journal.report.findings == [] or {f.kind for f in journal.report.findings} == {"torn tail"}
        found = store.events()
        for stream, head in acknowledged.items():
            text = "step" if stream == "a" else "step" * 300
            begin = lines(stream, 0, 2, "step")
            expected = begin + lines(stream, 2, head - 2, text)
            assert b"".join(line + b"\n" for line in found[stream]) == expected


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Roll every few batches, with little filling."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 12_000)
    monkeypatch.setattr(journal_module, "FILLING_AHEAD_BYTES", 4096)
    monkeypatch.setattr(journal_module, "FILLING_STEP_BYTES", 4096)
    monkeypatch.setattr("turnkeeper.storage.opening.FILLING_AHEAD_BYTES", 4096)


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("how", ["death before", "death half", "death after", "error before", "error half"])
def test_whatever_operation_fails_nothing_acknowledged_is_lost_or_repeated(memory_path: Path, how: str) -> None:
    """Clients send again what wasn't answered; the journal then holds each event once, after every single failure."""
    with new_store(memory_path / "counted") as store:
        operations, _ = _run(store, 0, how)
    assert operations > 50, "the program reaches several rolls"
    for number in range(1, operations + 1):
        with new_store(memory_path / f"store-{number}") as store:
            _, failed = _run(store, number, how)
            assert failed


def test_a_failed_sync_acknowledges_nothing_and_is_not_tried_again(memory_path: Path) -> None:
    """After EIO the journal takes nothing more; the next opening settles the batch, and its resend is recognised."""
    with new_store(memory_path / "store") as store:
        journal = store.open()
        appended(journal, create("a", event("a", 0)))
        store.kill()
        fs = FailingFileSystem(str(store.path), 0, "error before")
        journal = store.open(fs=fs)
        fs.fail_at = fs.done + 2  # the write of the batch, then its sync
        with pytest.raises(Failed):
            journal.commit([Append("a", 1, 1, event("a", 1))])
        done = fs.done
        with pytest.raises(Failed):
            journal.commit([Append("a", 1, 1, event("a", 1))])
        assert fs.done == done
        store.kill()
        journal = store.open()
        assert appended(journal, Append("a", 1, 1, event("a", 1))).head == 2
        assert len(store.events()["a"]) == 2


def test_a_full_disk_refuses_and_recovers_without_reopening(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """StoreFull is answered before anything is written, and appends work again when space returns."""
    with new_store(memory_path / "store") as store:
        journal = store.open()
        appended(journal, create("a", event("a", 0)))
        before = store.content()
        monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda self: 1_000_000)
        (answer,) = journal.commit([Append("a", 1, 1, event("a", 1))])
        assert isinstance(answer, StoreFull)
        assert store.content() == before
        monkeypatch.undo()
        assert appended(journal, Append("a", 1, 1, event("a", 1))).head == 2
        assert len(store.events()["a"]) == 2


def test_a_full_disk_is_judged_by_what_is_stored(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that found no room fences nobody and stores nothing: answers that relied on it are given anew."""
    with new_store(memory_path / "store") as store:
        journal = store.open()
        appended(journal, create("a", lines("a", 0, 2)))
        appended(journal, create("b", event("b", 0)))
        monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda self: 0)
        results = journal.commit(
            [
                Append("a", 1, 0, lines("a", 0, 2)),
                Append("a", 1, 1, lines("a", 1, 2)),
                Append("a", 1, 2, event("a", 2, "hello 2")),
                Append("a", 1, 3, event("a", 3)),
                Grant("b", owner("second")),
                Append("b", 1, 1, event("b", 1)),
                Append("b", 1, 5, event("b", 5)),
                create("c", event("c", 0)),
                Append("c", 1, 1, event("c", 1)),
            ]
        )
        kinds = [type(result).__name__ for result in results]
        assert kinds == ["Appended", *["StoreFull"] * 8]
        monkeypatch.undo()
        assert journal.row("b").epoch == 1
        assert appended(journal, Append("b", 1, 1, event("b", 1))).head == 2
        assert appended(journal, Append("a", 1, 1, lines("a", 1, 2))).head == 3


@pytest.mark.usefixtures("small_segments")
def test_filling_that_does_not_fit_is_store_full(memory_path: Path) -> None:
    """Where the filling can't be extended the batch is refused; what was written before stays readable."""
    with new_store(memory_path / "store") as store:
        fs = _FullFileSystem(str(store.path))
        journal = store.open(fs=fs)
        appended(journal, create("a", event("a", 0)))
        fs.full = True
        (answer,) = journal.commit([Append("a", 1, 1, event("a", 1, "x" * 9000))])
        assert isinstance(answer, StoreFull)
        journal.between_commits()
        fs.full = False
        assert appended(journal, Append("a", 1, 1, event("a", 1, "x" * 9000))).head == 2


class MachineFileSystem(LocalFileSystem):
    """Knows which bytes of segments are durable: a cut takes the others, a failed sync forgets that they are due."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.durable: dict[str, bytearray] = {}
        self.due: dict[str, list[tuple[int, bytes]]] = {}
        self.fail_next_sync = False

    def _name(self, handle: int) -> str:
        return os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))

    def write(self, handle: int, offset: int, content: bytes) -> None:
        """Write into the page cache."""
        super().write(handle, offset, content)
        self.due.setdefault(self._name(handle), []).append((offset, content))

    def sync(self, handle: int) -> None:
        """Make what is due durable, or fail and never try those pages again, as Linux does."""
        name = self._name(handle)
        due = self.due.pop(name, [])
        if self.fail_next_sync:
            self.fail_next_sync = False
            raise OSError(errno.EIO, "injected")
        image = self.durable.setdefault(name, bytearray())
        for offset, content in due:
            image.extend(b"\n" * (offset + len(content) - len(image)))
            image[offset : offset + len(content)] = content

    def rename(self, source: str, target: str) -> None:
        """Rename, and what is known with it."""
        super().rename(source, target)
        self.durable[os.path.basename(target)] = self.durable.pop(os.path.basename(source))

    def cut_power(self) -> None:
        """Lose every byte of the segments that isn't durable."""
        for name, image in self.durable.items():
            if name.endswith(".jsonl"):
                with open(self.path(f"journal/{name}"), "wb") as file:
                    file.write(image)
        self.due.clear()


@pytest.mark.parametrize("how", ["killed before the sync", "failed sync"])
def test_a_resend_acknowledged_after_a_reopening_survives_a_power_cut(memory_path: Path, how: str) -> None:
    """What lay in the page cache alone is written again and synced at opening, before its resend is acknowledged."""
    with new_store(memory_path / "store") as store:
        fs = MachineFileSystem(str(store.path))
        journal = store.open(fs=fs)
        appended(journal, create("a", event("a", 0)))
        if how == "failed sync":
            fs.fail_next_sync = True
            with pytest.raises(Failed):
                journal.commit([Append("a", 1, 1, event("a", 1))])
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(fs, "sync", _die)
                with pytest.raises(Death):
                    journal.commit([Append("a", 1, 1, event("a", 1))])
        store.kill()
        journal = store.open(fs=fs)
        assert appended(journal, Append("a", 1, 1, event("a", 1))).head == 2
        store.kill()
        fs.cut_power()
        store.open(fs=fs, boot="another boot")
        assert [line + b"\n" for line in store.events()["a"]] == [event("a", 0), event("a", 1)]


def _die(handle: int) -> None:
    raise Death


class _FullFileSystem(LocalFileSystem):
    full = False

    def write(self, handle: int, offset: int, content: bytes) -> None:
        if self.full and offset + len(content) > self.size(handle):
            raise OSError(errno.ENOSPC, "injected")
        super().write(handle, offset, content)
