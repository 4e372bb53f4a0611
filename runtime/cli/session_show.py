"""`turnkeeper session show`: the events of one session."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

import click

from turnkeeper.actors.records import Event
from turnkeeper.storage.exact_json import decode_event
from turnkeeper.storage.requests import Gap, Page, StoredEvent

from .commands import command
from .completing import complete_session
from .event_text import print_event
from .failures import Failure
from .invocation import Invocation
from .patterns import matcher
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

    With --json these are the very lines that the journal keeps. What is damaged is left out, named on stderr, and the
    exit code is 5.
    """
    if newest is not None and not (first is None and last is None):
        raise click.UsageError("--last goes with neither --from nor --to")
    missing: list[Gap] = []
    with look_at(invocation.store) as view:
        view.warn_of_damage()
        row = view.ask(lambda reader: reader.row(id))
        fits = _type_filter(types)
        end = row.head if last is None else min(last + 1, row.head)
        events: Iterable[StoredEvent]
        if newest is None:
            events = _forwards(view, row.id, first or 0, end, fits, missing)
        elif types:
            events = _newest(view, row.id, end, fits, newest, missing)
        else:
            events = _forwards(view, row.id, max(0, end - newest), end, fits, missing)
        _print_events(events, is_json=invocation.is_json, width=len(str(row.head)))
    if missing:
        raise _damaged(invocation.store, row.id, missing)


def _type_filter(types: tuple[str, ...]) -> Matches:
    if not types:
        return lambda event: True
    fits = matcher(types)
    return lambda event: bool(fits(decode_event(event.line)["type"]))


def _forwards(
    view: StoreView, stream: str, start: int, stop: int, fits: Matches, missing: list[Gap]
) -> Iterator[StoredEvent]:
    """Yield the events between two numbers, page by page; note what can't be read."""
    while start < stop:
        page = _page(view, stream, start, stop)
        missing += page.missing
        yield from filter(fits, page.events)
        start = max(
            [event.seq + 1 for event in page.events[-1:]]
            + [gap.first + gap.events for gap in page.missing[-1:]]
            + [start + 1]
        )


def _newest(
    view: StoreView, stream: str, stop: int, fits: Matches, count: int, missing: list[Gap]
) -> Iterable[StoredEvent]:
    """Give the last `count` events that fit, looking back page by page."""
    found: deque[StoredEvent] = deque()
    while stop > 0 and len(found) < count:
        start = max(0, stop - EVENTS_A_PAGE)
        page = _page(view, stream, start, stop)
        missing[:0] = page.missing
        found.extendleft(reversed([event for event in page.events if fits(event)]))
        stop = start
    return list(found)[-count:]


def _page(view: StoreView, stream: str, start: int, stop: int) -> Page:
    return view.ask(lambda reader: reader.read(stream, start=start, stop=stop, limit=EVENTS_A_PAGE))


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
