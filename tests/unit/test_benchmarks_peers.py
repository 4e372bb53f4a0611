"""What ours is measured beside: who isn't installed is told, who is says what its events outlive, none loses one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import pytest

from turnkeeper.benchmarks.driving.baselines import SqliteRows
from turnkeeper.benchmarks.driving.loads import Load
from turnkeeper.benchmarks.flushing import peer_flushes
from turnkeeper.benchmarks.measuring.durability import (
    NEARLY_POWER_LOSS,
    POWER_LOSS,
    PROCESS_DEATH,
    Durability,
    sqlite_durability,
)
from turnkeeper.benchmarks.measuring.inhabitants import inhabitants
from turnkeeper.benchmarks.measuring.runs import Figures, Run, be_quiet
from turnkeeper.benchmarks.peers.catalogue import (
    AGENTS,
    DBOS,
    INSTALL,
    LANGGRAPH,
    LANGGRAPH_CONVERSATION,
    READING,
    SQLITE,
    KeeperPeer,
)
from turnkeeper.benchmarks.peers.keeper_hosts import time_reads
from turnkeeper.benchmarks.reading import peer_openings
from turnkeeper.benchmarks.tasks.hosts import measure_part
from turnkeeper.benchmarks.tasks.supervised_programs import (
    INSTALL_SUPERVISOR,
    Sizes,
    find_supervisord,
    measure_supervised,
)

MISSING = KeeperPeer("nobody's sessions", "no_such_module", distribution="no-such-distribution")
LOADS = (Load(1, 0.02), Load(3, 0.02, events=10))


def skip_unless_installed(peer: KeeperPeer) -> None:
    """Skip the test where the peer can't be measured."""
    if peer.installed is None:
        pytest.skip(f"{peer.distribution} isn't installed: {INSTALL}")


@dataclass
class Ours:
    """Stands in for our host: it flushes nothing, and is as fast as it likes."""

    loads: list[Load]

    def burst(self, load: Load) -> Figures:
        """Remember the load."""
        self.loads.append(load)
        return {"p50_ms": 1.0, "p99_ms": 2.0, "per_second": 1_000.0}


def flush_beside(directory: Path, *peers: KeeperPeer) -> tuple[list[Run], list[Load]]:
    """Measure flushes of peers; give the runs, and the loads that ours was put under."""
    ours = Ours([])
    sizes = peer_flushes.Sizes(LOADS, rounds=2, warm_up_seconds=0.01, peers=peers)
    return peer_flushes.measure_flushes(ours.burst, sizes, directory, be_quiet, {"stored": 7}), ours.loads


@pytest.mark.parametrize(
    ("journal_mode", "synchronous", "survives"),
    [
        ("wal", 3, POWER_LOSS),
        ("WAL", 2, POWER_LOSS),
        ("wal", 1, PROCESS_DEATH),
        ("wal", 0, PROCESS_DEATH),
        ("delete", 3, POWER_LOSS),
        ("delete", 2, NEARLY_POWER_LOSS),
        ("delete", 1, PROCESS_DEATH),
        ("memory", 3, PROCESS_DEATH),
    ],
)
def test_what_a_transaction_outlives_follows_from_its_settings(
    journal_mode: str, synchronous: int, survives: str
) -> None:
    """A log is synced by each commit from FULL on; a journal's removal by none but EXTRA."""
    assert sqlite_durability(journal_mode, synchronous).survives == survives


def test_a_peer_that_is_there_is_measured_and_another_gets_a_row_that_says_how_to_install_it(tmp_path: Path) -> None:
    """Under each load, in turns with ours; a row says what the peer's events outlive, and by which settings."""
    runs, loads = flush_beside(tmp_path, SQLITE, MISSING)
    alone, turns, missing = runs
    assert (alone.name, turns.name) == ("flush p50_ms", "flush per_second")
    for run in (alone, turns):
        assert run.params["against"] == SQLITE.name
        assert run.params["survives"] == POWER_LOSS
        assert run.params["settings"] == "journal_mode=wal, synchronous=FULL"
        assert (run.params["rounds"], run.params["stored"]) == (2, 7)
        assert run.base["per_second"] > 0
    assert alone.rounds.ratio == pytest.approx([1.0 / each for each in alone.rounds.base["p50_ms"]], rel=0.01)
    assert turns.rounds.ratio == pytest.approx([1_000 / each for each in turns.rounds.base["per_second"]], rel=0.01)
    assert [(load.sessions, load.events, load.seconds) for load in loads] == [
        (1, 1, 0.01),
        *[(1, 1, 0.02)] * 2,
        (3, 10, 0.01),
        *[(3, 10, 0.02)] * 2,
    ]
    with closing(SqliteRows(tmp_path / "peer-0", 3)) as kept:
        assert [len(kept.read(session)) % 10 for session in (1, 2)] == [
            0,
            0,
        ]  # they flushed under the second load alone
        assert all(len(kept.read(session)) >= 10 for session in (1, 2))
    assert missing.params == {"stored": 7, "against": MISSING.name, "left_out": INSTALL}
    assert (missing.figures, missing.base, missing.ratio) == ({}, {}, None)


def test_without_any_peer_nothing_is_measured(tmp_path: Path) -> None:
    """There would be nothing to compare ours with."""
    runs, loads = flush_beside(tmp_path, MISSING)
    assert [run.params["left_out"] for run in runs] == [INSTALL]
    assert loads == []


