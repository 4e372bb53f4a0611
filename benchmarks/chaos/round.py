"""One round: a plan, carried out on a store of its own, and judged."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from ..measuring.interrupts import Interrupts
from ..measuring.runs import Tell
from . import spoiling
from .checker.losses import CopyReading, expected_loss
from .outcome import Copied, Outcome, judge_round
from .plan import Copying, Life, Role, RoundPlan
from .power_cut import cut_power
from .stage import GONE_SECONDS, LEAVE_SECONDS, Stage
from .strikes import Strikes
from .watching import note_processes

READ_SECONDS = 60.0
"""How long a reading of everything may take."""

START_SECONDS = 4.0
"""How long it is waited for every host's first note before a life's time counts: a busy machine needs that long."""

USUAL_START_SECONDS = 1.0
"""How long that takes where nothing else goes on. On a machine on which it takes longer everything does, ..."""

STRETCH_MAX = 2.5
"""... so all moments of that life come later by as much, up to this, or strikes would only hit who has just started."""

DAMAGED_EXIT_CODE = 5
"""How `journal verify` ends if anything is damaged."""

WATCH_SECONDS = 0.7
"""So often it is looked what processes hold."""

_SERVING: tuple[Role, ...] = ("host", "worker", "node", "writer", "spawner")


def play(plan: RoundPlan, place: Path, interrupts: Interrupts, tell: Tell) -> Outcome:
    """Play a round in a directory that is there and empty, and judge it. Whatever happens, nothing of it lives on.

    `tell` is called with what is going on, about once a second while somebody may be struck. Raises KeyboardInterrupt
    or SystemExit when that was wanted meanwhile.
    """
    with Stage(plan, place, interrupts) as stage:
        for number, life in enumerate(plan.lives, 1):
            stage.notebook.life(number)
            _live(stage, life, lambda number=number: tell(_phase(stage, number)))  # type: ignore[misc]
        tell("reading everything back")
        _read_all(stage)
        copies = [_copy(stage, number, each) for number, each in enumerate(plan.copies)]
        tell("judging")
        with interrupts.raising():
            return judge_round(stage, [each for each in copies if each is not None], GONE_SECONDS)


def _phase(stage: Stage, life: int) -> str:
    return f"life {life} of {len(stage.plan.lives)}, {stage.killed:,} killed"


def _live(stage: Stage, life: Life, tell: Callable[[], None]) -> None:
    """Carry out a life, from the start of its hosts until nobody is left."""
    tell()
    strikes = Strikes(stage)
    began = time.monotonic()
    for host in stage.plan.hosts:
        stage.start(host)
    stage.wait(START_SECONDS, stage.is_at_work)
    stretch = stretch_for(time.monotonic() - began)
    seconds = life.length_ms / 1000 * stretch
    timeline = stage.begin_timeline()
    strikes.plan(life, stretch)
    for number in range(1, int(seconds / WATCH_SECONDS)):
        timeline.at(number * WATCH_SECONDS, partial(_watch, stage, tell))
    timeline.run(seconds)
    strikes.end()
    if life.ending == "in order":
        _leave_in_order(stage)
    elif life.ending == "killed":
        strikes.kill_all(_SERVING)
    else:
        cut_power(stage, strikes, life.cut)
    stage.await_gone()
    if stage.disk is not None and life.ending == "power cut":
        stage.disk.restart()
    _spoil_index(stage, life)


def stretch_for(start_seconds: float) -> float:
    """Say how many times as long a life is to last that took so long to begin."""
    return min(STRETCH_MAX, max(1.0, start_seconds / USUAL_START_SECONDS))


def _watch(stage: Stage, tell: Callable[[], None]) -> None:
    tell()
    agents = sum(len(host.agents) for host in stage.plan.hosts)
    segments = len(list(stage.store.glob("journal/*.jsonl")))
    note_processes(stage.find(), stage.notebook, agents, segments)


# -- The end of a life


def _leave_in_order(stage: Stage) -> None:
    hosts = stage.hosts
    for host in hosts.values():
        host.leave()
    stage.wait(LEAVE_SECONDS, lambda: all(host.has_ended for host in hosts.values()))
    for name, host in hosts.items():
        if not host.has_ended:
            stage.complain(f"{name} was ordered to leave, and hasn't {LEAVE_SECONDS:.0f} s later")
    stage.release_hosts()


def _spoil_index(stage: Stage, life: Life) -> None:
    if life.index == "kept":
        return
    random = Random(f"{stage.plan.seed} {life.length_ms}")
    spoil = spoiling.delete_index if life.index == "index-deleted" else spoiling.damage_index
    stage.notebook.strike(life.index, "index")
    stage.notebook.strike("spoiled", "index", how=spoil(stage.store, random))


# -- The end of all


def _read_all(stage: Stage) -> None:
    """Let a program open everything once more, and note what it reads; let the product verify a journal."""
    notes = str(stage.notes / "reading.jsonl")
    stage.run("reading", ["turnkeeper.benchmarks.chaos.reading", stage.url, notes], READ_SECONDS)
    stage.await_gone()
    if stage.plan.store.backend != "journal":
        return
    verified = _verify(stage, "verify", stage.store)
    if verified is not None and (verified["damaged"] or verified["torn_tail"]):
        stage.complain(f"journal verify finds damage that nobody did: {verified['damaged'] or verified['torn_tail']}")


def _copy(stage: Stage, number: int, copying: Copying) -> Copied | None:
    """Spoil a copy of the store, and let programs verify and read it; None, and a complaint, if one fails."""
    copy = stage.place / f"copy-{number}"
    shutil.copytree(stage.store, copy, ignore=shutil.ignore_patterns("*.sock"))
    spoil = spoiling.flip_bytes if copying.kind == "flip" else spoiling.cut_tail
    stage.notebook.strike(copying.kind, copy.name)
    stage.notebook.strike("spoiled", copy.name, how=spoil(copy, Random(copying.number)))
    loss = expected_loss(stage.store, copy)
    verified = _verify(stage, f"verify-{number}", copy)
    read = stage.run(f"read-{number}", ["turnkeeper.benchmarks.chaos.copy_reading", str(copy)], READ_SECONDS)
    if verified is None or read is None:
        return None
    return Copied(copy.name, loss, CopyReading(verified, **json.loads(read)))


def _verify(stage: Stage, name: str, store: Path) -> dict[str, Any] | None:
    """Let the product verify a journal; give what it says, None, and a complaint, if it says nothing."""
    command = ["turnkeeper", "--store", str(store), "--json", "journal", "verify", "--deep"]
    said = stage.run(name, command, READ_SECONDS, allowed=(0, DAMAGED_EXIT_CODE))
    return None if said is None else json.loads(said)
