"""Promises about whole sessions: a fork begins as its parent did, deleted ones are gone, and what is read is stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import zip_longest

from ..notes import Note
from .evidence import Evidence
from .stored import Stored
from .violations import Violation

_DELETIONS = ("deleting", "deleted", "undeleting", "undeleted")


def forks_equal_their_prefix(evidence: Evidence) -> Iterator[Violation]:
    """A fork names its parent and place as it was asked for, begins there, and its record says the same."""
    stored = evidence.stored
    for session in stored.sessions():
        if isinstance(stored.summary(session).get("parent_seq"), int):
            yield from _judge_fork(session, stored)
    for note in evidence.notes.get("forked", ()):
        summary = stored.summary(note["session"])
        wanted, found = (note["parent"], note["parent_seq"]), (summary.get("parent"), summary.get("parent_seq"))
        if wanted[1] is None and (found[1] or 0) >= note["least"]:  # all, also what another owner has stored meanwhile
            wanted = (wanted[0], found[1])
        if found != wanted:
            place = f"{note['least']} or later" if wanted[1] is None else wanted[1]
            says = f"it was forked from {wanted[0]} at {place}; stored is {found[0]} at {found[1]}"
            yield Violation("forks", note["session"], says, note=note)


def _judge_fork(session: str, stored: Stored) -> Iterator[Violation]:
    parent, at = stored.summary(session).get("parent"), stored.begin(session)
    prefix = stored.whole(session)[: at + 1]
    if [event.seq for event in prefix[:at]] != list(range(at)):
        yield Violation("forks", session, f"the first {at} events of {parent} aren't there")
    record = next((event for event in stored.streams[session] if event.type == "session/forked"), None)
    if record is None or record.seq != at or (record.data.get("parent"), record.data.get("at")) != (parent, at):
        says = f"it has {at} events of {parent}, and its record says {None if record is None else dict(record.data)}"
        yield Violation("forks", session, says, at)
        return
    later = [event.seq for event in prefix[:at] if event.position > record.position]
    if later:
        yield Violation("forks", session, f"it begins with event {later[0]} of {parent}, which was stored later", at)


def readings_equal_the_journal(evidence: Evidence) -> Iterator[Violation]:
    """What the product gave when a session was read is what is stored, of its parents too, whole and in order."""
    stored = evidence.stored
    for note in evidence.notes.get("read", ()):
        session, first, head = note["session"], note["first"], note["head"]
        wanted = [[event.seq, event.type, event.digest] for event in stored.whole(session) if first <= event.seq < head]
        if note["events"] != wanted:
            pairs = zip_longest(note["events"], wanted)
            place, read, due = next((place, *pair) for place, pair in enumerate(pairs) if pair[0] != pair[1])
            says = f"read was {read or 'no more'}, and stored is {due or 'no more'}"
            yield Violation("readings", session, says, first + place, note)
        if head > stored.heads.get(session, 0):
            says = f"it was read up to {head}, and has {stored.heads.get(session, 0)} events"
            yield Violation("readings", session, says, head - 1, note)


def deleted_is_gone(evidence: Evidence) -> Iterator[Violation]:
    """A session is deleted if that was the last thing done to it in this way; only one that was begun may be either."""
    stored = evidence.stored
    last: dict[str, Note] = {}
    for note in sorted((note for word in _DELETIONS for note in evidence.notes.get(word, ())), key=lambda n: n["at"]):
        last[note["session"]] = note
    for session in stored.sessions():
        note_of = last.get(session)
        done = "undeleted" if note_of is None else note_of["what"]
        is_deleted = stored.is_deleted(session)
        if done in ("deleted", "undeleted") and is_deleted != (done == "deleted"):
            says = f"it was {done} last, and is {'' if is_deleted else 'not '}deleted"
            yield Violation("deletion", session, says, note=note_of)
        inbox = stored.summary(f"inbox-{session}")
        if is_deleted and inbox and not inbox.get("deleted"):
            yield Violation("deletion", session, "it is deleted, and its inbox isn't", note=note_of)
    for session, note in last.items():
        if session not in stored.streams:
            yield Violation("deletion", session, f"it was {note['what']}, and isn't there at all", note=note)


def lists_are_exact(evidence: Evidence) -> Iterator[Violation]:
    """The last list shows each session once, and none that is deleted."""
    stored = evidence.stored
    for note in evidence.notes.get("listed", ())[-1:]:
        counts: dict[str, int] = defaultdict(int)
        for session in note["sessions"]:
            counts[session] += 1
        wanted = {session for session in stored.sessions() if not stored.is_deleted(session)}
        for session in sorted(wanted - counts.keys()):
            yield Violation("lists", session, "it isn't in the list", note=note)
        for session in sorted(counts.keys() - wanted):
            yield Violation("lists", session, "it is in the list, and deleted or never stored", note=note)
        for session in sorted(session for session, count in counts.items() if count > 1):
            yield Violation("lists", session, f"it is in the list {counts[session]} times", note=note)
