"""Facts of the model that follow from a journal's cells alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache

from .worlds import JOURNALS_REMEMBERED, TORN, Cell, Event, Journal, Rules, Run, World


def good_cells(journal: Journal) -> int:
    """Count the good batches before the first bad or unwritten one."""
    return next((number for number, cell in enumerate(journal) if not isinstance(cell, Run)), len(journal))


@lru_cache(JOURNALS_REMEMBERED)
def events_of(journal: Journal) -> tuple[Event, ...]:
    """Return the events of the journal's good beginning, in the order of its batches."""
    return tuple(
        Event(cell.epoch, cell.first + offset, line)
        for cell in itertools.takewhile(lambda cell: isinstance(cell, Run), journal)
        if isinstance(cell, Run)
        for offset, line in enumerate(cell.lines)
    )


@lru_cache(JOURNALS_REMEMBERED)
def lines_of(journal: Journal) -> frozenset[tuple[int, str]]:
    """Return the lines of the journal's good beginning, each with its epoch."""
    return frozenset((event.epoch, event.line) for event in events_of(journal))


@lru_cache(JOURNALS_REMEMBERED)
def epoch_of(journal: Journal) -> int:
    """Return the stream's epoch: the greatest of its runs."""
    return max((cell.epoch for cell in journal[: good_cells(journal)] if isinstance(cell, Run)), default=0)


def with_cell(journal: Journal, number: int, cell: Cell) -> Journal:
    """Return the journal with a cell written, and no filling behind its last batch."""
    cells = [*journal, *[None] * (number + 1 - len(journal))]
    cells[number] = cell
    while cells and cells[-1] is None:
        cells.pop()
    return tuple(cells)


def _cell(journal: Journal, number: int) -> Cell:
    """Return a cell, which is filling behind the journal's end."""
    return journal[number] if number < len(journal) else None


def synced_disk(world: World) -> Journal:
    """Return the disk after a sync that did its work."""
    disk = world.disk
    for number in world.dirty:
        disk = with_cell(disk, number, _cell(world.cache, number))
    return disk


@lru_cache(JOURNALS_REMEMBERED)
def power_cuts(cache: Journal, disk: Journal, dirty: frozenset[int]) -> tuple[Journal, ...]:
    """Return what a power cut may leave: each dirty cell as it was, as it should be, or, if those differ, torn."""
    outcomes = [disk]
    for number in dirty:
        was, should_be = _cell(disk, number), _cell(cache, number)
        if was != should_be:
            outcomes = [with_cell(outcome, number, cell) for outcome in outcomes for cell in (was, should_be, TORN)]
    return tuple(outcomes)


@lru_cache(JOURNALS_REMEMBERED)
def survivors(cache: Journal, disk: Journal, dirty: frozenset[int]) -> frozenset[tuple[int, str]]:
    """Return the lines that every outcome of a power cut has, each with its epoch."""
    return frozenset.intersection(*(lines_of(outcome) for outcome in power_cuts(cache, disk, dirty)))


def closing(events: Sequence[Event], closer: str, rules: Rules) -> str | None:
    """Return the line that closes the turn which these events leave open, or None if they leave none."""
    if any(event.line.startswith("closing") for event in events):
        return None
    line = f"closing after {len(events)}"
    return line if rules.deterministic_closings else f"{line} by {closer}"
