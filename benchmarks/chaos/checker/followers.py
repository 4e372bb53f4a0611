"""The promise to followers: from a position on, each event that they follow, once, in order, and nothing else.

Of what can't be read they are told instead, in its place. What they were told to be missing isn't due any more, whether
it can be read by others or not; an event that is neither given nor told is a violation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..notes import Note
from .evidence import Evidence
from .stored import Stored
from .violations import Violation

Seen = list[object]
"""Position, stream, number, type and digest, as a follower noted them."""


def followers_saw_the_journal(evidence: Evidence) -> Iterator[Violation]:
    """What a follower was given is how the journal goes on behind its position; and reaches to where it was awaited."""
    said: dict[str, list[Note]] = defaultdict(list)
    for word in ("following", "followed", "told_missing", "awaited"):
        for note in evidence.notes.get(word, ()):
            said[note["follower"]].append(note)
    for follower, notes in said.items():
        notes.sort(key=lambda note: (note["at"], note["file"], note["line"]))
        yield from _judge(follower, notes, evidence.stored)


def _judge(follower: str, notes: Sequence[Note], stored: Stored) -> Iterator[Violation]:
    """Go through one follower's notes, over all its beginnings."""
    due: list[Seen] = []
    reached: int | None = None
    place = 0
    has_failed = False
    for note in notes:
        match note["what"]:
            case "following":
                if reached is not None and note["after"] > reached:
                    says = f"it goes on behind position {note['after']}, and had seen the journal up to {reached}"
                    yield Violation("followers", follower, says, note=note)
                reached, place, has_failed = note["after"], 0, False
                due = _due(stored, note)
            case "followed":
                for seen in note["events"]:
                    if not has_failed and (place >= len(due) or due[place] != seen):
                        has_failed = True
                        yield Violation("followers", follower, _difference(seen, due, place), note=note)
                    place += 1
                    reached = seen[0]
            case "told_missing":
                due[place:] = [each for each in due[place:] if not _is_told(each, note)]
                reached = note["positions"][0] + note["positions"][1] - 1
            case "awaited" if not has_failed:
                missing = [each for each in due[place:] if int(str(each[0])) <= note["position"]]
                if missing:
                    says = f"it never saw {len(missing)} events up to position {note['position']}: {missing[0]} is next"
                    yield Violation("followers", follower, says, note=note)


def _is_told(seen: Seen, note: Note) -> bool:
    """Say whether an event is among those that a note says a follower was told to be missing."""
    position, stream, seq = int(str(seen[0])), seen[1], int(str(seen[2]))
    if note["stream"] is None:
        first, count = note["positions"]
        return bool(first <= position < first + count)
    return stream == note["stream"] and any(first <= seq < first + count for first, count in note["missing"])


def _difference(seen: Seen, due: list[Seen], place: int) -> str:
    """Say what an event that came is, instead of the one that was due."""
    wanted = due[place] if place < len(due) else "nothing"
    if seen in due[:place]:
        return f"it saw {seen} again, where {wanted} was next"
    if seen in due[place:]:
        return f"it saw {seen}, and not the {due.index(seen) - place} before it: {wanted} was next"
    return f"it saw {seen}, which is not stored like this or not followed, where {wanted} was next"


def _due(stored: Stored, note: Note) -> list[Seen]:
    """Give what a follower has to see, which begins or goes on so."""
    fits_stream, fits_type = _pattern(note["streams"]), _pattern(note["types"])
    return [
        [event.position, event.stream, event.seq, event.type, event.digest]
        for event in stored.events
        if event.position > note["after"] and fits_stream.fullmatch(event.stream) and fits_type.fullmatch(event.type)
    ]


def _pattern(patterns: Sequence[str]) -> re.Pattern[str]:
    """Make what fits one of the patterns, in which `*` stands for anything; none fit all."""
    return re.compile("|".join(".*".join(map(re.escape, each.split("*"))) for each in patterns) or ".*", re.DOTALL)