def test_a_peer_that_is_slow_with_many_sessions_has_fewer(tmp_path: Path) -> None:
    """And the row says how many."""
    slow = KeeperPeer(SQLITE.name, SQLITE.module, SQLITE.opener, sessions_max=2)
    runs, loads = flush_beside(tmp_path, slow)
    assert [(run.params["sessions"], run.params["base_sessions"]) for run in runs] == [(1, 1), (3, 2)]
    assert max(load.sessions for load in loads) == 3


def test_a_long_session_is_opened_by_all_that_are_there(tmp_path: Path) -> None:
    """All its events are read; whoever isn't installed is told."""
    sizes = peer_openings.Sizes(events=30, reads=2, rounds=2, peers=(SQLITE, MISSING))
    there, missing = peer_openings.measure_openings(sizes, tmp_path, be_quiet)
    assert there.rounds.ratio == pytest.approx(
        [a / b for a, b in zip(there.rounds.figures["p50_ms"], there.rounds.base["p50_ms"], strict=True)], rel=0.01
    )
    assert there.params["session_events"] == 30
    assert (missing.params["against"], missing.params["left_out"]) == (MISSING.name, INSTALL)


class Forgetful:
    """Sessions of which an event is lost."""

    async def flush(self, session: int, texts: Sequence[str]) -> None:
        """Keep nothing."""

    async def settle(self) -> None:
        """Keep nothing."""

    async def fill(self, session: int, events: int) -> None:
        """Keep nothing."""

    async def read(self, session: int) -> int:
        """Find too little."""
        return 29

    async def durability(self) -> Durability:
        """Promise nothing."""
        return Durability(PROCESS_DEATH, "none")


def test_a_peer_that_loses_an_event_has_no_figures() -> None:
    """A quick way to read less must not win."""
    assert anyio.run(time_reads, Forgetful(), 29, 1)["p50_ms"] > 0
    with pytest.raises(RuntimeError, match="of 30 events 29 were read"):
        anyio.run(time_reads, Forgetful(), 30, 1)


BROKEN = KeeperPeer("a broken one", "no_such_module")


def test_a_peer_that_fails_is_left_out_with_the_reason_and_the_others_are_measured(tmp_path: Path) -> None:
    """A new release of one library must not take the figures of all the others."""
    *flushed, broken = flush_beside(tmp_path, BROKEN, SQLITE)[0]
    assert [run.params["against"] for run in flushed] == [SQLITE.name] * 2
    why = "Python alone fails here: ModuleNotFoundError: No module named 'turnkeeper.benchmarks.peers.no_such_module'"
    assert broken.params == {"stored": 7, "against": BROKEN.name, "left_out": why}
    directory = tmp_path / "opened"
    directory.mkdir()
    sizes = peer_openings.Sizes(events=3, reads=1, rounds=1, peers=(BROKEN, SQLITE))
    opened, broken = peer_openings.measure_openings(sizes, directory, be_quiet)
    assert opened.params["against"] == SQLITE.name
    assert (broken.params["against"], broken.params["left_out"]) == (BROKEN.name, why)


@pytest.mark.parametrize(
    ("peer", "survives"),
    [
        (AGENTS, POWER_LOSS),
        (LANGGRAPH, POWER_LOSS),
        (LANGGRAPH_CONVERSATION, POWER_LOSS),
        (DBOS, NEARLY_POWER_LOSS),
    ],
    ids=lambda value: getattr(value, "module", None),
)
def test_an_installed_peer_flushes_and_says_what_that_outlives(tmp_path: Path, peer: KeeperPeer, survives: str) -> None:
    """With what each is set up as its own users do; a new release that sets something else shows here first."""
    skip_unless_installed(peer)
    runs, _ = flush_beside(tmp_path, peer)
    assert [run.params["survives"] for run in runs] == [survives] * 2
    assert {run.params["installed"] for run in runs} == {peer.installed}
    assert all(0 < run.base["p50_ms"] < 60_000 for run in runs)


@pytest.mark.parametrize("peer", [each for each in READING if each.distribution], ids=lambda peer: peer.module)
def test_an_installed_peer_reads_all_events_of_a_session(tmp_path: Path, peer: KeeperPeer) -> None:
    """As a program does that goes on with it."""
    skip_unless_installed(peer)
    (run,) = peer_openings.measure_openings(
        peer_openings.Sizes(25, reads=1, rounds=1, peers=(peer,)), tmp_path, be_quiet
    )
    assert run.base["p50_ms"] > 0


def test_supervisord_is_measured_where_it_is_installed(tmp_path: Path) -> None:
    """Starts, ends and stops, of which the last leave those that lead a process session of their own; and no trace."""
    supervisord = find_supervisord()
    if supervisord is None:
        pytest.skip(f"supervisord isn't installed: {INSTALL_SUPERVISOR}")
    sizes = Sizes(starts=2, ends=2, trees=2, rounds=1, runs_seconds=0.05)
    measure: Callable[[], list[Run]] = partial(
        measure_part, tmp_path / "store", be_quiet, measure_supervised, supervisord, sizes
    )
    start, end, stop = measure()
    for run in (start, end):
        assert 0 < run.base["p50_ms"] < 60_000
        assert run.params["installed"].startswith("supervisor 4")
    assert stop.figures["left"] == 0
    assert stop.base["left"] >= 2
    assert inhabitants(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
