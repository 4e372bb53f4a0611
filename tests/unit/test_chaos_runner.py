"""Rounds of chaos one after another: when a run ends, and what is done about a promise that was broken."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from turnkeeper.benchmarks.chaos import abilities, runner
from turnkeeper.benchmarks.chaos.outcome import Outcome
from turnkeeper.benchmarks.chaos.plan import RoundPlan
from turnkeeper.benchmarks.chaos.runner import KEPT_MAX, ChaosOptions, run_chaos

from ..chaos_reports import COURSE, FIGURES, violation

FIRST_SEED, BROKEN_SEED = 5, 7
MANY_SECONDS = 3600.0


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of the rounds that were played: none is carried out, and the one of a seed breaks a promise."""
    seeds: list[int] = []

    def play(plan: RoundPlan, *_: object) -> Outcome:
        seeds.append(plan.seed)
        broken = [violation()] if plan.seed == BROKEN_SEED else []
        return Outcome(COURSE, FIGURES, {each["promise"]: 1 for each in broken}, broken)

    monkeypatch.setattr(runner, "play", play)
    monkeypatch.setattr(abilities, "impossible", dict)
    return seeds


@pytest.fixture
def shortened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of the plans for which a shorter one was looked for; none is found."""
    seeds: list[int] = []

    def shrunk(plan: RoundPlan, is_broken: Callable[[RoundPlan], bool], seconds: float) -> RoundPlan:
        seeds.append(plan.seed)
        return plan

    monkeypatch.setattr(runner, "shrunk", shrunk)
    return seeds


def test_a_run_may_end_with_the_first_broken_promise(played: list[int], shortened: list[int], tmp_path: Path) -> None:
    """The round that breaks one is the last, it is kept, and no shorter plan is looked for."""
    report = run_chaos(ChaosOptions(FIRST_SEED, MANY_SECONDS, place=tmp_path / "rounds", until_broken=True))
    assert played == [5, 6, BROKEN_SEED]
    assert (report.rounds, report.broken_seeds, report.shortest) == (3, [BROKEN_SEED], None)
    assert shortened == []
    (kept,) = (tmp_path / "rounds").iterdir()
    assert str(kept) == report.shown[-1].kept
    assert 0 < report.elapsed < MANY_SECONDS


def test_a_run_goes_on_behind_a_broken_promise(
    played: list[int], shortened: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its time is over, once a shorter plan was looked for."""
    clock = iter(range(100))
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    report = run_chaos(ChaosOptions(FIRST_SEED, 30.0, place=tmp_path / "rounds"))
    assert played[:4] == [5, 6, BROKEN_SEED, 8]
    assert report.broken_seeds == shortened == [BROKEN_SEED]
    assert report.shortest is not None


def test_the_first_broken_rounds_are_kept_and_no_others(
    shortened: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: they would fill the disk. All are counted, and every other one is broken here."""
    played: list[int] = []
    rounds = 3 * KEPT_MAX

    def play(plan: RoundPlan, place: Path, *_: object) -> Outcome:
        (place / "file").write_text("something")
        played.append(plan.seed)
        return Outcome(COURSE, FIGURES, {} if plan.seed % 2 else {"a promise": 1}, [])

    monkeypatch.setattr(runner, "play", play)
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: len(played)))
    report = run_chaos(ChaosOptions(1, rounds, place=tmp_path))
    assert (report.rounds, report.broken.total()) == (rounds, rounds // 2)
    kept = sorted(Path(each.kept) for each in report.shown if each.kept is not None)
    assert kept == sorted(tmp_path / name for name in os.listdir(tmp_path))
    plans = [RoundPlan.from_map(json.loads((each / "plan.json").read_text())) for each in kept]
    assert sorted(plan.seed for plan in plans) == list(range(2, 2 * KEPT_MAX + 1, 2))
