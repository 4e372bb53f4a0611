"""What the openings of sessions noted, put together: what each sent in which order, and what was promised of it.

And what became of it: one opening's items beside the events that are stored under its epochs. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ...demonstration.oracle import digest
from ..notes import Note
from .stored import INBOX, Stored, StoredEvent

CHUNK: Final = "assistant/chunk"

_OURS: Final = frozenset(
    ("turn/start", "turn/end", "session/forked", "session/rewound", "session/created", "inbox/accepted")
)
"""What the product appends by itself, too."""


class UnusableNotes(ValueError):
    """The notes can't have been written by the rules, so nothing can be judged by them."""


@dataclass(slots=True)
class Item:
    """An event that was sent (`type` and `content`, its digest), or text that was written (`channel` and `content`).

    `seq` is the number that the product gave it, where somebody noted that.
    """

    note: Note
    content: str
    type: str | None = None
    channel: str | None = None
    key: str | None = None
    is_refused: bool = False
    seq: int | None = None

    @property
    def mark(self) -> tuple[str | None, str]:
        """By what an event is known."""
        return self.type, self.content


class Acknowledgement(NamedTuple):
    """The first `items` items of an opening are durable, with numbers below `head`."""

    note: Note
    items: int
    head: int


@dataclass(slots=True)
class Opening:
    """One opening of a session, in the order of its notes."""

    note: Note
    items: list[Item] = field(default_factory=list)
    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    turns: list[Note] = field(default_factory=list)
    accepted: list[Note] = field(default_factory=list)
    rewound: list[Note] = field(default_factory=list)
    end: Note | None = None
    _numbered: int = 0

    @property
    def session(self) -> str:
        """Whose it is."""
        return str(self.note["session"])

    @property
    def epoch(self) -> int:
        """Under which epoch it began."""
        return int(self.note["epoch"])

    def take(self, note: Note) -> None:
        """Take the next note that speaks of it."""
        match note["what"]:
            case "sent":
                self.items += [Item(note, content, type, key=note.get("key")) for type, content in note["events"]]
            case "wrote":
                self.items.append(Item(note, note["text"], channel=note["channel"]))
            case "refused":
                for type, content in note["events"]:
                    self._refuse(note, (type, content))
            case "acknowledged":
                self._number(note)
                self.acknowledgements.append(Acknowledgement(note, len(self.items), note["head"]))
            case "turn":
                self.turns.append(note)
            case "accepted":
                self.accepted.append(note)
            case "rewound":
                self.rewound.append(note)
            case "fenced" | "closed":
                self.end = note

    def _refuse(self, note: Note, mark: tuple[str, str]) -> None:
        item = next((each for each in reversed(self.items) if each.mark == mark and not each.is_refused), None)
        if item is None:
            raise UnusableNotes(f"{note['file']}, line {note['line']}: what was refused was never noted as sent")
        item.is_refused = True

    def _number(self, note: Note) -> None:
        """Give the items their numbers that an acknowledgement tells."""
        unnumbered = [item for item in self.items if item.type is not None and not item.is_refused][self._numbered :]
        if len(note["seqs"]) > len(unnumbered):
            told, due = len(note["seqs"]), len(unnumbered)
            raise UnusableNotes(f"{note['file']}, line {note['line']}: {told} numbers for {due} events that were sent")
        for item, seq in zip(unnumbered, note["seqs"], strict=False):
            item.seq = seq
        self._numbered += len(note["seqs"])


_OF_OPENINGS: Final = frozenset(
    ("sent", "wrote", "refused", "acknowledged", "turn", "accepted", "rewound", "fenced", "closed")
)


def openings_in(notes: Iterable[Note]) -> list[Opening]:
    """Put together what notes say of openings, in the order in which they began. Raises UnusableNotes."""
    openings: list[Opening] = []
    current: dict[tuple[str, str], Opening] = {}
    for note in notes:
        if note["what"] == "opened":
            opening = current[note["file"], note["session"]] = Opening(note)
            openings.append(opening)
        elif note["what"] in _OF_OPENINGS:
            known = current.get((note["file"], note["session"]))
            if known is None:
                raise UnusableNotes(f"{note['file']}, line {note['line']}: {note['session']} was never noted as opened")
            known.take(note)
    return sorted(openings, key=lambda each: (each.session, each.epoch))


# -- What became of it


@dataclass(slots=True)
class Outcome:
    """What became of an opening's items: the number under which each is stored, None where it isn't.

    Text has its last chunk's number. `strays` are events that the opening can't have sent at their place, and why.
    """

    opening: Opening
    seqs: list[int | None]
    events: list[StoredEvent]
    strays: list[tuple[StoredEvent, str]] = field(default_factory=list)


def outcomes_of(openings: Iterable[Opening], stored: Stored) -> list[Outcome]:
    """Compare each opening's items with what is stored under its epochs."""
    by_session: dict[str, list[Opening]] = defaultdict(list)
    for opening in openings:
        by_session[opening.session].append(opening)
    return [outcome for session, own in by_session.items() for outcome in _outcomes(session, own, stored)]


def _outcomes(session: str, openings: list[Opening], stored: Stored) -> Iterator[Outcome]:
    messages = {event.seq: event for event in stored.streams.get(INBOX + session, ())}
    events: dict[int, list[StoredEvent]] = defaultdict(list)
    for event in stored.streams.get(session, ()):
        events[event.epoch].append(event)
    before: set[tuple[str | None, str]] = set()
    for opening, epochs in zip(openings, _epochs_of(openings, events, stored), strict=True):
        matching = _Matching(opening, before, messages)
        found = [event for epoch in epochs for event in events[epoch]]
        for event in found:
            matching.take(event)
        before |= {(event.type, event.digest) for event in found}
        yield Outcome(opening, matching.seqs, found, matching.strays)


