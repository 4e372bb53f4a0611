"""Contract of workplaces: where it is measured, what the result says of that place, and what is left there."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from turnkeeper.benchmarks.measuring.machine import (
    SYNCED_BYTES,
    describe_machine,
    drop_caches,
    file_system,
    sync_microseconds,
)
from turnkeeper.benchmarks.measuring.marked_processes import left_behind
from turnkeeper.benchmarks.measuring.runs import Run
from turnkeeper.benchmarks.stores.filled import Filling
from turnkeeper.benchmarks.workplace import MARK, Workplace, measured_directory, run_alone


def test_the_measured_directory_lies_where_it_was_asked_for_and_goes_away(tmp_path: Path) -> None:
    """What is filled lies on the disk under test, and nothing of it stays, whatever happened."""

    def fail_halfway() -> None:
        with measured_directory(tmp_path / "new") as directory:
            assert directory.parent == tmp_path / "new"
            (directory / "file").write_bytes(b"1")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert list((tmp_path / "new").iterdir()) == []


def test_whoever_was_started_is_killed_when_it_is_left_by_an_exception(tmp_path: Path) -> None:
    """Ctrl-C may come before anybody has noted a process: each is known by its mark, in whatever session it is."""
    started = []

    def start_and_be_interrupted() -> None:
        with measured_directory(tmp_path):
            started.append(subprocess.Popen(["sh", "-c", "setsid sleep 60 & sleep 60"], start_new_session=True))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start_and_be_interrupted()
    with started[0] as process:
        assert process.wait(10) == -signal.SIGKILL
    assert left_behind(f"{MARK}={tmp_path}/") == []
    assert MARK not in os.environ
    assert list(tmp_path.iterdir()) == []


def test_a_suite_alone_keeps_its_result_and_nothing_else(tmp_path: Path) -> None:
    """The file that --out leaves holds the same as what is given back; filled stores are removed."""

    def measure(place: Workplace) -> list[Run]:
        (store,) = place.stores.read(Filling(100))
        assert store.parent == place.directory
        (place.directory / "more").write_bytes(b"1")
        return [Run("open", {"cache": "warm"}, {"open_ms": 2.0}, bounds={"open_ms": (1.0, 3.0)})]

    result = run_alone("opening", measure, tmp_path)
    assert json.loads((tmp_path / "opening.json").read_text()) == result
    assert [path.name for path in tmp_path.iterdir()] == ["opening.json"]
    assert result["runs"][0]["bounds"] == {"open_ms": [1.0, 3.0]}
    assert result["machine"]["file_system"] == file_system(tmp_path)


def test_the_machine_says_what_it_is_and_what_takes_part(tmp_path: Path) -> None:
    """A result can be told from that of another machine, another version, another commit; no file is left behind."""
    machine = describe_machine(tmp_path)
    assert machine["fdatasync_us"] > 0
    assert machine["versions"]["sqlite"] == sqlite3.sqlite_version
    assert all(machine["versions"].values())
    assert isinstance(machine["seed"], int)
    root = Path(__file__).resolve().parents[2]
    known = subprocess.run(
        ["git", "ls-files", "benchmarks/measuring/machine.py"], cwd=root, capture_output=True, check=False
    )
    if known.stdout:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
        assert head.stdout.startswith(machine["commit"].removesuffix("-dirty"))
    else:
        assert machine["commit"] is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("devices", "is_given_back"),
    [
        ({}, False),
        ({"virtio0": ("0x0002", "0000010000"), "virtio1": ("0x0005", "0110000101")}, False),
        ({"virtio0": ("0x0002", "0000000000"), "virtio1": ("0x0005", "0110010100")}, True),
        ({"virtio0": ("0x0005", "011")}, False),
    ],
    ids=["no such devices", "a balloon that reports nothing", "one that does", "nonsense"],
)
def test_a_machine_whose_host_takes_free_memory_back_is_told(
    devices: dict[str, tuple[str, str]], is_given_back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is measured there depends on how much memory was in use before."""
    for name, (kind, features) in devices.items():
        (tmp_path / "devices" / name).mkdir(parents=True)
        (tmp_path / "devices" / name / "device").write_text(f"{kind}\n")
        (tmp_path / "devices" / name / "features").write_text(f"{features}\n")
    monkeypatch.setattr("turnkeeper.benchmarks.measuring.machine.VIRTUAL_DEVICES", tmp_path / "devices")
    assert ("free_memory" in describe_machine(tmp_path)) == is_given_back


def test_syncs_are_timed_behind_small_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them has something to write, as a flush has; where a sync fails nothing is left."""
    sizes: list[int] = []
    monkeypatch.setattr("os.fdatasync", lambda file: sizes.append(os.fstat(file).st_size))
    sync_microseconds(tmp_path)
    assert sizes == [SYNCED_BYTES * (number + 1) for number in range(len(sizes))]
    assert len(sizes) > 100


def test_a_tmpfs_can_not_pass_for_a_disk() -> None:
    """There a sync is free, which the result says in words."""
    shared_memory = Path("/dev/shm")
    if file_system(shared_memory) != "tmpfs":
        pytest.skip("no tmpfs here")
    with measured_directory(shared_memory) as directory:
        assert describe_machine(directory)["warning"].startswith("tmpfs: a sync costs nothing here")


def test_caches_are_dropped_without_changing_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root only the directory's own pages go, and it says so."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (tmp_path / "file").write_bytes(b"kept")
    os.mkfifo(tmp_path / "left behind, as a node's socket is")
    assert drop_caches(tmp_path) == "posix_fadvise"
    assert (tmp_path / "file").read_bytes() == b"kept"
