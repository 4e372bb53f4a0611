"""The journal on a simulated disk that loses any part of what wasn't synced, at any operation of small programs."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from turnkeeper.storage import journal as journal_module
from turnkeeper.storage import store
from turnkeeper.storage.errors import Failed, Fenced, StoreFull
from turnkeeper.storage.index import Index
from turnkeeper.storage.journal import Journal
from turnkeeper.storage.reading import Reader
from turnkeeper.storage.requests import Append, Appended, Grant, Granted

from ..simulated_disk import Death, SimulatedDisk
from ..stores import create, event, owner

STREAMS = ("a", "b", "c")


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of some batches, filling of two pages."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 12_000)
    for module in ("turnkeeper.storage.journal", "turnkeeper.storage.opening"):
        monkeypatch.setattr(f"{module}.FILLING_AHEAD_BYTES", 8192)
    monkeypatch.setattr(journal_module, "FILLING_STEP_BYTES", 8192)


class Machine:
    """A store on a simulated disk, its clients, and what they were told: for programs with crashes at any operation."""

    def __init__(self, path: Path, seed: int, durability: store.Durability = "fsync") -> None:
        self.rng = random.Random(seed)
        self.path = path
        self.durability = durability
        store.make_directory(str(path))
        descriptor = store.open_store_file(str(path), create=True)
        store.finish(descriptor, str(path), durability)
        os.close(descriptor)
        self.disk = SimulatedDisk(path)
        self.boot = 1
        self.journal: Journal | None = None
        self.crashes = 0
        self.lossy: set[str] = set()
        self.sent: dict[str, list[bytes]] = {stream: [] for stream in STREAMS}
        self.acknowledged: dict[str, int] = dict.fromkeys(STREAMS, 0)
        self.epochs: dict[str, int] = dict.fromkeys(STREAMS, 1)

    # -- what happens

    def opened(self) -> Journal:
        """Give the open journal."""
        if self.journal is None:
            self.journal = Journal.open(
                str(self.path), boot=f"boot {self.boot}", is_gone=lambda who: True, holder={}, fs=self.disk
            )
            kinds = {finding.kind for finding in self.journal.report.findings}
            allowed = {"torn tail"} if self.durability == "fsync" else {"torn tail", "unsynced batches"}
            assert kinds <= allowed, self.journal.report.findings
        return self.journal

    def do(self, step: str) -> None:
        """Do one step of a program; a death in it leaves no journal open."""
        try:
            getattr(self, step)()
        except (Death, Failed, OSError) as error:
            if not isinstance(error, Death) and not self.disk.sync_fails:
                raise
            self.disk.fail_at = 0
            self.let_go()
            raise Death from None

    def append(self) -> None:
        """Let each client number and keep some more lines."""
        for stream in STREAMS:
            for _ in range(self.rng.randrange(3)):
                seq = len(self.sent[stream])
                self.sent[stream].append(event(stream, seq, "x" * self.rng.randrange(1, 1200)))

    def commit(self) -> None:
        """Send everything unacknowledged, as one commit."""
        journal = self.opened()
        requests = [request for stream in STREAMS for request in self._unacknowledged(stream)]
        for request, answer in zip(requests, journal.commit(requests), strict=True):
            if isinstance(answer, Appended):
                self.acknowledged[request.stream] = max(self.acknowledged[request.stream], answer.head)
            elif isinstance(answer, Fenced):
                self.take()  # a grant of before, whose answer was lost in a crash
            else:
                assert isinstance(answer, StoreFull), answer
        journal.between_commits()

    def _unacknowledged(self, stream: str) -> list[Append]:
        lines = self.sent[stream][self.acknowledged[stream] :]
        if not lines:
            return []
        if self.acknowledged[stream] == 0:
            return [create(stream, b"".join(lines))]
        return [Append(stream, self.epochs[stream], self.acknowledged[stream], b"".join(lines))]

    def roll(self) -> None:
        """Go on in a new segment at once."""
        journal = self.opened()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(journal_module, "SEGMENT_BYTES", 0)
            journal.between_commits()

    def seal(self) -> None:
        """Do what is due between two commits."""
        self.opened().between_commits()

    def take(self) -> None:
        """Give a stream to a new owner, if it has anything."""
        journal = self.opened()
        if self.acknowledged["a"]:
            (answer,) = journal.commit([Grant("a", owner("next"))])
            if isinstance(answer, Granted):
                assert answer.epoch > self.epochs["a"]
                assert answer.head >= self.acknowledged["a"]
                # The new owner goes on from the head that it is told; what the old one hadn't heard of stays as it is.
                self._adopt("a", answer.head)
                self.epochs["a"] = answer.epoch

    def _adopt(self, stream: str, head: int) -> None:
        assert head <= len(self.sent[stream])
        del self.sent[stream][head:]
        self.acknowledged[stream] = head

    def close(self) -> None:
        """Close cleanly."""
        self.opened().close()
        self.journal = None
        self.disk.close_all()

    def kill(self) -> None:
        """The process dies; what it wrote stays in the page cache."""
        self.let_go()

    def rebuild(self) -> None:
        """The index is lost."""
        self.let_go()
        self.disk.remove("index.json")

    def let_go(self) -> None:
        """End the process: nothing more is written."""
        journal, self.journal = self.journal, None
        if journal is not None:
            journal._failed = True
            journal.close()
        self.disk.close_all()

    def crash(self, choose: Callable[[str, int], str] | None = None) -> None:
        """End the machine."""
        self.let_go()
        self.disk.crash(self.rng, choose)
        self.lossy = set(STREAMS) if self.durability == "os" else set()
        self.boot += 1
        self.crashes += 1

    # -- what must hold

    def check(self) -> None:
        """Everything acknowledged is there, in order, once; what is there beyond was sent so."""
        journal = self.opened()
        with journal._index.reading() as snapshot:
            known = journal._index.streams_beginning(snapshot, "", 100)
        with contextlib.closing(Reader(str(self.path), journal._index, self.disk, contextlib.ExitStack())) as reader:
            for stream in STREAMS:
                if stream not in known:
                    if stream in self.lossy:
                        self._adopt(stream, 0)
                        self.epochs[stream] = 1
                    assert self.acknowledged[stream] == 0
                    continue
                if self.durability == "os" and stream in self.lossy:
                    # What the machine took with it is forgotten; what is left is a beginning of what was sent.
                    self._adopt(stream, reader.read(stream, limit=0).head)
                page = reader.read(stream, limit=100_000)
                found = [stored.line + b"\n" for stored in page.events]
                assert page.missing == []
                assert len(found) >= self.acknowledged[stream], (stream, len(found), self.acknowledged)
                assert found == self.sent[stream][: len(found)]
                if stream in self.lossy:
                    self.epochs[stream] = max(1, journal.row(stream).epoch)
        self.lossy = set()


def _run_random(path: Path, seed: int, steps: int, durability: store.Durability = "fsync") -> int:
    """Run one random program with several crashes; give how many there were."""
    machine = Machine(path, seed, durability)
    rng = machine.rng
    for _ in range(steps):
        step = rng.choice(("append", "commit", "commit", "commit", "roll", "seal", "take", "close", "kill", "rebuild"))
        if rng.random() < 0.4:
            machine.disk.fail_at = machine.disk.operations + rng.randrange(1, 10)
            machine.disk.sync_fails = rng.random() < 0.3
        try:
            machine.do(step)
        except Death:
            if rng.random() < 0.5:
                # The clients send again to the process's successor, and the machine goes down behind the answers.
                machine.do("commit")
            machine.crash()
        machine.disk.fail_at = 0
        if rng.random() < 0.2:
            machine.crash()
        machine.check()
    machine.let_go()
    return machine.crashes


def test_random_programs_survive_crashes_that_keep_any_part_of_what_was_not_synced(memory_path: Path) -> None:
    """A thousand crashes in every test run; the seed of a failure is in its directory's name."""
    crashes = 0
    for seed in range(150):
        crashes += _run_random(memory_path / f"seed-{seed}", seed, steps=30)
    assert crashes > 1000


