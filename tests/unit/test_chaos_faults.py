"""Faults as such: each hits the process or file that is meant, and its end puts everything right again."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from turnkeeper.benchmarks.chaos import abilities, faults, spoiling, victims
from turnkeeper.benchmarks.chaos.plan import Role
from turnkeeper.benchmarks.chaos.store_processes import state_of

from ..serving import eventually

SECONDS_MAX = 20.0

WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for line in sys.stdin:
    try:
        written = os.pwrite(file, b"x" * int(line), os.fstat(file).st_size)
        os.fdatasync(file)
    except OSError as error:
        written = error.strerror
    print(written, flush=True)
"""


class Writer:
    """A process that appends to a file as it is asked, and says how that went."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid

    def write(self, size: int) -> str:
        """Let it write and sync so many bytes; give how many it wrote, or its error."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{size}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextmanager
def writing(path: Path) -> Iterator[Writer]:
    """Have a writer."""
    writer = Writer(path)
    try:
        assert writer.write(10) == "10"
        yield writer
    finally:
        writer.process.kill()
        writer.process.communicate(timeout=SECONDS_MAX)


def skip_without_strace() -> None:
    """Skip where no system call can be made to fail."""
    if why := abilities.impossible().get("eio"):
        pytest.skip(why)


def test_who_is_stopped_goes_on_at_the_end(tmp_path: Path) -> None:
    """And one that was killed meanwhile is no error."""
    with writing(tmp_path / "file") as one, writing(tmp_path / "other") as other:
        lift = faults.stop([one.pid, other.pid])
        eventually(lambda: state_of(one.pid) == state_of(other.pid) == "T")
        other.process.kill()
        lift()
        assert one.write(5) == "5"


def test_one_sync_fails(tmp_path: Path) -> None:
    """The one that was drawn; those before and behind it do what they should, and so do all once it is over."""
    skip_without_strace()
    with writing(tmp_path / "file") as writer:
        lift = faults.failing_sync(writer.pid, 2)
        assert [writer.write(1) for _ in range(4)] == ["1", "1", "Input/output error", "1"]
        lift()
        assert "TracerPid:\t0\n" in Path(f"/proc/{writer.pid}/status").read_text()


@pytest.mark.parametrize("number", [21, 20])
def test_the_disk_is_full_until_the_fault_is_over(tmp_path: Path, number: int) -> None:
    """For the journal alone, or for everything."""
    skip_without_strace()
    (tmp_path / "journal").mkdir()
    with writing(tmp_path / "journal" / "1.jsonl") as writer, writing(tmp_path / "index") as other:
        lifts = [faults.full_disk(each.pid, number, faults.event_files(tmp_path)) for each in (writer, other)]
        assert [writer.write(1) for _ in range(3)][-1] == "No space left on device"
        said = [other.write(1) for _ in range(3)][-1]
        assert said == ("1" if number % 2 else "No space left on device")
        for lift in lifts:
            lift()
        assert (writer.write(1), other.write(1)) == ("1", "1")


def test_nobody_can_hold_who_has_ended(tmp_path: Path) -> None:
    """A fault whose process is gone is missed, and leaves nothing."""
    skip_without_strace()
    with writing(tmp_path / "file") as writer:
        writer.process.kill()
        writer.process.wait()
        with pytest.raises(faults.Missed):
            faults.failing_sync(writer.pid, 1)
        (tmp_path / "1.jsonl").write_text("")
        with pytest.raises(faults.Missed):
            faults.short_writes(writer.pid, 0, [tmp_path / "1.jsonl"])


def test_a_write_that_reaches_the_limit_is_short(tmp_path: Path) -> None:
    """The ones behind it fail; and then the limit is what it was."""
    with writing(tmp_path / "1.jsonl") as writer:
        before = resource.prlimit(writer.pid, resource.RLIMIT_FSIZE)
        lift = faults.short_writes(writer.pid, 0, [writer.path])
        assert writer.write(faults.SHORT_BYTES - 1) == str(faults.SHORT_BYTES - 1)
        assert [writer.write(100), writer.write(100)] == ["1", "File too large"]
        lift()
        assert resource.prlimit(writer.pid, resource.RLIMIT_FSIZE) == before
        assert writer.write(100) == "100"


