"""Stories of a whole store in one process: every promise is kept, and a rule left out is found."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .planted_bugs import PLANTS, Plant
from .story import memory, tell

STORIES = 100
LONG_STEPS = 600
STORIES_MAX = 1500
"""So many stories may pass by a planted bug before they count as blind to it."""

ROOT = Path(__file__).resolve().parents[2]


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
    command = [sys.executable, "-m", "tests.simulation", "--tell", *map(str, seeds)]
    environment = {"PYTHONHASHSEED": "7", "PATH": ""}
    told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=True)
    *lines, _ = told.stdout.splitlines()
    assert lines == [line for seed in seeds for line in str(here[seed]).splitlines()]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule that is left out breaks a promise in one of the first stories."""
    plant(monkeypatch)
    assert any(tell(seed, root, faults=PLANTS[plant]).violations for seed in range(STORIES_MAX)), plant.__doc__
