"""From an opened stream to a session: close what a crash left open, exactly once.

Only what lies behind the open turn's start is read. The closing events are the same bytes whoever writes them: their
content follows from the log, and their time is the last event's. They go under this opening's epoch, so an opener that
was killed or overtaken in the middle leaves nothing that the next one would do again. What was open is told by every
opening until a turn begins: whoever closed it may have been killed before it could say so, or not have been the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from .folding import TurnState
from .log_summary import LogSummary
from .looking import fold_open_turn
from .owned_stream import OwnedStream
from .records import Interrupted
from .session import Session

if TYPE_CHECKING:
    from .client import Client


async def open_session(client: Client, stream: OwnedStream, summary: Mapping[str, Any]) -> Session:
    """Make the session of an opened stream; durable, if there was something to close, when it returns.

    If that fails or is cancelled the stream is released. Raises Corrupt if events of the open turn can't be read.
    """
    state = TurnState.from_summary(summary)
    log = LogSummary.from_summary(summary)
    session = Session(client, stream, key=summary.get("key"), state=state, summary=log)
    left, is_open = state.left_open, state.open_turn is not None
    if left is None:
        return session
    try:
        fold = partial(fold_open_turn, id=stream.id, stop=stream.head, state=state)
        last_time = await client.reads.call(fold)
        fates = state.fates()
        state.interrupted = left
        if session.close_turn("interrupted", time=last_time):
            await session.flush()
        elif is_open:
            state.interrupted = None  # the turn has its end, though its summary doesn't say so
        if state.interrupted is not None:
            session.interrupted = Interrupted(state.turn, fates)
    except BaseException:
        session.give_up()
        raise
    return session