def test_the_limit_may_lie_where_no_new_segment_can_be_made(tmp_path: Path) -> None:
    """Before the end of the longest file, which is as long as its filling; without any file there is no limit."""
    with writing(tmp_path / "1.jsonl") as writer:
        os.truncate(writer.path, 3 * faults.SHORT_BYTES)
        lift = faults.short_writes(writer.pid, 1, [writer.path])
        assert writer.write(1) == "File too large"
        lift()
        assert writer.write(1) == "1"
        with pytest.raises(faults.Missed):
            faults.short_writes(writer.pid, 1, [])


def test_events_are_in_a_journals_files_or_in_a_database_and_its_log(tmp_path: Path) -> None:
    """And in no other file of a store."""
    (tmp_path / "journal").mkdir()
    names = ["journal/00000001.jsonl", "journal/00000002.jsonl", "store.sqlite", "store.sqlite-wal"]
    for name in (*names, "store.json", "journal/00000003.tmp", "index.json"):
        (tmp_path / name).touch()
    assert faults.event_files(tmp_path) == [tmp_path / name for name in names]


def test_a_process_is_held_before_a_sync_and_may_die_there(tmp_path: Path) -> None:
    """What it wrote is there, and nothing that comes behind the sync."""
    skip_without_strace()
    with writing(tmp_path / "one") as one, writing(tmp_path / "other") as other:
        for writer in (one, other):
            lift = faults.held_syncs(writer.pid)
            assert writer.process.stdin is not None
            writer.process.stdin.write("7\n")
            writer.process.stdin.flush()
            eventually(lambda writer=writer: writer.path.stat().st_size == 17 and state_of(writer.pid) == "t")  # type: ignore[misc]
            if writer is one:
                writer.process.kill()
            lift()
        assert other.process.stdout is not None
        assert other.process.stdout.readline() == "7\n"
        assert one.process.communicate(timeout=SECONDS_MAX)[0] == ""


def test_a_clock_is_set_back_and_right_again(tmp_path: Path) -> None:
    """For processes that were started with it, and not for what counts from the machine's start."""
    library = abilities.faketime_library()
    if library is None:
        pytest.skip("libfaketime is not installed")
    clock = faults.Clock(library, tmp_path / "clock")
    code = "import time, sys\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **clock.environment},
    )

    def times() -> tuple[float, float]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        day, start = process.stdout.readline().split()
        return float(day), float(start)

    try:
        first = times()
        lift = clock.set_back(5000)
        second = times()
        lift()
        third = times()
    finally:
        process.kill()
        process.communicate(timeout=SECONDS_MAX)
    assert list(Path("/dev/shm").glob(f"*faketime*_{process.pid}"))
    clock.release()
    assert not list(Path("/dev/shm").glob(f"*faketime*_{process.pid}"))
    assert first[1] <= second[1] <= third[1]
    elapsed = third[1] - first[1]
    assert first[0] - 5000 <= second[0] <= first[0] - 5000 + elapsed + 1
    assert first[0] <= third[0] <= first[0] + elapsed + 1


def test_a_strike_hits_those_who_are_drawn() -> None:
    """All of a role that there is one of, some of the others, the same for the same draw, and never nobody."""
    found: dict[Role, list[int]] = {
        "host": [1, 2, 3],
        "node": [4],
        "writer": [],
        "spawner": [5],
        "shim": [6, 7, 8, 9],
        "worker": [],
    }
    draws = [victims.choose(found, ("node", "shim", "worker"), draw) for draw in range(50)]
    assert draws == [victims.choose(found, ("node", "shim", "worker"), draw) for draw in range(50)]
    assert all(chosen[4] == "node" for chosen in draws)
    counts = {list(chosen.values()).count("shim") for chosen in draws}
    assert counts == {1, 2, 3, 4}
    assert not any({1, 2, 3, 5} & chosen.keys() for chosen in draws)


