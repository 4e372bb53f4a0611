"""The judgement of a story: what was noted, held against the bytes that a power cut at its end leaves.

The judge is the oracle of chaos, which shares no code with the product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnkeeper.benchmarks.chaos.checker.evidence import make_evidence
from turnkeeper.benchmarks.chaos.checker.journal import segments_in, stored_in
from turnkeeper.benchmarks.chaos.checker.judging import judge as judge_evidence
from turnkeeper.benchmarks.chaos.checker.openings import UnusableNotes
from turnkeeper.benchmarks.chaos.checker.violations import Violation

from .spoiling import journal_files

if TYPE_CHECKING:
    from .host import Common
    from .processes import Machine


def judge(machine: Machine, common: Common, *, is_settled: bool) -> list[str]:
    """Say which promises were broken. `is_settled`: everything has ended in order."""
    machine.disk.crash(machine.rng, lambda name, page: "old")
    _lay_out_blobs(machine)
    stored = stored_in(segments_in(journal_files(machine)), machine.disk.index_root)
    try:
        evidence = make_evidence(stored, common.notes, witnesses=machine.witnesses, is_settled=is_settled)
    except UnusableNotes as error:
        return [f"the notes make no sense: {error}"]
    return [_described(violation) for violation in judge_evidence(evidence).violations]


def _lay_out_blobs(machine: Machine) -> None:
    """Put the blobs where the oracle reads them, as real files."""
    for name, content in machine.disk.contents().items():
        if name.startswith("blobs/"):
            path = machine.disk.index_root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _described(violation: Violation) -> str:
    return "\n    ".join((str(violation), *violation.journal, *violation.notes))
