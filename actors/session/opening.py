"""From an opened stream to a session: close what a crash left open, exactly once.

Only what lies behind the open turn's start is read. The closing events are the same bytes whoever writes them: their
content follows from the log, and their time is the last event's. They go under this opening's epoch, so an opener that
was killed or overtaken in the middle leaves nothing that the next one would do again. What was open is told by every
opening until a turn begins: whoever closed it may have been killed before it could say so, or not have been the agent.
So are the tasks that went on without an owner; after a crash between turns until the session is closed in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from turnkeeper.storage.errors import Exists, SessionBusy

from ..client.owned_stream import OwnedStream
from ..folding import CallFate, Reason, TurnState
from ..ids import new_session_id
from ..log_summary import LogSummary
from ..reading.looking import fold_open_turn
from ..records import Interrupted
from ..tasks.untold import tasks_to_tell
from .acceptance import Accepted
from .session import Session

if TYPE_CHECKING:
    from ..client.client import Client


async def reserve(client: Client, header: Mapping[str, Any], state: TurnState) -> Session:
    """Make the session of a new stream, reserved for the header, under another id if the header's is taken.

    `state` is what a fork has of its parent. Raises Exists or SessionBusy for a key that is taken.
    """
    while True:
        try:
            stream, reply = await client.open_stream(header["id"], create=dict(header))
        except Exists as error:
            if error.what == "key":
                raise
        except SessionBusy as busy:
            if busy.stream != header["id"]:
                raise  # it is about the key
        else:
            if reply["new"]:
                log = LogSummary.from_summary(header)
                return Session(client, stream, key=header.get("key"), state=state, summary=log)
            # The id is taken, by one without a living owner: give it back, and take another.
            client.link.release(stream)
        header = {**header, "id": new_session_id()}


async def open_session(
    client: Client, stream: OwnedStream, summary: Mapping[str, Any], *, reason: Reason = "interrupted"
) -> Session:
    """Make the session of an opened stream; durable, if there was something to close, when it returns.

    What is open is closed for this reason, and told only if that is an interruption. If that fails or is cancelled the
    stream is released. Raises Corrupt if events of the open turn can't be read.
    """
    state = TurnState.from_summary(summary)
    log, accepted = LogSummary.from_summary(summary), Accepted.from_summary(summary)
    session = Session(client, stream, key=summary.get("key"), state=state, summary=log, accepted=accepted)
    if state.left_open is None and state.abandoned is None:
        return session
    try:
        fates = [] if state.left_open is None else await _close_left_open(client, session, state, reason)
        tasks = [] if reason != "interrupted" else await tasks_to_tell(client, stream.id, state.abandoned)
        if state.interrupted is not None or tasks:
            session.interrupted = Interrupted(state.turn, fates, tasks)
    except BaseException:
        session.give_up()
        raise
    return session


async def _close_left_open(client: Client, session: Session, state: TurnState, reason: Reason) -> list[CallFate]:
    """Close the turn that was left open, unless an opening has; give the fates of its calls, if they are to be told."""
    left, is_open, abandoned = state.left_open, state.open_turn is not None, state.abandoned
    fold = partial(fold_open_turn, id=session.id, stop=session.head, state=state)
    last_time = await client.reads.call(fold)
    fates = state.fates()
    state.abandoned = abandoned  # which the start of the turn, being folded, took for told
    if reason == "interrupted" or not is_open:
        state.interrupted = left
    if session.close_turn(reason, time=last_time):
        await session.flush()
    elif is_open:
        state.interrupted = None  # the turn has its end, though its summary doesn't say so
    return fates if state.interrupted is not None else []
