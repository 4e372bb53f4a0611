"""The power of real file systems cut under a real writer, and what the next opening finds."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.storage.store import BackendName

from .killed_writer import KilledWriter, Told, killed_writer
from .power import CutDisk, cut_disk
from .writer_program import Job

pytestmark = pytest.mark.root

CUTS_A_STORE = 12
"""How many cuts one store goes through, with everything it has kept so far, before a new one is begun."""

STEPS_UNDER_WAY = 5
"""How many commits the writer may make by itself around the moment of the cut."""


@pytest.fixture(params=["ext4", "xfs"])
def disk_kind(request: pytest.FixtureRequest) -> str:
    """The file systems whose power can be cut."""
    kind: str = request.param
    return kind


class CutStore:
    """A store on a disk whose power is cut again and again, and what its clients were told."""

    def __init__(self, disk: CutDisk, writer: KilledWriter, seed: int, backend: BackendName) -> None:
        self.disk = disk
        self.writer = writer
        self.rng = random.Random(seed)
        self.path = disk.mounted / "store"
        self.told = Told(text_bytes_max=6000, backend=backend)
        self.boot = 1
        self.torn = 0

    def cut_somehow(self, number: int) -> None:
        """Cut the power in one of the ways, by turns."""
        ways = [self.run_into_cut, self.die_before_cut, self.open_into_cut]
        if self.told.backend == "journal":
            ways.append(self.scatter_into_cut)
        ways[number % len(ways)]()

    def run_into_cut(self) -> None:
        """Let a writer go on for some steps, and cut the power while further ones are under way."""
        steps = self.rng.randrange(1, 25)
        self._start(steps + STEPS_UNDER_WAY + 1)  # the last one is never allowed: the writer lives until the cut
        self._take(steps)
        for _ in range(STEPS_UNDER_WAY):
            self.writer.step()
        time.sleep(self.rng.random() * 0.004)  # the cut comes at any point of what is under way
        for message in self.writer.hear_present():
            self.told.hear(message)
        self._cut()

    def die_before_cut(self) -> None:
        """Let a writer die in the middle of something, its successor answer what is sent again, and then cut the power.

        What the dead one hadn't synced may have been in memory alone, and its successor found it there.
        """
        if self.told.backend == "journal":
            job = self._job(30, kill_at=self.rng.randrange(20, 70), how=self.rng.choice(("before", "half", "after")))
            self.writer.run(job, self.told)
        else:
            self.writer.run_and_kill(self._job(200), self.told, self.rng)
        self.run_into_cut()

    def scatter_into_cut(self) -> None:
        """Let the last batch before the cut reach the disk in parts, some later ones before earlier ones."""
        steps = self.rng.randrange(3, 10)
        self._start(steps + 1, scatter=steps)
        self._take(steps)
        self.writer.step()
        while "scattered" not in (message := self.writer.hear()):
            self.told.hear(message)
        self._cut()

    def open_into_cut(self) -> None:
        """Cut the power while the journal is opened, or an owner told the first things."""
        self._start(1)
        time.sleep(self.rng.random() * 0.01)
        for message in self.writer.hear_present():
            self.told.hear(message)
        self._cut()

    def _start(self, steps: int, scatter: int = -1) -> None:
        takeover = self.rng.random() < 0.3
        self.writer.start(self.told.job(self._job(steps, takeover=takeover, paced=True, scatter=scatter)))

    def _job(self, steps: int, **more: Any) -> Job:
        return Job(str(self.path), seed=self.rng.randrange(1 << 30), steps=steps, boot=f"boot {self.boot}", **more)

    def _take(self, steps: int) -> None:
        """Let the writer take some steps, and hear what is told until it waits for the next."""
        for _ in range(steps):
            self.writer.step()
        taken = 0
        while taken < steps:
            message = self.writer.hear()
            taken += "step" in message
            self.told.hear(message)

    def _cut(self) -> None:
        self.disk.cut()
        self.writer.kill()
        self.writer.hear_end()  # what it says behind the cut doesn't count
        self.disk.power_down()
        self.disk.power_up()
        self.boot += 1

    def check(self) -> None:
        """See that everything told is there, after a restart of the machine."""
        self.told.check(self.path, f"boot {self.boot}")
        self.torn = len(list((self.path / "quarantine").glob("*.bytes")))


def _cut_often(kind: str, place: Path, cuts: int, seed: int, backend: BackendName = "journal") -> tuple[int, int]:
    """Cut the power so many times; give how many events were acknowledged and how many torn tails were found."""
    events = torn = done = 0
    with cut_disk(kind, place) as disk, killed_writer() as writer:
        while done < cuts:
            store = CutStore(disk, writer, seed + done, backend)
            for number in range(min(CUTS_A_STORE, cuts - done)):
                store.cut_somehow(number)
                store.check()
                done += 1
            events += sum(store.told.heads.values())
            torn += store.torn
            shutil.rmtree(store.path)
    return events, torn


def test_a_power_cut_takes_nothing_that_was_acknowledged(memory_path: Path, disk_kind: str) -> None:
    """In mid-commit, with a batch that the disk has in parts, behind a writer's death, in an opening: all is there."""
    events, _ = _cut_often(disk_kind, memory_path, 4, seed=1)
    assert events > 20


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_hundreds_of_power_cuts_take_nothing_that_was_acknowledged(memory_path: Path, disk_kind: str) -> None:
    """The long form: 250 cuts of each file system."""
    events, torn = _cut_often(disk_kind, memory_path, 250, seed=1000)
    print(f"{disk_kind}: 250 cuts, {events} events acknowledged, {torn} torn tails")  # noqa: T201
    assert torn > 25, "many cuts came in the middle of batches"


def test_a_power_cut_takes_nothing_that_sqlite_has_acknowledged(memory_path: Path, disk_kind: str) -> None:
    """The same holds of a store that SQLite keeps; what its log has in parts it drops by itself."""
    events, _ = _cut_often(disk_kind, memory_path, 3, seed=1, backend="sqlite")
    assert events > 20


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_hundreds_of_power_cuts_take_nothing_that_sqlite_has_acknowledged(memory_path: Path, disk_kind: str) -> None:
    """The long form: 250 cuts of each file system."""
    events, _ = _cut_often(disk_kind, memory_path, 250, seed=2000, backend="sqlite")
    print(f"{disk_kind}: 250 cuts, {events} events acknowledged by SQLite")  # noqa: T201
