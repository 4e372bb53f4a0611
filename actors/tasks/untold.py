"""The tasks of which an opening tells: those of a session that lost its owner before he closed it.

He may have been told of everything that had ended by his last event. So it is what ended since, which the session's
inbox has a notice of, and what hasn't ended yet, which the node knows: neither costs more than there is to tell,
however many tasks the store has.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from turnkeeper.storage.backend import BackendReader
from turnkeeper.storage.errors import NotFound

from ..core_types import TASK_ENDED
from ..ids import inbox_id, is_task_id
from ..protocol import LIVE_TASKS
from ..records import Event

if TYPE_CHECKING:
    from ..client.client import Client

PAGE_EVENTS: Final = 256
"""How many messages of an inbox are looked at a time, the newest first."""


async def tasks_to_tell(client: Client, session: str, abandoned: int | None) -> list[str]:
    """List the ids of a session's tasks that ended behind its first `abandoned` events, and of those that haven't.

    The former in the order of their ends. None are told of where its owner closed it, which is `abandoned` None. Raises
    that the store can't be reached.
    """
    if abandoned is None:
        return []
    # Asked in this order, a task that ends in between is told of, once.
    live = await client.node.ask(LIVE_TASKS, session=session)
    ended = await client.reads.call(partial(_ended_since, session=session, events=abandoned))
    return list(dict.fromkeys([*ended, *(each["id"] for each in live["tasks"])]))


def _ended_since(reader: BackendReader, session: str, events: int) -> list[str]:
    """List the tasks of whose ends the session's inbox was told behind the session's first `events` events."""
    after = _position(reader, session, events - 1) if events else 0
    inbox = inbox_id(session)
    try:
        stop = reader.row(inbox).head
    except NotFound:
        return []
    found: list[str] = []
    while stop > 0:
        start = max(0, stop - PAGE_EVENTS)
        page = [Event.from_stored(stored) for stored in reader.read(inbox, start=start, stop=stop).events]
        found[:0] = [task for event in page if event.position > after and (task := _ended_task(event.data)) is not None]
        if page and page[0].position <= after:
            break
        stop = start
    return found


def _position(reader: BackendReader, session: str, seq: int) -> int:
    """Give the position of one of the session's events; 0, as if all came behind it, if it can't be read."""
    events = reader.read(session, start=seq, limit=1).events
    return events[0].position if events else 0


def _ended_task(message: dict[str, Any]) -> str | None:
    """Give the task whose end this message tells, None if it is another one."""
    sender = message.get("sender")
    if message.get("type") == TASK_ENDED and isinstance(sender, str) and is_task_id(sender):
        return sender
    return None