@pytest.mark.parametrize("draw", range(10))
def test_a_copy_is_spoiled_as_it_is_said(tmp_path: Path, draw: int) -> None:
    """Its journal is shorter, or some of its bytes are others; nothing else is touched."""
    store = tmp_path / "store"
    (store / "journal").mkdir(parents=True)
    content = b"".join(b'{"a line": %d}\n' % number for number in range(1000))
    path = store / "journal" / "00000001.jsonl"
    path.write_bytes(content + b"\n" * 5000)
    said = spoiling.cut_tail(store, Random(draw))
    cut = len(content) - len(path.read_bytes())
    assert 0 < cut <= spoiling.TAIL_BYTES_MAX
    assert said == f"{cut} bytes of 00000001.jsonl"
    assert content.startswith(path.read_bytes())
    path.write_bytes(content + b"\n" * 5000)
    spoiling.flip_bytes(store, Random(draw))
    spoiled = path.read_bytes()
    different = [place for place, (one, other) in enumerate(zip(content, spoiled, strict=False)) if one != other]
    assert 0 < len(different) <= spoiling.FLIPS_MAX
    assert spoiled[len(content) :] == b"\n" * 5000
    assert all((content[place] ^ spoiled[place]).bit_count() == 1 for place in different)


def test_the_end_that_is_cut_off_may_be_that_of_a_sealed_file(tmp_path: Path) -> None:
    """Of several files either the last one or one before it is shorter."""
    (tmp_path / "journal").mkdir()
    paths = [tmp_path / "journal" / f"{number:08d}.jsonl" for number in (1, 2, 3)]
    cut = set()
    for draw in range(40):
        for path in paths:
            path.write_bytes(b"a line\n" * 10)
        said = spoiling.cut_tail(tmp_path, Random(draw))
        (shorter,) = (path for path in paths if path.stat().st_size < 70)
        assert said == f"{70 - shorter.stat().st_size} bytes of {shorter.name}"
        cut.add(shorter)
    assert cut == set(paths)


def test_a_short_line_is_hit_as_often_as_a_long_one(tmp_path: Path) -> None:
    """Headers are short beside events, and what becomes of a damaged one is the harder question."""
    (tmp_path / "journal").mkdir()
    path = tmp_path / "journal" / "00000001.jsonl"
    content = b"short\n" + b"long " * 20_000 + b"\n"
    hits = []
    for draw in range(100):
        path.write_bytes(content)
        spoiling.flip_bytes(tmp_path, Random(draw))
        hits += [place for place, byte in enumerate(path.read_bytes()) if byte != content[place]]
    share = sum(place < len(b"short\n") for place in hits) / len(hits)
    assert 0.3 < share < 0.7


def test_an_index_is_damaged_in_place(tmp_path: Path) -> None:
    """It is the same file with other bytes, in each way; or it is gone, with its record or without."""
    place = tmp_path / "store" / "index" / "abcd"
    place.mkdir(parents=True)
    (data,) = (place / "data.mdb",)
    ways = set()
    for draw in range(60):
        data.write_bytes(content := Random(1).randbytes(40_000))
        inode = data.stat().st_ino
        ways.add(spoiling.damage_index(tmp_path / "store", Random(draw)))
        assert data.stat().st_ino == inode
        assert data.read_bytes() != content
    assert len(ways) == 5
    for draw in range(20):
        data.write_bytes(b"")
        spoiling.damage_index(tmp_path / "store", Random(draw))
    kept = set()
    for draw in range(10):
        (tmp_path / "store" / "index.json").write_text("{}")
        (tmp_path / "store" / "index").mkdir(exist_ok=True)
        spoiling.delete_index(tmp_path / "store", Random(draw))
        assert not (tmp_path / "store" / "index").exists()
        kept.add((tmp_path / "store" / "index.json").exists())
    assert kept == {True, False}
    shutil.rmtree(tmp_path / "store")
