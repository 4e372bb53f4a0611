"""Promises to whoever appends: what was acknowledged is there, and what is there was sent, in that order, once."""

from __future__ import annotations

from collections.abc import Iterator

from .evidence import Evidence
from .openings import Item, Opening, Outcome, is_known_by_key
from .stored import Stored
from .violations import Violation


def acknowledged_is_found(evidence: Evidence) -> Iterator[Violation]:
    """All that was sent or written before an acknowledgement is stored, below its head, under the number told."""
    stored = evidence.stored
    for outcome in evidence.outcomes:
        opening = outcome.opening
        heads = [-1] * len(opening.items)
        due = 0
        for acknowledgement in opening.acknowledgements:
            for place in range(due, acknowledgement.items):
                heads[place] = acknowledgement.head
            due = max(due, acknowledgement.items)
        if opening.end is not None and opening.end["what"] == "closed":
            heads[due:] = [1 << 63] * (len(heads) - due)
        for item, seq, head in zip(opening.items, outcome.seqs, heads, strict=True):
            if head >= 0 and has_to_be_there(item, seq, opening, stored):
                yield from _judge_item(item, seq, head, opening)
        yield from _head_reached(opening, stored)


def has_to_be_there(item: Item, seq: int | None, opening: Opening, stored: Stored) -> bool:
    """Say whether an item that was acknowledged has to be among its opening's: not if its key made it a known one."""
    is_known = seq is None and is_known_by_key(item, stored, opening.session)
    return not item.is_refused and bool(item.content) and not is_known


def _judge_item(item: Item, seq: int | None, head: int, opening: Opening) -> Iterator[Violation]:
    what = f"text of channel {item.channel}" if item.type is None else f"{item.type} {item.content}"
    if seq is None:
        yield Violation("acknowledged is found", opening.session, f"lost: {what}", item.seq, item.note)
    elif seq >= head:
        says = f"{what} has number {seq}, and the acknowledgement said {head} is the next one"
        yield Violation("acknowledged is found", opening.session, says, seq, item.note)
    elif item.seq not in (None, seq):
        says = f"{what} was given number {item.seq}, and has {seq}"
        yield Violation("acknowledged is found", opening.session, says, seq, item.note)


def _head_reached(opening: Opening, stored: Stored) -> Iterator[Violation]:
    head = stored.heads.get(opening.session, 0)
    for acknowledgement in opening.acknowledgements[-1:]:
        if acknowledgement.head > head:
            says = f"{acknowledgement.head} events were acknowledged, and it has {head}"
            yield Violation("acknowledged is found", opening.session, says, head, acknowledgement.note)


def found_is_a_prefix_of_sent(evidence: Evidence) -> Iterator[Violation]:
    """What is stored under an opening's epochs is how that begins which it sent and wrote; nothing else, no more often.

    Events under an epoch that nobody noted are the product's own: it closes what a killed opening left.
    """
    noted: dict[str, set[int]] = {}
    for outcome in evidence.outcomes:
        epochs = noted.setdefault(outcome.opening.session, set())
        epochs |= {outcome.opening.epoch, *(event.epoch for event in outcome.events)}
        for event, says in outcome.strays:
            says = f"{event.type} {event.digest}: {says}"
            yield Violation("found is sent", event.stream, says, event.seq, outcome.opening.note)
    for session in evidence.stored.sessions():
        for event in evidence.stored.streams[session]:
            if event.epoch not in noted.get(session, ()) and not _may_be_unnoted(event.type):
                says = f"{event.type} {event.digest} was stored under epoch {event.epoch}, which nobody noted"
                yield Violation("found is sent", session, says, event.seq)


def _may_be_unnoted(type: str) -> bool:
    return type in ("turn/end", "tool/finished", "session/forked", "session/created")


def refused_is_not_stored(evidence: Evidence) -> Iterator[Violation]:
    """What an append refused is nowhere; nor is what an opening that was overtaken was told isn't stored."""
    sent = {(each.session, item.mark) for each in evidence.openings for item in each.items if not item.is_refused}
    for outcome in evidence.outcomes:
        session = outcome.opening.session
        refused = [item for item in outcome.opening.items if item.is_refused and (session, item.mark) not in sent]
        events = evidence.stored.streams.get(session, ()) if refused else ()
        stored = {(event.type, event.digest): event.seq for event in events}
        for item in refused:
            if item.mark in stored:
                says = f"{item.type} {item.content} was refused, and is stored"
                yield Violation("refused is not stored", session, says, stored[item.mark], item.note)
        yield from _judge_fence(outcome, evidence.stored)


def _judge_fence(outcome: Outcome, stored: Stored) -> Iterator[Violation]:
    opening = outcome.opening
    note = opening.end
    if note is None or note["what"] != "fenced":
        return
    runs = [run.epoch for run in stored.runs or () if run.stream == opening.session]
    events = stored.streams.get(opening.session, ())
    epochs = runs or [event.epoch for event in events]
    if stored.runs is not None and max(epochs, default=0) <= opening.epoch:
        yield Violation("fenced", opening.session, "it was told to have lost it, and nobody else got it", note=note)
    first, end = note["not_stored"]
    mine = {event.seq for event in outcome.events}
    for seq in sorted(mine & set(range(first, end))):
        yield Violation("fenced", opening.session, f"number {seq} was told not to be stored, and is", seq, note)
    known = {item.mark for item in opening.items if item.key is not None}  # whoever stored them
    mine |= {event.seq for event in events if (event.type, event.digest) in known}
    if first < end and first > max(opening.note["head"], 0) and first - 1 not in mine:
        says = f"numbers from {first} on were told not to be stored, and {first - 1} isn't either"
        yield Violation("fenced", opening.session, says, first - 1, note)
