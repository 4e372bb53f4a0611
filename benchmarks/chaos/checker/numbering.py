"""Promises about numbers: the journal's frame is whole, each stream counts without hole or repeat, epochs only grow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from .evidence import Evidence
from .openings import Opening, owner_tokens
from .stored import Run, Stored
from .violations import Violation


def frame_is_whole(evidence: Evidence) -> Iterator[Violation]:
    """Every byte of the journal is as its format has it, and positions number the events from 1 without a gap."""
    for fault in evidence.stored.faults:
        subject = fault.stream or fault.file
        yield Violation("frame", subject, f"{fault.file} at byte {fault.offset}: {fault.says}")
    due = 1
    for event in evidence.stored.events:
        if event.position != due and not evidence.stored.faults:
            says = f"event {event.seq} has position {event.position}, and {due} is next"
            yield Violation("frame", event.stream, says, event.seq)
        due = event.position + 1


def numbers_have_no_hole(evidence: Evidence) -> Iterator[Violation]:
    """A stream's events are numbered one by one, in the order in which they lie there, up to its head."""
    stored = evidence.stored
    for stream, events in stored.streams.items():
        due, seen = stored.begin(stream), set[int]()
        for event in events:
            if event.seq in seen:
                yield Violation("numbers", stream, f"number {event.seq} is there twice", event.seq)
            elif event.seq < due:
                yield Violation("numbers", stream, f"number {event.seq} stands behind greater ones", event.seq)
            elif event.seq > due:
                yield Violation("numbers", stream, f"numbers {due} to {event.seq - 1} are missing", due)
            seen.add(event.seq)
            due = max(due, event.seq + 1)
        head = stored.heads.get(stream, due)
        if head != due:
            yield Violation("numbers", stream, f"its head is {head}, and its events end before {due}", due)


def epochs_only_grow(evidence: Evidence) -> Iterator[Violation]:
    """Each epoch is granted by a record of its own, one more than the last; nothing is stored under a former one."""
    stored = evidence.stored
    yield from _epochs_of_events(stored)
    runs: dict[str, list[Run]] = defaultdict(list)
    for run in stored.runs or ():
        runs[run.stream].append(run)
    for stream, own in runs.items():
        epoch, head = own[0].epoch, own[0].seq
        if epoch not in (0, 1) or head != stored.begin(stream):
            yield Violation("epochs", stream, f"it begins under epoch {epoch}, with number {head}", head)
        for run in own:
            is_grant = run.epoch == epoch + 1 and not run.events and run.patch.get("owner") and epoch > 0
            if run.epoch != epoch and not is_grant:
                says = f"batch {run.batch} stores {run.events} events under epoch {run.epoch}, which was {epoch}"
                yield Violation("epochs", stream, says, run.seq)
            if run.seq != head:
                yield Violation("epochs", stream, f"batch {run.batch} begins at {run.seq}, and {head} is next", run.seq)
            epoch, head = max(epoch, run.epoch), max(head, run.seq + run.events)


def _epochs_of_events(stored: Stored) -> Iterator[Violation]:
    for stream, events in stored.streams.items():
        epoch = 0
        for event in events:
            if event.epoch < epoch:
                says = f"event {event.seq} was stored under epoch {event.epoch}, when it was {epoch}"
                yield Violation("epochs", stream, says, event.seq)
            epoch = max(epoch, event.epoch)


def one_owner_at_a_time(evidence: Evidence) -> Iterator[Violation]:
    """No two openings have the same epoch, but of a session of which nothing was stored; each one's was granted."""
    stored = evidence.stored
    tokens = owner_tokens(stored)
    known: dict[tuple[str, int], Opening] = {}
    for outcome in evidence.outcomes:
        opening = outcome.opening
        mark = (opening.session, opening.epoch)
        stored_any = any(seq is not None for seq in outcome.seqs)
        if (other := known.get(mark)) is not None and (opening.epoch > 1 or stored_any):
            says = f"{_of(opening)} and {_of(other)} have it open under epoch {opening.epoch}"
            yield Violation("one owner", opening.session, says, note=opening.note)
        if stored_any or opening.epoch > 1:
            known.setdefault(mark, opening)
        granted = tokens.get(opening.session, {})
        # Epoch 1 needs no grant; and what begins a session that is closed by then says that nobody owns it.
        if stored.runs is not None and opening.epoch not in granted and opening.epoch > 1:
            says = f"{_of(opening)} has it open under epoch {opening.epoch}, which nobody was granted"
            yield Violation("one owner", opening.session, says, note=opening.note)
    yield from _grants_told_right(evidence)


def _grants_told_right(evidence: Evidence) -> Iterator[Violation]:
    """A grant's run says who got it, and where the session ended then."""
    grants: dict[tuple[str, int], Run] = {}
    for run in evidence.stored.runs or ():
        if isinstance(run.patch.get("owner"), dict):
            grants.setdefault((run.stream, run.epoch), run)
    for opening in evidence.openings:
        grant = grants.get((opening.session, opening.epoch))
        if grant is None or opening.epoch == 1:
            continue
        owner: dict[str, Any] = grant.patch["owner"]
        if owner.get("pid") != opening.note["pid"]:
            says = f"epoch {opening.epoch} was granted to process {owner.get('pid')}, and {_of(opening)} has it"
            yield Violation("one owner", opening.session, says, note=opening.note)
        if opening.note["head"] < grant.seq:
            says = f"it was opened as if it had {opening.note['head']} events, and had {grant.seq}"
            yield Violation("one owner", opening.session, says, grant.seq, opening.note)


def _of(opening: Opening) -> str:
    return f"process {opening.note['pid']} ({opening.note['file']})"