def test_a_store_that_does_not_sync_keeps_a_beginning_of_each_stream(memory_path: Path) -> None:
    """Durability `os`: the death of processes takes nothing, that of the machine at most an end, into quarantine."""
    crashes = 0
    for seed in range(60):
        crashes += _run_random(memory_path / f"seed-{seed}", seed, steps=30, durability="os")
    assert crashes > 400


def test_a_segment_whose_name_was_not_synced_keeps_what_a_successor_acknowledges(memory_path: Path) -> None:
    """A writer that dies between a segment's rename and the directory's sync leaves that sync to its successor."""
    machine = Machine(memory_path / "store", seed=1)
    machine.append()
    machine.do("commit")
    machine.disk.fail_at = machine.disk.operations + 4  # write, sync, rename, and then the directory
    with pytest.raises(Death):
        machine.do("roll")
    assert machine.disk.exists("journal/00000002.jsonl")
    machine.append()
    machine.do("commit")
    machine.crash(lambda name, page: "old")
    machine.check()
    machine.let_go()


def test_a_store_that_does_not_sync_loses_a_files_end_and_all_that_was_behind_it(memory_path: Path) -> None:
    """A new segment is synced before the one it follows: what that one lost leaves no hole, it is the end."""
    machine = Machine(memory_path / "store", seed=1, durability="os")
    machine.append()
    machine.do("commit")
    first = machine.opened()._next_batch
    machine.disk.fail_at = machine.disk.operations + 5  # the new file's write, sync, rename, and directory; the old cut
    with pytest.raises(Death):
        machine.do("roll")
    assert machine.disk.exists("journal/00000002.jsonl")
    machine.crash(lambda name, page: "old")
    machine.check()
    assert machine.opened()._next_batch < first
    assert machine.opened().report.findings[0].kind == "unsynced batches"
    machine.let_go()


