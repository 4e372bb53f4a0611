"""A real writer under system calls that fail, do less than asked, lie, or take long; and on disks that are full."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.storage.verify import verify

from ..serving import ServedStore, eventually, first_append, next_append, served_store
from ..stores import appended, create, lines, new_store
from .damaged_stores import is_reported, read_all
from .killed_writer import Told, killed_writer, strace
from .writer_program import EXIT_FAILED, Job, line_of

STEPS = 40


def _run_under(path: Path, told: Told, *injected: str, steps: int = STEPS, **job: Any) -> int:
    """Let the writer run with faults injected into its system calls; give how it ended."""
    with killed_writer(*strace(*injected)) as writer:
        return writer.run(Job(str(path), seed=11, steps=steps, **job), told)


def _finish(path: Path, told: Told) -> None:
    """Let a successor go on without faults, and see that nothing is missing."""
    with killed_writer() as writer:
        assert writer.run(Job(str(path), seed=12, steps=5), told) == 0
    told.check(path, "boot 1")


@pytest.mark.parametrize("number", [5, 12, 23, 30])
def test_a_sync_that_fails_ends_the_writer_and_acknowledges_nothing(memory_path: Path, number: int) -> None:
    """After EIO it isn't tried again: the writer ends, and its successor settles what the disk has."""
    told = Told()
    code = _run_under(memory_path / "store", told, "-e", f"inject=fdatasync:error=EIO:when={number}")
    assert (code, "Errno 5" in told.failed) == (EXIT_FAILED, True)
    _finish(memory_path / "store", told)


@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EDQUOT"])
@pytest.mark.parametrize("when", ["9", "16+9", "24+13"])
def test_writes_that_fail_lose_nothing(memory_path: Path, error: str, when: str) -> None:
    """Whether a batch, its filling or the index is hit: it is refused, or the writer ends and acknowledges nothing."""
    told = Told()
    code = _run_under(memory_path / "store", told, "-e", f"inject=pwrite64:error={error}:when={when}")
    assert code in (0, EXIT_FAILED)
    assert code == EXIT_FAILED or told.refused
    _finish(memory_path / "store", told)


@pytest.mark.parametrize("written", [1, 700, 1 << 24])
def test_writes_that_only_seem_to_happen_are_reported_and_hide_nothing_else(memory_path: Path, written: int) -> None:
    """Nobody can keep what the disk never got; but every event given is the true one, and the missing ones are said."""
    missing = 0
    for number in (9, 14, 20, 25):
        path = memory_path / f"store-{number}"
        told = Told()
        segment = path / "journal" / "00000001.jsonl"
        injected = ("-P", str(segment), "-e", f"inject=pwrite64:retval={written}:when={number}")
        assert _run_under(path, told, *injected, segment_bytes=1_000_000) == 0
        reported = is_reported(verify(str(path)))
        kept = _count_missing(path, told)
        shutil.rmtree(path / "index")
        (path / "index.json").unlink()
        found_anew = _count_missing(path, told)  # a batch may be read by an index although its header is gone
        assert reported or kept == found_anew == 0
        assert kept <= found_anew <= 9, "one batch at most"
        missing += found_anew
    assert missing > 0, "a lie that hits nothing proves nothing"


def _count_missing(path: Path, told: Told) -> int:
    """Read everything; count what was told and isn't given, each of which read_all has seen to be said."""
    found = read_all(path)
    for stream, head in told.heads.items():
        assert all(line + b"\n" == line_of(stream, seq, 1500) for seq, line in found[stream].items())
        assert max(found[stream]) + 1 == head
    return sum(head - len(found[stream]) for stream, head in told.heads.items())


