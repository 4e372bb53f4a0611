"""Ending the work on a session and on everything below it: owners lose theirs, turns are aborted, tasks stopped.

Children are those whose `parent` leads to the session, forks among them. Parents come first, so that what is stopped
makes no more of them; then the tasks of all, owned or not. It is looked again until nothing is left to be stopped.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from turnkeeper.storage.backend import BackendReader
from turnkeeper.storage.errors import Deleted, NotFound, StorageError

from .kinds import require_session
from .log_summary import CRITICAL
from .protocol import LIVE_TASKS
from .session.opening import open_session
from .tasks.starting import GRACE_SECONDS
from .tasks.task import stop_tasks

if TYPE_CHECKING:
    from .client.client import Client

ROUNDS_MAX = 10
"""How often it is looked for more: what makes children of its own all the time, from outside, isn't stopped by this."""

_ROWS_MAX = 1_000_000


async def stop(client: Client, wanted: str) -> list[str]:
    """Stop a session and its children, and theirs, and all their tasks; give the ids of those that had an owner.

    One that can't be taken, or a task that even SIGKILL doesn't end, keeps no other from being stopped.

    Raises:
        NotFound, Ambiguous, WrongKind: There is no such session.
        Corrupt, …: The first that couldn't be stopped; all others were.
    """
    root = await client.reads.call(partial(_root, wanted=wanted))
    stopped: list[str] = []
    failures: dict[str, StorageError] = {}
    unkillable: set[str] = set()
    for _ in range(ROUNDS_MAX):
        owned = await client.reads.call(partial(_owned_below, root=root))
        left = [id for id in owned if id not in failures]
        for id in left:
            try:
                await _take_and_close(client, id)
            except StorageError as error:
                failures[id] = error
            else:
                stopped.append(id)
        tasks = [task for task in await _tasks_below(client, root) if task not in unkillable]
        if tasks:
            unkillable |= set((await stop_tasks(client, tasks, GRACE_SECONDS)).left)
        elif not left:
            break
    for failure in failures.values():
        raise failure
    return list(dict.fromkeys(stopped))


async def _tasks_below(client: Client, root: str) -> list[str]:
    """List the unfinished tasks of a session and of all below it."""
    live = (await client.node.ask(LIVE_TASKS, session=None))["tasks"]
    sessions = {task["id"]: task["session"] for task in live if task.get("session") is not None}
    if not sessions:
        return []
    below = await client.reads.call(partial(those_below, root=root, sessions=set(sessions.values())))
    return [task for task, session in sessions.items() if session in below]


async def _take_and_close(client: Client, id: str) -> None:
    row = await client.reads.call(lambda reader: reader.row(id))
    # Whoever ends the work needn't know what it was.
    critical = row.summary.get(CRITICAL) or ()
    stream, reply = await client.open_stream(id, takeover=True, known=critical)
    session = await open_session(client, stream, reply["summary"], reason="aborted")
    await session.aclose()


def _root(reader: BackendReader, wanted: str) -> str:
    row = require_session(reader.row(wanted))
    if row.summary.get("deleted"):
        raise Deleted(row.id)
    return row.id


def _owned_below(reader: BackendReader, root: str) -> list[str]:
    """List the sessions that somebody owns, or did when his process ended, from the root down; parents first."""
    parents: dict[str, str | None] = {}
    found: list[tuple[int, str]] = []
    for row in reader.rows(_ROWS_MAX, having="owner", kind="session"):
        depth = _depth_below(reader, root, row.id, parents)
        if depth is not None:
            found.append((depth, row.id))
    return [id for _, id in sorted(found)]


def those_below(reader: BackendReader, root: str, sessions: set[str]) -> set[str]:
    """Give those of the sessions that are the root or below it."""
    parents: dict[str, str | None] = {}
    return {session for session in sessions if _depth_below(reader, root, session, parents) is not None}


def _depth_below(reader: BackendReader, root: str, id: str, parents: dict[str, str | None]) -> int | None:
    """Count the steps from a session up to the root; None if it isn't below that. `parents` are those known so far."""
    seen: set[str] = set()
    place: str | None = id
    while place is not None and place != root and place not in seen:
        seen.add(place)
        if place not in parents:
            parents[place] = _parent_of(reader, place)
        place = parents[place]
    return len(seen) if place == root else None


def _parent_of(reader: BackendReader, id: str) -> str | None:
    try:
        return reader.row(id).summary.get("parent")
    except NotFound:
        return None
