"""How long it took after each kill until something new was durable again, by what agents noted.

That is what somebody who uses the store sees of a death: the time from it to the first acknowledgement of what was
asked for behind it, whoever asked. A kill is noted before it is done, and what is asked for meanwhile the victim may
still answer; so what counts is the moment that the death was noted. A death counts only if it was overcome in the same
life of the store: in between there is nobody to be served.
"""

from __future__ import annotations

import math
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
    """Give each kill of node or writer, and the seconds from the death on; one that nothing came behind is left out."""
    answers = answers_in(notes)
    first = [answer.acknowledged for answer in answers]
    for place in range(len(first) - 2, -1, -1):
        first[place] = min(first[place], first[place + 1])
    borders = [note["at"] for note in notes if note["what"] == "life"]
    deaths = {pid: float(note["at"]) for note in notes if note["what"] == "died" for pid in note["pids"]}
    found = []
    for note in notes:
        if note["what"] == "strike" and note["kind"] == "kill" and note["target"] in SERVING and note["pids"]:
            at = float(note["died"]) if "died" in note else deaths.get(note["pids"][0], float(note["at"]))
            place = bisect_left(answers, Answered(at, 0.0))
            border = min((each for each in borders if each > at), default=math.inf)
            if place < len(first) and first[place] < border:
                found.append((note, first[place] - at))
    return found