def test_writes_in_pieces_are_whole_writes(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may take less than it is given, each time; it gets the rest."""
    whole_write = os.pwrite
    pieces = 0

    def write_a_piece(handle: int, content: bytes, offset: int) -> int:
        nonlocal pieces
        pieces += 1
        return whole_write(handle, memoryview(content)[:777], offset)

    with new_store(memory_path / "store") as store:
        journal = store.open()
        monkeypatch.setattr(os, "pwrite", write_a_piece)
        appended(journal, create("a", lines("a", 0, 100)))
        assert pieces > 10
        monkeypatch.undo()
        store.close()
        assert not is_reported(verify(str(store.path)))
        assert len(read_all(store.path)["a"]) == 100


def test_a_limit_on_the_length_of_files_is_a_full_disk(memory_path: Path) -> None:
    """What reaches the limit in mid-write is refused as StoreFull; with the limit lifted the same writer goes on."""
    told = Told()
    with killed_writer() as writer:
        job = Job(str(memory_path / "store"), seed=2, steps=150, segment_bytes=1_000_000, file_bytes_max=150_000)
        assert writer.run(job, told) == 0
    assert told.refused
    assert (memory_path / "store" / "journal" / "00000001.jsonl").stat().st_size > 150_000
    _finish(memory_path / "store", told)


@contextlib.contextmanager
def _tiny_disk(place: Path, mebibytes: int) -> Iterator[Path]:
    """Mount a file system in memory; skip where that can't be done."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.root
def test_a_disk_filled_to_the_last_byte_loses_nothing_and_is_gone_on_with(memory_path: Path) -> None:
    """Somebody else took the space that the reserve had seen: refused or failed, but never acknowledged and lost."""
    told = Told()
    with _tiny_disk(memory_path / "disk", 2) as disk, killed_writer() as writer:
        job = Job(str(disk / "store"), seed=4, steps=400, text_bytes_max=6000, reserve=False, segment_bytes=300_000)
        told.text_bytes_max = job.text_bytes_max
        code = writer.run(job, told)
        assert code == EXIT_FAILED or told.refused
        before = dict(told.heads)
        subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
        assert writer.run(Job(str(disk / "store"), seed=5, steps=40, reserve=False), told) == 0
        assert sum(told.heads.values()) > sum(before.values())
        told.check(disk / "store", "boot 1")


DELAY_SECONDS = 0.6


@pytest.mark.root
def test_a_slow_disk_makes_answers_late_and_nothing_else(tmp_path: Path) -> None:
    """The writer waits for its syncs and goes on; meanwhile the node answers, and nobody starts another writer."""
    with served_store(tmp_path / "store") as store:
        pid = store.writer_pid()
        eventually(lambda: _state_of(store) == ("serving", pid))
        with store.writer() as one, store.writer() as other:
            one.ask([1, [first_append("a"), first_append("b")]])
            with _slow_syncs(pid):
                begun = time.monotonic()
                one.send([2, [next_append("a", 1)]])
                other.send([1, [next_append("b", 1)]])
                assert _state_of(store) == ("serving", pid)
                assert one.receive()[1][0][:2] == [1, 2]
                assert time.monotonic() - begun >= DELAY_SECONDS
                assert other.receive()[1][0][:2] == [1, 2]
            assert one.ask([3, [next_append("a", 2)]])[1][0][:2] == [2, 3]
        assert store.writer_pid() == pid


def _state_of(store: ServedStore) -> tuple[str, int | None]:
    """Ask the node for its state and its writer."""
    with store.visit() as visit:
        return visit.hello["state"], visit.hello["writer"]


@contextlib.contextmanager
def _slow_syncs(pid: int) -> Iterator[None]:
    """Let each sync of a process take long."""
    delay = f"inject=fdatasync:delay_enter={round(DELAY_SECONDS * 1_000_000)}"
    tracer = subprocess.Popen([*strace("-e", delay), "-p", str(pid)])

    def is_traced() -> bool:
        assert tracer.poll() is None, "strace can't attach"
        statuses = [status.read_text() for status in Path(f"/proc/{pid}/task").glob("*/status")]
        return all("TracerPid:\t0" not in status for status in statuses)  # one thread after the other

    try:
        eventually(is_traced)
        yield
    finally:
        tracer.terminate()
        tracer.wait()
