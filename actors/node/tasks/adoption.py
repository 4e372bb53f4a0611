"""What an earlier node left of tasks: which are unfinished, which orders were given them, and what was only begun.

The journal says which tasks there are; what a directory holds doesn't count until the journal knows the task. So an
order that was recorded and never given is given now, and a directory that no record followed is removed, unless a
process has its lock. Whoever adopts starts none meanwhile, and there is no other node: no directory in here belongs to
a start that is under way. Part of the node, on trio; reads happen in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import trio

from turnkeeper.runtime.tasks import directory
from turnkeeper.storage.backend import BackendReader
from turnkeeper.storage.errors import NotFound, StorageError
from turnkeeper.storage.exact_json import decode_event
from turnkeeper.storage.requests import StreamRow

from ...core_types import TASK_STOPPING
from ...ids import is_task_id
from ...node_log import log
from ...protocol import TASKS_DIRECTORY
from ...tasks.listing import unfinished
from .recorder import Recorder
from .stop_wish import By, Wish

RETRY_SECONDS: Final = 1.0
"""The pause before reading again what couldn't be read."""

_EVENTS_MAX: Final = 1000
_DIRECTORIES_AT_ONCE: Final = 256
"""Directories that one call looks up, so that others' reads needn't wait for all of them."""


class Unfinished(NamedTuple):
    """An unfinished task, the last order that was recorded or given, if it was to stop, and its stall in seconds."""

    row: StreamRow
    wish: Wish | None
    stall: float | None


async def adopt(recorder: Recorder) -> list[Unfinished]:
    """Find the unfinished tasks of the store, and remove what was begun for others and never recorded."""
    names = _directories()
    while True:
        try:
            adopted = await recorder.reads.call(_read_unfinished)
            await _remove_unknown(recorder, names - {each.row.id for each in adopted})
        except StorageError as error:
            log(f"what an earlier node left of tasks can't be read now ({error}); it is read again")
            await trio.sleep(RETRY_SECONDS)
        else:
            return adopted


def _directories() -> set[str]:
    try:
        return {name for name in os.listdir(TASKS_DIRECTORY) if is_task_id(name)}
    except OSError:  # mostly there has never been one
        return set()


def _read_unfinished(reader: BackendReader) -> list[Unfinished]:
    return [
        Unfinished(row, _order_given(row.id) or _order_recorded(reader, row), _stall(row.id))
        for row in unfinished(reader)
    ]


def _order_given(id: str) -> Wish | None:
    """Read what its shim was told, or would have been told a moment later."""
    return _wish_of(_read(id, directory.CONTROL))


def _stall(id: str) -> float | None:
    stall = _read(id, directory.SPEC).get("stall")
    return float(stall) if isinstance(stall, int | float) and stall > 0 else None


def _read(id: str, name: str) -> Mapping[str, Any]:
    try:
        return directory.read_map(f"{TASKS_DIRECTORY}/{id}/{name}") or {}
    except OSError:
        return {}


def _order_recorded(reader: BackendReader, row: StreamRow) -> Wish | None:
    if row.summary.get("state") != "stopping":
        return None
    for event in reader.read(row.id, limit=_EVENTS_MAX).events:
        found = decode_event(event.line)
        if found["type"] == TASK_STOPPING:
            return _wish_of(found["data"])
    return None


def _wish_of(order: Mapping[str, Any]) -> Wish | None:
    by, grace = order.get("by"), order.get("grace")
    if by in ("stop", "owner") and isinstance(grace, int | float) and grace >= 0:
        who: By = "owner" if by == "owner" else "stop"
        return Wish(who, float(grace))
    return None


async def _remove_unknown(recorder: Recorder, names: set[str]) -> None:
    """Remove the directories of tasks that the journal doesn't know."""
    left = iter(sorted(names))
    while some := list(islice(left, _DIRECTORIES_AT_ONCE)):
        await recorder.reads.call(lambda reader, some=some: _remove_if_unknown(reader, some))  # type: ignore[misc]


def _remove_if_unknown(reader: BackendReader, names: Sequence[str]) -> None:
    for name in names:
        try:
            if reader.row(name).id == name:
                continue
        except NotFound:
            pass
        try:
            if not directory.discard(f"{TASKS_DIRECTORY}/{name}"):
                log(f"{TASKS_DIRECTORY}/{name} isn't this store's, but a process has its lock; it is left alone")
        except OSError as error:
            log(f"{TASKS_DIRECTORY}/{name} can't be removed: {error}")
