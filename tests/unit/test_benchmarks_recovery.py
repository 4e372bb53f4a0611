"""The recovery benchmark on a small input: real deaths, openings, rebuilds and verifies."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

import pytest

from turnkeeper.benchmarks.chaos.abilities import impossible
from turnkeeper.benchmarks.driving.plain_restarts import PLAIN_SQLITE
from turnkeeper.benchmarks.measuring import machine
from turnkeeper.benchmarks.measuring.marked_processes import left_behind
from turnkeeper.benchmarks.recovery import outages
from turnkeeper.benchmarks.recovery.power_losses import LEAVE_SECONDS, CutStore
from turnkeeper.benchmarks.recovery.recovery import Sizes, measure
from turnkeeper.benchmarks.recovery.torn_batches import tear_next_batch
from turnkeeper.benchmarks.stores.filled import Filling
from turnkeeper.benchmarks.workplace import MARK, Workplace, run_alone
from turnkeeper.storage.format import parse_batch_header

from ..loop_devices import loop_devices_of
from ..serving import eventually
from ..stores import create, lines, new_store

TINY = Sizes(
    small_events=200,
    large_events=3_000,
    openings=1,
    rebuilds=1,
    outages=outages.Sizes(logs=(200_000,), cut=(200_000,), rounds=1, whole_rounds=1, starts=1),
)


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's other caches are not this test's to drop."""
    monkeypatch.setattr(machine, "SYSTEM_CACHES", tmp_path / "none" / "drop_caches")


def test_openings_rebuilds_and_outages_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every opening found one batch to index, every rebuild and verify all events, or it had failed."""
    monkeypatch.setattr(outages, "impossible", lambda: {"power": "only root can cut it"})
    result = run_alone("recovery", partial(measure, TINY), tmp_path)
    warm, cold, *rebuilt = result["runs"][:6]
    assert (warm["name"], warm["params"]["cache"], warm["params"]["dropped_by"]) == ("open", "warm", None)
    assert (cold["name"], cold["params"]["cache"], cold["params"]["dropped_by"]) == ("open", "cold", "posix_fadvise")
    for run in (warm, cold):
        assert run["ratio"] == pytest.approx(run["figures"]["open_ms"] / run["base"]["open_ms"], abs=0.001)
        assert run["figures"]["cpu_ms"] > 0
        assert run["base"]["open_ms"] > 0
        assert (run["params"]["events"], run["params"]["base_events"]) == (3_010, 200)
    assert [(run["name"], run["params"]["run_events"]) for run in rebuilt] == [
        ("rebuild per_second", 1),
        ("verify per_second", 1),
        ("rebuild per_second", 10),
        ("verify per_second", 10),
    ]
    for run in rebuilt:
        figures, base = run["figures"], run["base"]
        assert figures["per_second"] == pytest.approx(run["params"]["events"] / figures["seconds"], rel=0.01)
        assert run["ratio"] == pytest.approx(figures["per_second"] / base["per_second"], rel=0.01, abs=0.001)
    assert all(5 < run["figures"]["anonymous_mb"] < 500 for run in rebuilt if run["name"].startswith("rebuild"))
    check_outages(result["runs"][6:])
    assert [path.name for path in tmp_path.iterdir()] == ["recovery.json"]


PARTS = ("detect_ms", "respawn_ms", "open_ms", "replay_ms", "load_ms", "append_ms")
"""What an outage is made of, one after the other."""


def check_outages(runs: list[dict[str, Any]]) -> None:
    """All that may die has died, the parts of each outage are all of it, and what can't be done here is said."""
    start, *died, power = runs
    assert 0 < start["figures"]["python_ms"] < start["figures"]["trio_ms"]
    assert [run["params"]["after"] for run in died] == [
        outages.WRITER,
        outages.NODE,
        outages.EVERYTHING,
        outages.TORN,
        outages.INDEX,
    ]
    for run in died:
        figures = run["figures"]
        assert all(figures[part] > 0 for part in PARTS)
        assert sum(figures[part] for part in PARTS) == pytest.approx(figures["total_ms"], rel=0.001)
        assert run["ratio"] == pytest.approx(figures["total_ms"] / run["base"]["total_ms"], rel=0.001)
        assert run["params"]["log_bytes"] == 200_000
    everything = died[2]["figures"]
    assert start["figures"]["python_ms"] < everything["host_ms"] < everything["respawn_ms"]
    assert [run["params"]["against"] for run in died] == [*[PLAIN_SQLITE] * 4, outages.LINES]
    assert (power["params"]["after"], power["params"]["left_out"]) == (outages.POWER, "only root can cut it")


