"""How long it took after each kill until something new was durable again, by what agents noted.

That is what somebody who uses the store sees of a death: the time from the kill to the first acknowledgement of what
was asked for behind it, whoever asked. Of the clocks that notes have it takes those of processes whose clock nobody has
set back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .notes import Note

SERVING = ("node", "writer")
"""After whose death something has to come back; of a host or a shim nobody but itself depends."""


class Answered(NamedTuple):
    """Something was asked for, and acknowledged, at these moments."""

    asked: float
    acknowledged: float


def answers_in(notes: Iterable[Note]) -> list[Answered]:
    """Find what was sent and then acknowledged, each time with the first that was sent, ordered by that."""
    asked: dict[tuple[str, str], float] = {}
    answers = []
    for note in notes:
        if note["what"] in ("sent", "wrote"):
            asked.setdefault((note["file"], note["session"]), note["at"])
        elif note["what"] == "acknowledged":
            began = asked.pop((note["file"], note["session"]), None)
            if began is not None:
                answers.append(Answered(began, note["at"]))
    return sorted(answers)


def recoveries(notes: Sequence[Note]) -> list[tuple[Note, float]]:
    """Give each kill of node or writer, and the seconds after it; kills that nothing came behind are left out."""
    answers = answers_in(notes)
    first = [answer.acknowledged for answer in answers]
    for place in range(len(first) - 2, -1, -1):
        first[place] = min(first[place], first[place + 1])
    found = []
    for note in notes:
        if note["what"] == "strike" and note["kind"] == "kill" and note["target"] in SERVING and note["pids"]:
            at = float(note.get("died") or note["at"])
            place = bisect_left(answers, Answered(at, 0.0))
            if place < len(first):
                found.append((note, first[place] - at))
    return found
