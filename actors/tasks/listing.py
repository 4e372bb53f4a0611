"""What has become of tasks, as anybody sees it: one of them, or lists, the newest first. No event loop is loaded.

What the journal says is behind what has become of a task while nobody writes it down: while the node is dead, or hasn't
heard of it yet. So a task that isn't finished there is looked at, by its lock and its files, and is shown as the record
will say that the node is going to write. Looking changes nothing, needs nobody to serve the store, and says of another
machine's tasks that the machine went down, never that they run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, get_args

from turnkeeper.runtime.tasks import survivors
from turnkeeper.runtime.tasks.directory import OUTPUT, boot_id
from turnkeeper.runtime.tasks.looking import Look, is_identity, is_shim_alive, look
from turnkeeper.storage.backend import BackendReader
from turnkeeper.storage.requests import StreamRow

from ..kinds import TASK, require_session
from ..protocol import TASKS_DIRECTORY
from ..reading.naming import find_row, find_task
from .output import read_end
from .progress import SEARCHED_BYTES_MAX, ProgressReader
from .records import UNFINISHED, summary_of_end
from .state import LIVE, State, TaskState

ROWS_MIN: Final = 64
ROWS_MAX: Final = 4096
"""How many rows one look into the list takes while it searches for those in a state."""

_ALL: Final = 1 << 30


def state_of(reader: BackendReader, root: str, wanted: str) -> TaskState:
    """Give the state of the task that is meant by its id, a unique beginning of it, or its key.

    `root` is the store's directory. Of one that is lost, what it left behind is looked for among all processes. Raises
    NotFound, Ambiguous, WrongKind.
    """
    row = find_task(reader, wanted)
    seen = look_at(row, root)
    shim = row.summary.get("shim")
    if seen.state != "lost" or not row.summary.get(UNFINISHED) or not is_identity(shim):
        return seen
    left = [each["pid"] for each in survivors.find(row.id, shim)]
    return replace(seen, survivors=left, survivors_more=0)


def list_tasks(
    reader: BackendReader,
    root: str,
    *,
    session: str | None = None,
    group: str | None = None,
    state: str | None = None,
    limit: int = 20,
    after: TaskState | str | None = None,
) -> list[TaskState]:
    """List tasks, those with the newest records first, at most `limit`.

    `session` is an id, a unique beginning of one or a key; `after` is the last one of the page before. Raises
    NotFound, Ambiguous, WrongKind; ValueError for a state or a limit that is none.
    """
    if state is not None and state not in get_args(State):
        raise ValueError(f"a task's state is one of {', '.join(get_args(State))}, not {state!r}")
    if type(limit) is not int or limit < 0:
        raise ValueError(f"a limit is a number from 0 on, not {limit!r}")
    filters: dict[str, Any] = {} if session is None else {"session": _session_of(reader, session)}
    filters |= {} if group is None else {"group": group}
    filters["having"] = UNFINISHED if state in LIVE else None
    place = None if after is None else _place_of(reader, after)
    found: list[TaskState] = []
    for row in _rows(reader, limit, place, filters):
        if len(found) >= limit:
            break
        seen = look_at(row, root)
        if state in (None, seen.state):
            found.append(seen)
    return found


def unfinished(reader: BackendReader) -> list[StreamRow]:
    """List the tasks that the journal calls unfinished: those without an end, or with survivors. Newest first."""
    return reader.rows(_ALL, kind=TASK, having=UNFINISHED)


def look_at(row: StreamRow, root: str) -> TaskState:
    """Give a task's state, as it is now if the journal doesn't know its end yet."""
    summary = row.summary
    if not summary.get(UNFINISHED):
        return TaskState.from_row(row)
    seen = _seen(f"{root}/{TASKS_DIRECTORY}/{row.id}", summary)
    if summary.get("state") in LIVE:
        return _with(row, seen)
    # How it ended is recorded, and who it left behind may have ended since.
    left = seen.get("survivors", _living(summary.get("survivors"), summary.get("shim")))
    return _with(row, {"survivors": left, "survivors_more": None})


def _rows(
    reader: BackendReader, limit: int, place: tuple[int, str] | None, filters: Mapping[str, Any]
) -> Iterator[StreamRow]:
    """Walk rows, some at a time: first as many as are wanted, and more each time that these weren't enough."""
    count = max(1, min(limit, ROWS_MAX))
    while True:
        rows = reader.rows(count, place, kind=TASK, **filters)
        yield from rows
        if len(rows) < count:
            return
        place = rows[-1].position, rows[-1].id
        count = min(max(2 * count, ROWS_MIN), ROWS_MAX)


def _session_of(reader: BackendReader, wanted: str) -> str:
    return require_session(find_row(reader, wanted)).id


def _place_of(reader: BackendReader, after: TaskState | str) -> tuple[int, str]:
    if isinstance(after, TaskState):
        return after.position, after.id
    row = find_task(reader, after)
    return row.position, row.id


def _with(row: StreamRow, changes: Mapping[str, Any]) -> TaskState:
    return TaskState.from_row(row._replace(summary={**row.summary, **changes}))


# -- What a look says of a task's summary


def _seen(path: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Look at an unfinished task, and give what is otherwise than its summary says."""
    shim = summary.get("shim") if is_identity(summary.get("shim")) else None
    try:
        found = look(path, shim)
    except OSError as error:
        return _unseen(shim, f"its files can't be read: {error.strerror}")
    if found.end is not None:
        # All of them are named there, and only some in the summary; of a lost task they are found by other means.
        left = _living(found.end.get("survivors", summary.get("survivors")), found.shim)
        return {**summary_of_end(found.end), "survivors": left, "survivors_more": None}
    if found.stage == "unstarted":
        return {}
    return _running(path, summary, found)


def _running(path: str, summary: Mapping[str, Any], found: Look) -> dict[str, Any]:
    changes: dict[str, Any] = {"why": found.gone}
    if summary.get("state") == "queued":
        changes["state"] = "running"
    if found.leader is not None:
        changes["pid"] = found.leader.get("pid")
    with suppress(OSError):  # it was deleted, or isn't there yet
        changes["output_bytes"] = os.stat(f"{path}/{OUTPUT}").st_size
    changes["progress"] = _progress(f"{path}/{OUTPUT}")
    return changes


def _progress(path: str) -> dict[str, Any] | None:
    """Read how far a task is from the end of its output; what it told before that, only its node remembers."""
    reader = ProgressReader()
    end = read_end(path, SEARCHED_BYTES_MAX)
    if end.offset:
        reader.skip()
    reader.feed(end.data)
    return reader.value()


def _unseen(shim: Mapping[str, Any] | None, why: str) -> dict[str, Any]:
    """Say of a task that can't be looked at what is known by its shim alone: it lives, or nobody knows."""
    is_alive = shim is not None and is_shim_alive(shim)
    return {"why": why} if is_alive else {"why": why, "state": "lost", "by": "unknown"}


def _living(left: Any, shim: Any) -> list[Any]:
    """Give those of the named survivors that live still, if they are of this boot of this machine."""
    return survivors.living(left) if is_identity(shim) and shim["boot"] == boot_id() else []