@pytest.mark.long
def test_a_power_loss_costs_a_new_index_and_nothing_else(tmp_path: Path) -> None:
    """The disk's power is really cut under the writer; the store was on the disk before, and is found there."""
    why = impossible().get("power")
    if why is not None:
        pytest.skip(why)
    sizes = outages.Sizes(logs=(200_000,), cut=(200_000,), rounds=2, whole_rounds=1, starts=1)
    result = run_alone("recovery", partial(outages.measure_outages, sizes), tmp_path)
    power = result["runs"][-1]
    assert (power["params"]["after"], power["params"]["cache"]) == (outages.POWER, "cold")
    assert sum(power["figures"][part] for part in PARTS[1:]) == pytest.approx(power["figures"]["total_ms"], rel=0.01)
    assert [path.name for path in tmp_path.iterdir()] == ["recovery.json"]


@pytest.mark.root
@pytest.mark.parametrize(
    "file",
    [
        pytest.param("disk.image", id="while it is made"),
        pytest.param("boot_id", id="while its power is cut", marks=pytest.mark.long),
    ],
)
def test_ctrl_c_leaves_no_disk_behind(file: str, tmp_path: Path) -> None:
    """Neither processes that see it, nor its loop device, nor a file; and nobody waits until they end by themselves."""
    if why := impossible().get("power"):
        pytest.skip(why)
    machine = "turnkeeper-bench-*/machine"

    def interrupt() -> None:
        eventually(lambda: list(tmp_path.glob(f"{machine}/{file}")) != [])
        interrupted.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    def measure(place: Workplace) -> NoReturn:
        filling = Filling(400, run_events=10)
        (path,) = place.stores.take(filling)
        Thread(target=interrupt).start()
        with CutStore(path, filling.batches, place.directory / "machine") as cut:
            while True:
                cut.cut_and_recover()

    interrupted: list[float] = []
    with pytest.raises(KeyboardInterrupt):
        run_alone("recovery", measure, tmp_path)
    assert time.monotonic() - interrupted[0] < LEAVE_SECONDS / 2
    assert left_behind(f"{MARK}={tmp_path}/") == []
    assert list(tmp_path.iterdir()) == []
    eventually(lambda: loop_devices_of(tmp_path) == [])


def test_a_log_that_does_not_fit_is_left_out_and_said(tmp_path: Path) -> None:
    """The others are measured; how much room it takes is known before anything is written."""
    sizes = outages.Sizes(logs=(10**18,), cut=(), rounds=1, whole_rounds=1, starts=1)
    result = run_alone("recovery", partial(outages.measure_outages, sizes), tmp_path)
    start, left_out = result["runs"]
    assert start["name"] == "process start"
    assert left_out["params"]["log_bytes"] == 10**18
    assert "GB of disk" in left_out["params"]["left_out"]


def test_a_torn_batch_is_what_a_dying_writer_leaves(tmp_path: Path) -> None:
    """The opening takes it for an unfinished write, keeps a copy of all of it, and reports no damage."""
    with new_store(tmp_path / "store") as store:
        store.open().commit([create("a", lines("a", 0, 2)), create("b", lines("b", 0, 2))])
        store.kill()
        torn_bytes = tear_next_batch(store.path)
        report = store.open().report
        assert [finding.kind for finding in report.findings] == ["torn tail"]
        assert report.torn_bytes == torn_bytes
        assert {stream: len(found) for stream, found in store.events().items()} == {"a": 2, "b": 2}
        (kept,) = (store.path / "quarantine").glob("*.bytes")
        assert parse_batch_header(kept.read_bytes().splitlines(keepends=True)[0]).number == 2
