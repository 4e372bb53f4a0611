"""From an opened stream to a session: close what a crash left open, exactly once.

Only what lies behind the open turn's start is read, a page at a time. The closing events are the same bytes whoever
writes them: their content follows from the log, and their time is the last event's. They are one append under this
opening's epoch, so an opener that was killed or overtaken in the middle leaves either all of them or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from turnkeeper.storage.errors import Corrupt

from .folding import TurnState
from .owned_stream import OwnedStream
from .records import Interrupted
from .session import Session

if TYPE_CHECKING:
    from .client import Client

PAGE_EVENTS = 1000


async def open_session(client: Client, stream: OwnedStream, summary: Mapping[str, Any]) -> Session:
    """Make the session of an opened stream; durable, if there was something to close, when it returns.

    If that fails or is cancelled the stream is released. Raises Corrupt if events of the open turn can't be read.
    """
    state = TurnState.from_summary(summary)
    session = Session(client, stream, key=summary.get("key"), state=state)
    if state.open_turn is None:
        return session
    try:
        last = await _fold_open_turn(client, stream, state)
        if state.open_turn is not None:
            session.interrupted = Interrupted(state.turn, state.fates())
            session._close_turn("interrupted", time=last)
            await session.flush()
    except BaseException:
        session.give_up()
        raise
    return session


async def _fold_open_turn(client: Client, stream: OwnedStream, state: TurnState) -> int:
    """Fold the events from the open turn's start on into the state; give the last event's time, in ms."""
    time = 0
    start = state.open_turn or 0
    while start < stream.head:
        page = await client.read(stream.id, start=start, stop=stream.head, limit=PAGE_EVENTS)
        if page.missing:
            gap = page.missing[0]
            places = [(each.first, each.events) for each in page.missing]
            raise Corrupt(stream.id, gap.reason, gap.path, gap.offset, places)
        for event in page:
            state.fold(event.seq, event.type, event.data)
            time = event.time
        start += len(page)
    return time
