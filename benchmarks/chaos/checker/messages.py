"""Promises about inboxes: what was delivered is there, under its number, once; and is accepted once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from ...demonstration.oracle import digest, is_task
from .evidence import Evidence
from .stored import INBOX, INBOX_MESSAGE, Stored, StoredEvent
from .violations import Violation


def delivered_is_in_the_inbox(evidence: Evidence) -> Iterator[Violation]:
    """Each message that a send told as delivered has that number in the inbox, however often it was sent."""
    sent = _sent(evidence)
    for note in evidence.notes.get("delivered", ()):
        to, key, seq = note["to"], note["key"], note["seq"]
        messages = {event.seq: event for event in evidence.stored.streams.get(INBOX + to, ())}
        wanted = sent.get((to, key))
        found = messages.get(seq)
        if found is None:
            yield Violation("delivered", INBOX + to, f"message {seq} (key {key}) is lost", seq, note)
        elif _mark(found) != wanted:
            says = f"message {seq} isn't the one that was delivered under key {key}"
            yield Violation("delivered", INBOX + to, says, seq, note)


def inboxes_hold_what_was_sent_once(evidence: Evidence) -> Iterator[Violation]:
    """Each message in an inbox was sent there, or tells of one of its tasks; and none is there twice."""
    sent: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for (to, _), mark in _sent(evidence).items():
        sent[INBOX + to].add(mark)
    for stream, events in evidence.stored.streams.items():
        if not stream.startswith(INBOX):
            continue
        seen: Counter[tuple[str, str]] = Counter()
        for event in events:
            seen[_mark(event)] += 1
            if event.type != INBOX_MESSAGE:
                yield Violation("sent once", stream, f"{event.type} {event.seq} is no message", event.seq)
            if seen[_mark(event)] > 1:
                yield Violation("sent once", stream, f"message {event.seq} was there before", event.seq)
            elif _mark(event) not in sent[stream] and not is_task(str(event.data.get("sender"))):
                yield Violation("sent once", stream, f"nobody sent message {event.seq}", event.seq)


def accepted_once(evidence: Evidence) -> Iterator[Violation]:
    """Each message is accepted by one event at most, and its session's summary says of which that is so."""
    stored = evidence.stored
    for session in stored.sessions():
        count = len(stored.streams.get(INBOX + session, ()))
        accepted: dict[int, StoredEvent] = {}
        for event in stored.streams[session]:
            number = event.data.get("inbox")
            if not isinstance(number, int):
                continue
            if number in accepted:
                says = f"message {number} was accepted by {accepted[number].seq}, and again by {event.seq}"
                yield Violation("accepted once", session, says, event.seq)
            elif number >= count:
                says = f"event {event.seq} accepts message {number}, and there are {count}"
                yield Violation("accepted once", session, says, event.seq)
            accepted.setdefault(number, event)
        told = _accepted_by_summary(stored.summary(session))
        if told != accepted.keys():
            says = f"its summary says that these were accepted: {sorted(told)}; its log: {sorted(accepted)}"
            yield Violation("accepted once", session, says)


def acknowledged_acceptance_is_there(evidence: Evidence) -> Iterator[Violation]:
    """A message whose acceptance was flushed is accepted, by that event."""
    for opening in evidence.openings:
        events = evidence.stored.streams.get(opening.session, [])
        accepting = {event.data.get("inbox"): event.seq for event in reversed(events)}
        for note in opening.accepted:
            seq = accepting.get(note["inbox_seq"])
            if seq is None or note["seq"] not in (None, seq):
                says = f"message {note['inbox_seq']} was accepted by event {note['seq']}; in its log: by {seq}"
                yield Violation("accepted", opening.session, says, seq, note)


def _accepted_by_summary(summary: Mapping[str, Any]) -> set[int]:
    told = summary.get("inbox") or {"next": 0, "ahead": []}
    return set(range(told["next"])) | {seq for first, last in told["ahead"] for seq in range(first, last + 1)}


def _sent(evidence: Evidence) -> dict[tuple[str, str], tuple[str, str]]:
    return {(note["to"], note["key"]): (note["type"], note["digest"]) for note in evidence.notes.get("sending", ())}


def _mark(event: StoredEvent) -> tuple[str, str]:
    return str(event.data.get("type")), digest(event.data.get("data"))


def inbox_of(stored: Stored, session: str) -> list[StoredEvent]:
    """Give the messages of a session's inbox."""
    return stored.streams.get(INBOX + session, [])
