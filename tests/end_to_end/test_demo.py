"""End to end: the demo as users run it, but shorter: real agents, real kills, and the oracle's word at the end."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.actors.client.asking import ask_hello
from turnkeeper.benchmarks.demonstration.demo import DemoOptions, StoreHoldsData, run_demo
from turnkeeper.benchmarks.demonstration.plan import WORKERS_MAX
from turnkeeper.benchmarks.demonstration.planned_tasks import MARK
from turnkeeper.benchmarks.demonstration.progress import Progress
from turnkeeper.benchmarks.measuring.marked_processes import WrongProcess, left_behind
from turnkeeper.benchmarks.stores.transcripts import NoTranscripts

FIGURES = {
    "sessions",
    "events",
    "acknowledged",
    "found",
    "lost",
    "repeated",
    "holes",
    "open_turns",
    "tasks",
    "wrong_exits",
    "wrong_runs",
    "wrong_outputs",
    "wrong_notices",
    "orphans",
    "kills",
    "flush_ms",
    "start_ms",
    "recovery_ms",
    "plain",
    "proven",
    "plan",
}


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the demo makes its temporary directories; nothing is left there, and no process of a demo lives on."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    yield directory
    assert list(directory.iterdir()) == []
    assert left_behind(f"{MARK}={directory}") == []


class Watcher:
    """A display that keeps what it is shown."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def show(self, progress: Progress) -> None:
        """Keep the phase."""
        self.phases.append(progress.phase)


def test_nothing_acknowledged_is_lost_when_writer_node_and_spawner_are_killed() -> None:
    """The main job: everything noted is found once, in order, under kills, every task ended as it had to and left
    nothing behind; and plain files and child processes show what is prevented. (How much of it is repeated there
    follows from where in a turn each kill falls, which may be between two.)
    """
    watcher = Watcher()
    result = run_demo(DemoOptions(sessions=3, seed=4, seconds=2.0), watcher)
    figures = json.loads(json.dumps(result.as_map()))
    assert figures.keys() >= FIGURES
    assert result.violations == ()
    assert result.is_clean
    wrong = ("lost", "repeated", "holes", "open_turns")
    assert [figures[name] for name in wrong] == [0, 0, 0, 0]
    assert figures["acknowledged"] == figures["found"] == figures["events"] > 100
    assert figures["tasks"] > 5
    wrong_tasks = ("wrong_exits", "wrong_runs", "wrong_outputs", "wrong_notices", "orphans")
    assert [figures[name] for name in wrong_tasks] == [0] * 5
    assert figures["kills"] == {"writer": 2, "spawner": 2, "node": 1}
    assert all(time > 0 for times in figures["recovery_ms"].values() for time in times)
    assert figures["second_owners"] == {"refused": 1, "let_in": 0}
    plain = figures["plain"]
    assert plain["kills"] == {"agent": 5}
    assert plain["second_owners"] == {"refused": 0, "let_in": 1}
    assert (plain["torn_writes"], plain["unreadable"], plain["lost"]) == (1, 1, 1)
    assert plain["wrong_exits"] > 0
    assert plain["orphans"] > 0
    assert set(watcher.phases) >= {"starting the agents", "replaying"}


def test_without_kills_nobody_dies_and_a_given_store_is_kept(tmp_path: Path) -> None:
    """What was given is served no more at the end, and holds what was replayed, by more sessions than workers."""
    store = tmp_path / "store"
    result = run_demo(DemoOptions(sessions=WORKERS_MAX + 2, seed=3, seconds=0.5, kill=False, store=store))
    assert result.is_clean
    assert result.verdict.sessions == WORKERS_MAX + 2
    assert result.as_map()["kills"] == {}
    assert (result.plain_task_verdict.tasks, result.plain_task_verdict.wrong_exits) == (result.task_verdict.tasks, 0)
    assert "nothing is proven" in result.proven
    assert ask_hello(str(store)) is None
    assert len(list((store / "journal").iterdir())) == 1


def test_paths_without_sessions_are_refused(tmp_path: Path) -> None:
    """Nothing is started for nothing, and the path is named."""
    (tmp_path / "notes.txt").write_text("no session")
    with pytest.raises(NoTranscripts, match=r"notes\.txt"):
        run_demo(DemoOptions(paths=(tmp_path / "notes.txt",)))


def test_a_store_that_holds_data_is_refused_untouched(tmp_path: Path) -> None:
    """What kills and fills takes no store of anybody's."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "store.json").write_text("{}")
    with pytest.raises(StoreHoldsData, match="is not empty"):
        run_demo(DemoOptions(store=store))
    assert [path.name for path in store.iterdir()] == ["store.json"]
    with pytest.raises(StoreHoldsData):
        run_demo(DemoOptions(store=store / "store.json"))


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), WrongProcess("no spawner serves the store")])
def test_a_demo_that_does_not_come_to_its_end_leaves_no_process(failure: BaseException) -> None:
    """In the middle of it, with tasks running in both columns, all of them are ended, and the store's processes too."""

    class Stopping:
        def show(self, progress: Progress) -> None:
            if min(progress.store.tasks, progress.plain.tasks) > 3:
                raise failure

    with pytest.raises(type(failure)):
        run_demo(DemoOptions(sessions=2, seed=5, seconds=3.0, kill=False), Stopping())


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_the_whole_demo_loses_nothing(seed: int) -> None:
    """Whatever the moments of the kills, at the size that users see."""
    result = run_demo(DemoOptions(seed=seed))
    assert result.violations == ()
    assert result.is_clean
