"""Stories of a whole store in one process: every promise is kept, and a rule left out is found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from . import tellers
from .planted_bugs import PLANTS, Plant
from .story import STEPS, Outcome, memory, tell
from .tellers import Telling, tell_all

STORIES = 100
LONG_STEPS = 600
STORIES_MAX = 1500
"""So many stories may pass by a planted bug before they count as blind to it."""

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "tests.simulation", "--processes", "2")


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory in memory, for the index's files."""
    with tempfile.TemporaryDirectory(dir=memory(), prefix="turnkeeper-stories-") as name:
        yield Path(name)


def test_every_promise_is_kept_in_every_story(root: Path) -> None:
    """The same stories in every run of the tests; a failure shows the seed and the whole story."""
    for seed in range(STORIES):
        outcome = tell(seed, root)
        assert not outcome.violations, str(outcome)
        assert outcome.told


def test_every_promise_is_kept_in_a_long_story(root: Path) -> None:
    """What goes wrong only after many other things did has time to."""
    for seed in range(3):
        outcome = tell(seed, root, LONG_STEPS)
        assert not outcome.violations, str(outcome)
        assert outcome.steps > LONG_STEPS


def test_a_seed_tells_the_same_story_in_every_process(root: Path) -> None:
    """Nothing of a story depends on clocks, pids, addresses or sets: a seed is all that a failure has to tell."""
    seeds = range(10)
    here = {seed: tell(seed, root) for seed in reversed(seeds)}
    command = [*COMMAND, "--tell", *map(str, seeds)]
    environment = {"PYTHONHASHSEED": "7", "PATH": ""}
    told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=True)
    *lines, _ = told.stdout.splitlines()
    assert lines == [line for seed in seeds for line in str(here[seed]).splitlines()]


def test_several_processes_give_what_they_tell_in_the_order_of_the_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken promise comes with the whole story, of the others there are the numbers, and each seed comes once."""

    def tell_some(seed: int, root: Path, steps: int, faults: Collection[str]) -> Outcome:
        assert root.is_dir()
        return Outcome(seed, steps, [(0.5, f"{faults}")], ["broken"] if seed == 5 else [])

    monkeypatch.setattr(tellers, "tell", tell_some)
    outcomes = list(tell_all(Telling(9, ("cut",), is_whole=False), [7, 3, 5, 4], 2))
    assert outcomes == [
        Outcome(7, 9),
        Outcome(3, 9),
        Outcome(5, 9, [(0.5, "('cut',)")], ["broken"]),
        Outcome(4, 9),
    ]


def test_a_story_that_its_process_dies_of_is_told_as_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed is said, and somebody else tells the rest."""

    def tell_or_die(seed: int, *_: object) -> Outcome:
        if seed == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return Outcome(seed)

    monkeypatch.setattr(tellers, "tell", tell_or_die)
    outcomes = list(tell_all(Telling(STEPS, (), is_whole=False), range(9), 2))
    assert [outcome.seed for outcome in outcomes] == list(range(9))
    assert {outcome.seed: outcome.violations for outcome in outcomes if outcome.violations} == {
        1: ["whoever told it ended with -9"]
    }


def test_an_interrupt_ends_the_telling_in_order(tmp_path: Path) -> None:
    """What was told is counted, the code says which signal it was, and no process is left."""
    command = [*COMMAND, "--count", "1000000", "--first", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, process_group=0) as telling:
        assert telling.stdout is not None
        try:
            assert telling.stdout.readline() == "from seed 0 on\n"
            os.killpg(telling.pid, signal.SIGINT)
            told, _ = telling.communicate(timeout=100)
        finally:
            telling.kill()
    assert telling.returncode == 128 + signal.SIGINT
    assert told.endswith("0 with broken promises\n")
    with pytest.raises(ProcessLookupError):
        os.killpg(telling.pid, 0)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule that is left out breaks a promise in one of the first stories."""
    plant(monkeypatch)
    assert any(tell(seed, root, faults=PLANTS[plant]).violations for seed in range(STORIES_MAX)), plant.__doc__
