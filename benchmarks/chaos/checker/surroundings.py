"""What stands around a violation: the journal's lines, the notes on the same subject, and the strikes just before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ..notes import Note
from .evidence import Evidence
from .violations import Violation

LINES_AROUND: Final = 3
STRIKES_BEFORE: Final = 3
_NOTE_CHARACTERS: Final = 300
_SUBJECTS: Final = ("session", "to", "task", "follower")


def with_surroundings(violation: Violation, evidence: Evidence) -> Violation:
    """Give a violation with what stands around it."""
    return violation._replace(journal=_lines(violation, evidence), notes=_notes(violation, evidence))


def _lines(violation: Violation, evidence: Evidence) -> tuple[str, ...]:
    """Give the events beside the one that it is about; else how its stream ends."""
    events = evidence.stored.whole(violation.subject)
    seq = violation.seq
    places = [place for place, event in enumerate(events) if seq is not None and event.seq >= seq]
    place = places[0] if places else len(events)
    return tuple(event.line for event in events[max(0, place - LINES_AROUND) : place + LINES_AROUND + 1])


def _notes(violation: Violation, evidence: Evidence) -> tuple[str, ...]:
    """Give the notes of its file beside the one that it is about; else the last ones on its subject, wherever."""
    all_notes = [note for notes in evidence.notes.values() for note in notes]
    related = [note for note in all_notes if violation.subject in (note.get(name) for name in _SUBJECTS)]
    about = violation.note
    if about is None:
        shown = _in_time(related)[-2 * LINES_AROUND :]
    else:
        near = sorted((note for note in related if note["file"] == about["file"]), key=lambda note: int(note["line"]))
        place = sum(note["line"] < about["line"] for note in near)
        shown = near[max(0, place - LINES_AROUND) : place + LINES_AROUND + 1]
    until = max((note["at"] for note in shown), default=float("inf"))
    strikes = [note for note in _in_time(evidence.notes.get("strike", ())) if note["at"] <= until]
    return tuple(map(_spelled, _in_time([*strikes[-STRIKES_BEFORE:], *shown])))


def _in_time(notes: Iterable[Note] | Sequence[Note]) -> list[Note]:
    return sorted(notes, key=lambda note: (note["at"], note["file"], note["line"]))


def _spelled(note: Mapping[str, Any]) -> str:
    said = {name: value for name, value in note.items() if name not in ("file", "line")}
    text = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
    text = text if len(text) <= _NOTE_CHARACTERS else text[:_NOTE_CHARACTERS] + "…"
    return f"{note['file']}:{note['line']}: {text}"
