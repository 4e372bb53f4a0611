"""All that a round is judged by, read once: what is stored, what was noted, what tasks witnessed, what is left."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ...demonstration.task_oracle import output_digest, read_witnesses
from ..notes import Note, read_notebooks
from .database import DATABASE, read_database
from .journal import read_journal
from .leftovers import Leftovers
from .openings import Opening, Outcome, openings_in, outcomes_of
from .stored import Stored


class Output(NamedTuple):
    """What a task's file of output holds."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a round. `notes` are by their word, each file's in its order.

    `witnesses` is what each task's command wrote of itself, by the task's key; `outputs` what each task's file holds,
    `shims` the process that began each task, by its id; None where nobody has looked. `is_settled`: every session has
    been opened once more, and closed in order, by somebody behind the last strike, and every task has ended.
    """

    stored: Stored
    notes: Mapping[str, Sequence[Note]]
    openings: Sequence[Opening]
    outcomes: Sequence[Outcome]
    witnesses: Mapping[str, Sequence[str]] | None = None
    outputs: Mapping[str, Output] | None = None
    shims: Mapping[str, int] | None = None
    leftovers: Leftovers = field(default_factory=Leftovers)
    is_settled: bool = True


def make_evidence(
    stored: Stored,
    notes: Iterable[Note],
    *,
    witnesses: Mapping[str, Sequence[str]] | None = None,
    outputs: Mapping[str, Output] | None = None,
    shims: Mapping[str, int] | None = None,
    leftovers: Leftovers | None = None,
    is_settled: bool = True,
) -> Evidence:
    """Put what was read together. Raises UnusableNotes."""
    by_word: dict[str, list[Note]] = defaultdict(list)
    notes = list(notes)
    for note in notes:
        by_word[note["what"]].append(note)
    openings = openings_in(notes)
    outcomes = outcomes_of(openings, stored)
    found = Leftovers() if leftovers is None else leftovers
    return Evidence(stored, by_word, openings, outcomes, witnesses, outputs, shims, found, is_settled)


def read_stored(store: Path) -> Stored:
    """Read what a store holds, whoever keeps it."""
    return read_database(store) if (store / DATABASE).exists() else read_journal(store)


def read_evidence(
    store: Path,
    notebooks: Iterable[Path],
    witnesses: Path | None = None,
    leftovers: Leftovers | None = None,
    *,
    is_settled: bool = True,
) -> Evidence:
    """Read all there is of a round; `witnesses` is the directory of what tasks wrote of themselves, a file each.

    Nobody may serve the store. Raises UnusableNotes.
    """
    return make_evidence(
        read_stored(store),
        read_notebooks(notebooks),
        witnesses=None if witnesses is None else read_witnesses(witnesses),
        outputs=_outputs(store),
        shims=_shims(store),
        leftovers=leftovers,
        is_settled=is_settled,
    )


def _outputs(store: Path) -> dict[str, Output]:
    contents = {path.parent.name: path.read_bytes() for path in (store / "tasks").glob("*/output.log")}
    return {id: Output(output_digest(content), len(content)) for id, content in contents.items()}


def _shims(store: Path) -> dict[str, int]:
    """Give the shims that began a task, as each wrote it down before it did anything else."""
    found = {}
    for path in (store / "tasks").glob("*/run.json"):
        with suppress(ValueError, KeyError, TypeError):  # the power was cut, and it wasn't synced
            found[path.parent.name] = int(json.loads(path.read_bytes())["pid"])
    return found
