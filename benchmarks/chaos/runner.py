"""Chaos, round after round: each has a plan from a seed of its own and a store of its own, and is judged.

A run of seed S has rounds of the seeds S, S + 1, S + 2 …, as many as its time holds and one at least. The first rounds
in which a promise was broken keep their directories, which are named; in a longer run a shorter plan is looked for that
breaks a promise, too, for the first of them. Nothing else is left: no process, no limit, no mount, no changed clock,
whenever it is interrupted; where it is killed itself, a caretaker sees to that.
"""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from turnkeeper import TurnkeeperError

from ..measuring.interrupts import Interrupts
from ..measuring.runs import Tell, be_quiet
from . import abilities
from .caretaker import PLAN, TEMPORARY, taken_care_of
from .drawing import make_plan
from .plan import FAULTS, ROLES, RoundPlan, narrowed
from .report import Report, RoundReport
from .round import play
from .shrink import shrunk

SHRINK_SECONDS = 120.0
"""So long a shorter plan is looked for."""

SPACE_BYTES_MIN = 1024**3
"""So much space a round has to have: for a store, its reserve, the disk whose power is cut, copies, and notes."""

SHORTEST = "shortest-plan.json"
"""The file in the directory of a round that is kept, beside its plan: the shortest that broke a promise, too."""

KEPT_MAX = 10
"""So many rounds are kept, the first ones in which a promise was broken: a long run must not fill the disk."""

_SEEDS = 1_000_000


class PlaceHoldsData(TurnkeeperError):
    """The directory that was given for the rounds' stores is not empty, and chaos takes none but its own."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def message(self) -> str:
        """Say it in one line."""
        return f"{self.path} is not empty, and chaos destroys stores; give a new or an empty directory"


class TooLittleSpace(TurnkeeperError):
    """Where the rounds' stores are made there are `free` bytes, and a round needs more."""

    def __init__(self, path: str, free: int) -> None:
        super().__init__(path, free)
        self.path = path
        self.free = free

    def message(self) -> str:
        """Say it in one line."""
        return f"{self.path} has {self.free:,} bytes free, and a round of chaos needs {SPACE_BYTES_MIN:,}; make space"


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """What to do: rounds from `seed` on, for `seconds`; without a seed one is drawn, without seconds it is one round.

    With a `plan` it is one round by that. `until_broken`: the first round in which a promise is broken is the last, and
    no shorter plan is looked for. `kills` and `faults` are those that may be in a plan. `place` is where the
    rounds have their directories, one after another; it must be new or empty, and stays.
    """

    seed: int | None = None
    seconds: float | None = None
    kills: tuple[str, ...] = ROLES
    faults: tuple[str, ...] = FAULTS
    place: Path | None = None
    plan: RoundPlan | None = None
    until_broken: bool = False


Show = Callable[[Report, int, str], None]
"""Called with what is done so far, the seed of the round that is played now, and what is going on."""


def run_chaos(options: ChaosOptions, show: Show | None = None) -> Report:
    """Play rounds and judge them. For a program's main thread: it takes the signals that end a program.

    Raises PlaceHoldsData, TooLittleSpace. Interrupted, it raises KeyboardInterrupt or SystemExit when everything is put
    right.
    """
    seed = options.seed if options.plan is None else options.plan.seed
    report = Report(secrets.randbelow(_SEEDS) if seed is None else seed)
    began = time.monotonic()
    tell = show or (lambda report, seed, phase: None)
    with Interrupts() as interrupts, _parent(options.place) as parent, taken_care_of(parent):
        player = _Player(parent, interrupts)
        cannot = abilities.impossible()
        report.left_out = {name: why for name, why in cannot.items() if name in (*options.kills, *options.faults)}
        while not report.rounds or time.monotonic() - began < (options.seconds or 0.0):
            planned = options.plan or make_plan(report.seed + report.rounds)
            plan = narrowed(planned, kills=options.kills, faults=options.faults, impossible=cannot)
            played = player.play(plan, partial(tell, report, plan.seed))
            report.take(played)
            report.elapsed = time.monotonic() - began
            tell(report, plan.seed, "judged")
            if not played.is_clean:
                if options.until_broken:
                    break
                if report.shortest is None and options.seconds is not None:
                    tell(report, plan.seed, "looking for a shorter plan that breaks a promise")
                    shorter = shrunk(plan, lambda each: not player.play(each, keep=False).is_clean, SHRINK_SECONDS)
                    report.shortest = shorter.as_map()
                    _keep(shorter, played.kept, SHORTEST)
                    report.elapsed = time.monotonic() - began
    return report


class _Player:
    def __init__(self, parent: Path, interrupts: Interrupts) -> None:
        self._parent = parent
        self._interrupts = interrupts
        self._kept = 0

    def play(self, plan: RoundPlan, tell: Tell = be_quiet, *, keep: bool = True) -> RoundReport:
        """Play a round, judge it, and remove its directory, but for one to be kept because a promise was broken.

        Raises TooLittleSpace. What nobody can note can't be judged: so much that this can't happen has to be free.
        """
        free = shutil.disk_usage(self._parent).free
        if free < SPACE_BYTES_MIN:
            raise TooLittleSpace(str(self._parent), free)
        place = Path(tempfile.mkdtemp(prefix=f"round-{plan.seed}-", dir=self._parent))
        began = time.monotonic()
        is_kept = False
        try:
            outcome = play(plan, place, self._interrupts, tell)
            is_kept = keep and bool(outcome.broken) and self._kept < KEPT_MAX
            self._kept += is_kept
            _keep(plan, str(place) if is_kept else None, PLAN)
            return RoundReport(
                seed=plan.seed,
                seconds=time.monotonic() - began,
                plan=plan.as_map(),
                course=outcome.course,
                figures=outcome.figures,
                broken=outcome.broken,
                violations=outcome.violations,
                kept=str(place) if is_kept else None,
            )
        finally:
            if not is_kept:
                shutil.rmtree(place)


def _keep(plan: RoundPlan, kept: str | None, name: str) -> None:
    """Write a plan into the directory of a round that is kept, to be played again."""
    if kept is not None:
        Path(kept, name).write_text(json.dumps(plan.as_map(), indent=2) + "\n")


@contextmanager
def _parent(given: Path | None) -> Iterator[Path]:
    """Give the directory in which rounds have theirs; a temporary one is removed if nothing was kept in it."""
    if given is None:
        made = Path(tempfile.mkdtemp(prefix=TEMPORARY))
        try:
            yield made
        finally:
            if not any(made.iterdir()):
                made.rmdir()
        return
    if given.exists() and (not given.is_dir() or any(given.iterdir())):
        raise PlaceHoldsData(str(given))
    given.mkdir(parents=True, exist_ok=True)
    yield given.resolve()
