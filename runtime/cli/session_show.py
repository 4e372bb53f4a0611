"""`turnkeeper session show`: the events of one session."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

import click

from turnkeeper.actors.client.spilling import whole
from turnkeeper.actors.reading.following import pattern_matcher
from turnkeeper.actors.reading.looking import closing_events
from turnkeeper.actors.reading.naming import find_row
from turnkeeper.actors.records import Event
from turnkeeper.storage.exact_json import decode_event, encode_event
from turnkeeper.storage.requests import Gap, Page, StoredEvent, StreamRow

from .commands import command
from .completing import complete_session
from .event_text import print_event
from .failures import Failure
from .invocation import Invocation
from .printing import print_line, print_note
from .store_view import StoreView, look_at

EVENTS_A_PAGE = 100

Matches = Callable[[StoredEvent], bool]


@command("show", example="turnkeeper session show brave-otter-7f3a --last 20")
@click.argument("id", shell_complete=complete_session)
@click.option("--from", "first", type=click.IntRange(min=0), metavar="N", help="From event N on.")
@click.option("--to", "last", type=click.IntRange(min=0), metavar="N", help="Up to event N, with it.")
@click.option("--last", "newest", type=click.IntRange(min=1), metavar="N", help="The newest N, of this type if any.")
@click.option("--type", "types", multiple=True, metavar="T", help="Only events of this type; * stands for anything.")
def show(
    invocation: Invocation,
    id: str,
    first: int | None,
    last: int | None,
    newest: int | None,
    types: tuple[str, ...],
) -> None:
    """Print a session's events, named by its id, a unique beginning of it, or its key.

    With --json these are the very lines that the journal keeps, and data that lies beside it, being large, is in its
    place. What is damaged is left out, named on stderr, and the exit code is 5. If a crash has left a turn open, the
    events that its next opening will close it with are shown, too.
    """
    if newest is not None and not (first is None and last is None):
        raise click.UsageError("--last goes with neither --from nor --to")
    with look_at(invocation.store) as view:
        view.warn_of_damage()
        log = SessionLog(view, id)
        stop = log.end if last is None else min(last + 1, log.end)
        fits = _type_filter(types)
        if newest is None:
            events: Iterable[StoredEvent] = filter(fits, log.events(first or 0, stop))
        elif types:
            events = log.newest(newest, fits)
        else:
            events = log.events(max(0, stop - newest), stop)
        _print_events(log.whole(events), is_json=invocation.is_json, width=len(str(log.end)))
    if log.missing:
        raise _damaged(invocation.store, log.row.id, log.missing)


def _type_filter(types: tuple[str, ...]) -> Matches:
    fits = pattern_matcher(types)
    return lambda event: not types or bool(fits(decode_event(event.line)["type"]))


class SessionLog:
    """The events of one session, up to number `end`; `missing` says what of those read so far is damaged."""

    def __init__(self, view: StoreView, wanted: str) -> None:
        self._view = view
        self.row: StreamRow = view.ask(lambda reader: find_row(reader, wanted))
        self._closing = view.ask(lambda reader: [_stored(event) for event in closing_events(reader, self.row)])
        self.end = self.row.head + len(self._closing)
        self.missing: list[Gap] = []

    def events(self, start: int, stop: int) -> Iterator[StoredEvent]:
        """Yield the events between two numbers, page by page."""
        while start < min(stop, self.row.head):
            page = self._page(start, min(stop, self.row.head))
            self.missing += page.missing
            yield from page.events
            start = max(
                start + 1,
                *(event.seq + 1 for event in page.events[-1:]),
                *(gap.first + gap.events for gap in page.missing[-1:]),
            )
        yield from (event for event in self._closing if start <= event.seq < stop)

    def newest(self, count: int, fits: Matches) -> list[StoredEvent]:
        """Give the last `count` events that fit, looking back page by page."""
        found = deque(filter(fits, self._closing))
        stop = self.row.head
        while stop > 0 and len(found) < count:
            start = max(0, stop - EVENTS_A_PAGE)
            page = self._page(start, stop)
            self.missing[:0] = page.missing
            found.extendleft(reversed(list(filter(fits, page.events))))
            stop = start
        return list(found)[-count:]

    def whole(self, events: Iterable[StoredEvent]) -> Iterator[StoredEvent]:
        """Put spilled data in its place, one event at a time."""
        for event in events:
            found = whole(self._view.path, event)
            if isinstance(found, Gap):
                self.missing.append(found)
            else:
                yield found

    def _page(self, start: int, stop: int) -> Page:
        return self._view.ask(lambda reader: reader.read(self.row.id, start=start, stop=stop, limit=EVENTS_A_PAGE))


def _stored(event: Event) -> StoredEvent:
    """Give an event that isn't stored yet in the form of those that are."""
    line = encode_event(event.stream, event.seq, event.time, event.type, event.data)
    return StoredEvent(event.position, event.stream, event.seq, line.rstrip(b"\n"))


def _print_events(events: Iterable[StoredEvent], *, is_json: bool, width: int) -> None:
    for event in events:
        if is_json:
            print_line(event.line)
        else:
            print_event(Event.from_stored(event), place=str(event.seq).rjust(width))


def _damaged(store: str, stream: str, missing: list[Gap]) -> Failure:
    """Name each gap on stderr, and make the command's end of them."""
    for gap in missing:
        place = f"{gap.path} at byte {gap.offset}" if gap.path else store
        print_note(f"events {gap.first} to {gap.first + gap.events - 1} are missing: {place}: {gap.reason}")
    count = sum(gap.events for gap in missing)
    return Failure(
        "damaged",
        f"{count} events of {stream} can't be read",
        store,
        "turnkeeper journal verify shows all damage",
        stream=stream,
        missing=[[gap.first, gap.first + gap.events - 1] for gap in missing],
    )