def _epochs_of(openings: list[Opening], events: Mapping[int, list[StoredEvent]], stored: Stored) -> Iterator[list[int]]:
    """Give the epochs of each opening: its own, and those that the same owner was granted when it asked again.

    Of two that began a session with nothing stored in between, and so under the same epoch, the one has its events that
    sent any of them.
    """
    tokens = owner_tokens(stored).get(openings[0].session, {})
    noted = {opening.epoch for opening in openings}
    for opening in openings:
        rivals = [each for each in openings if each.epoch == opening.epoch]
        epochs = [opening.epoch] if len(rivals) == 1 or opening is _likeliest(rivals, events[opening.epoch]) else []
        token = tokens.get(opening.epoch)
        later = [epoch for epoch in sorted(events) if epoch > opening.epoch and epoch not in noted]
        yield epochs + [epoch for epoch in later if epochs and token is not None and tokens.get(epoch) == token]


def _likeliest(rivals: list[Opening], events: list[StoredEvent]) -> Opening:
    marks = {(event.type, event.digest) for event in events}
    return max(rivals, key=lambda each: sum(item.mark in marks for item in each.items))


def owner_tokens(stored: Stored) -> dict[str, dict[int, str]]:
    """Give whom each epoch of each stream was granted to, by its token, where the journal says that."""
    tokens: dict[str, dict[int, str]] = defaultdict(dict)
    for run in stored.runs or ():
        owner = run.patch.get("owner")
        if isinstance(owner, Mapping):
            tokens[run.stream].setdefault(run.epoch, str(owner.get("token")))
    return tokens


class _Matching:
    """Goes through an opening's items as its events come by."""

    def __init__(
        self, opening: Opening, before: set[tuple[str | None, str]], messages: Mapping[int, StoredEvent]
    ) -> None:
        self.seqs: list[int | None] = [None] * len(opening.items)
        self.strays: list[tuple[StoredEvent, str]] = []
        self._items = opening.items
        self._before = before
        self._messages = messages
        self._place = self._part = 0
        self._found: set[tuple[str | None, str]] = set()
        self._later = {item.mark: place for place, item in reversed(list(enumerate(self._items))) if item.type}

    def take(self, event: StoredEvent) -> None:
        """Take the next event into account."""
        mark = (event.type, event.digest)
        if event.type == CHUNK and self._take_text(event):
            return
        place = self._pending()
        if place < len(self._items) and self._items[place].mark == mark:
            self._take_item(place, event)
        elif self._is_ours(event):
            return
        elif (ahead := self._later.get(mark, -1)) >= place:
            missing = sum(self._is_pending(each) for each in range(place, ahead))
            self.strays.append((event, f"it stands where {missing} that were sent or written before it are missing"))
            self._take_item(ahead, event)
        elif mark in self._found or mark in self._before:
            self.strays.append((event, "it is stored a second time, or behind what was sent after it"))
        else:
            self.strays.append((event, "nobody who had the session open sent this"))

    def _take_item(self, place: int, event: StoredEvent) -> None:
        self.seqs[place] = event.seq
        self._place, self._part = place + 1, 0
        self._found.add((event.type, event.digest))

    def _take_text(self, event: StoredEvent) -> bool:
        """Take a chunk, if it is how the text goes on that was written."""
        left, channel = str(event.data.get("text", "")), event.data.get("channel", "text")
        place, part = self._pending(), self._part
        taken: list[int] = []
        while left:
            if place >= len(self._items) or self._items[place].channel != channel:
                return False
            rest = self._items[place].content[part:]
            if not (left.startswith(rest) or rest.startswith(left)):
                return False
            if len(left) < len(rest):
                part += len(left)
                break
            taken.append(place)
            left = left[len(rest) :]
            place, part = self._pending(place + 1), 0
        for each in taken:
            self.seqs[each] = event.seq
        self._place, self._part = place, part
        return True

    def _pending(self, place: int | None = None) -> int:
        """Give the place of the next item that has to come."""
        place = self._place if place is None else place
        while place < len(self._items) and not self._is_pending(place):
            place += 1
        return place

    def _is_pending(self, place: int) -> bool:
        """Say whether an item has to come still: not if it was refused, is no text at all, or was there by its key."""
        item = self._items[place]
        is_known = item.key is not None and (item.mark in self._before or item.mark in self._found)
        return not (item.is_refused or is_known or (item.channel is not None and not item.content))

    def _is_ours(self, event: StoredEvent) -> bool:
        """Say whether the product makes such events by itself."""
        accepted = event.data.get("inbox")
        if event.type in _OURS:
            return True
        if event.type == "tool/finished":
            return event.data.get("output") is None and "$blob" not in event.data
        if isinstance(accepted, int) and accepted in self._messages:
            return _content(self._messages[accepted].data, accepted) == event.digest
        return False


def _content(message: Mapping[str, Any], seq: int) -> str:
    return digest({**(message.get("data") or {}), "inbox": seq})


def is_known_by_key(item: Item, stored: Stored, session: str) -> bool:
    """Say whether an item that was to be stored once is in its session, whoever stored it."""
    events = stored.streams.get(session, ())
    return item.key is not None and any(item.mark == (event.type, event.digest) for event in events)