def test_an_opening_shows_readers_nothing_that_is_not_on_the_disk(memory_path: Path) -> None:
    """What a writer had written and not synced is indexed by the next one, for all to read, only behind its own sync.

    Whichever operation of that opening is its last: a follower may have seen what is indexed, and power may go now.
    """
    seen = []
    for operation in itertools.count(1):
        machine = Machine(memory_path / f"{operation}", seed=1)
        machine.append()
        machine.do("commit")
        machine.append()
        before = machine.opened().next_position
        machine.disk.fail_at = machine.disk.operations + 2  # the write, and then the sync
        with pytest.raises(Death):
            machine.do("commit")
        machine.disk.fail_at = machine.disk.operations + operation
        with contextlib.suppress(Death):
            machine.do("opened")
        is_open = machine.journal is not None
        machine.disk.fail_at = 0
        machine.let_go()
        seen.append(_indexed(machine.path) > before)
        machine.crash(lambda name, page: "old")
        assert machine.opened().next_position > before or not seen[-1], f"operation {operation}"
        machine.let_go()
        if is_open:
            break
    assert seen[-1]
    assert not all(seen)


def _indexed(path: Path) -> int:
    """Give the position behind the last event that readers of the store's index see."""
    (directory,) = (path / "index").iterdir()
    index = Index.open_readable(str(directory), lock=True)
    try:
        assert index.indexed is not None
        return index.indexed.next_position
    finally:
        index.close()


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_hundred_thousand_crashes(memory_path: Path) -> None:
    """The long form: programs until 100,000 crashes were survived."""
    crashes = seed = 0
    while crashes < 100_000:
        seed += 1
        path = memory_path / "store"
        crashes += _run_random(path, seed, steps=120)
        shutil.rmtree(path)


STEPS = ("append", "commit", "roll", "seal", "close", "rebuild")


def _keepings(machine: Machine) -> Iterator[tuple[str, Callable[[str, int], str]]]:
    """Give what a crash may keep: nothing, everything, and each single dirty page."""
    yield "nothing", lambda name, page: "old"
    yield "everything", lambda name, page: "new"
    dirty = [(name, page) for name, file in machine.disk._names.items() for page in sorted(file.dirty)]
    for wanted in dirty:
        yield f"only {wanted}", lambda name, page, wanted=wanted: "new" if (name, page) == wanted else "old"  # type: ignore[misc]


def _run_exhaustive(path: Path, length: int, every: int) -> int:
    """Run each program of `length` steps with a crash at each operation, keeping nothing, all, or one page."""
    crashes = programs = 0
    for program in itertools.product(STEPS, repeat=length):
        if program.count("commit") == 0:
            continue
        programs += 1
        if programs % every:
            continue
        operation = 0
        done = False
        while not done:
            operation += 1
            keeping = 0
            while True:
                path.mkdir(exist_ok=True)
                machine = Machine(path / f"{programs}-{operation}-{keeping}", seed=7)
                machine.append()
                machine.do("commit")
                machine.disk.fail_at = machine.disk.operations + operation
                done = True
                try:
                    for step in program:
                        machine.do(step)
                except Death:
                    done = False
                machine.disk.fail_at = 0
                machine.let_go()
                keepings = list(_keepings(machine))
                machine.crash(keepings[keeping][1])
                machine.check()
                machine.append()
                machine.do("commit")
                machine.check()
                machine.let_go()
                crashes += 1
                keeping += 1
                if keeping >= len(keepings):
                    break
    return crashes


def test_small_programs_survive_a_crash_at_each_operation(memory_path: Path) -> None:
    """Every program of two steps, and a share of those of three, with a crash at each of their operations."""
    assert _run_exhaustive(memory_path / "two", 2, 1) > 50
    assert _run_exhaustive(memory_path / "three", 3, 11) > 50


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_all_small_programs_survive_a_crash_at_each_operation(memory_path: Path) -> None:
    """Every program of three and four steps."""
    for length in (3, 4):
        assert _run_exhaustive(memory_path / str(length), length, 1) > 1000
