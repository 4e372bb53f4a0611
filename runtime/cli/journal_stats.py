"""`turnkeeper journal stats`: how much the store holds, and where."""

from __future__ import annotations

import os
from typing import Any

from turnkeeper.actors.folding import OPEN_TURN
from turnkeeper.actors.reading.listing import ROWS_MAX
from turnkeeper.storage.requests import OWNERLESS
from turnkeeper.storage.sqlite import DATABASE_FILE
from turnkeeper.storage.store import INDEX_DIRECTORY, JOURNAL_DIRECTORY, QUARANTINE_DIRECTORY, describe

from .commands import command
from .invocation import Invocation
from .printing import print_figures, print_json
from .store_view import StoreView, look_at


@command("stats", example="turnkeeper journal stats --json | jq .bytes.journal")
def stats(invocation: Invocation) -> None:
    """Print how many sessions and events there are, and the space they take on disk.

    The journal's bytes are what its files occupy, the filling ahead of the last batch included. Nothing is checked:
    that is what verify is for.
    """
    store = invocation.store
    with look_at(store) as view:
        view.warn_of_damage()
        description = describe(store)
        figures: dict[str, Any] = {
            "store": description.store,
            "path": store,
            "served": view.is_served,
            **_counts(view),
        }
    figures["segments"] = len(_files(store, JOURNAL_DIRECTORY, ".jsonl"))
    if description.backend == "journal":
        directories = (JOURNAL_DIRECTORY, INDEX_DIRECTORY, QUARANTINE_DIRECTORY)
        figures["bytes"] = {name: occupied_bytes(store, name) for name in directories}
    else:
        figures["bytes"] = {"database": _database_bytes(store)}
    state = os.statvfs(store)
    figures["bytes"]["free"] = state.f_bavail * state.f_frsize
    if invocation.is_json:
        print_json(figures)
    else:
        _print(figures)


def _counts(view: StoreView) -> dict[str, int]:
    """Count what the list of streams tells, in one walk over it."""
    counts = {"sessions": 0, "events": 0, "open_turns": 0, "damaged": 0}
    damaged = view.damaged_streams()
    before: tuple[int, str] | None = None
    while True:
        place = before
        rows = view.ask(lambda reader: reader.rows(ROWS_MAX, place))  # noqa: B023 - asked at once
        for row in rows:
            counts["sessions"] += row.epoch != OWNERLESS
            counts["events"] += row.head - (row.summary.get("parent_seq") or 0)
            counts["open_turns"] += row.summary.get(OPEN_TURN) is not None
            counts["damaged"] += bool(row.summary.get("damaged")) or row.id in damaged
        if len(rows) < ROWS_MAX:
            return {"position": view.ask(lambda reader: reader.next_position()) - 1, **counts}
        before = (rows[-1].position, rows[-1].id)


def occupied_bytes(store: str, directory: str) -> int:
    """Give the bytes of disk that one of the store's directories takes."""
    return sum(_occupied(path) for path in _files(store, directory))


def _database_bytes(store: str) -> int:
    """Give the bytes of disk that SQLite's files take."""
    return sum(_occupied(f"{store}/{DATABASE_FILE}{end}") for end in ("", "-wal", "-shm"))


def _files(store: str, directory: str, suffix: str = "") -> list[str]:
    """Find the files below one of the store's directories; those that go away meanwhile don't count."""
    return [
        os.path.join(folder, name)
        for folder, _, names in os.walk(os.path.join(store, directory))
        for name in names
        if name.endswith(suffix)
    ]


def _occupied(path: str) -> int:
    """Give the bytes of disk that a file takes: an index is sparse, so its length says nothing."""
    try:
        return os.stat(path).st_blocks * 512
    except FileNotFoundError:
        return 0


def _print(figures: dict[str, Any]) -> None:
    space = figures["bytes"]
    print_figures(
        [
            ("store", f"{figures['path']} ({figures['store']})"),
            ("served", "yes" if figures["served"] else "no"),
            ("sessions", f"{figures['sessions']:,}"),
            ("events", f"{figures['events']:,}"),
            ("position", f"{figures['position']:,}"),
            ("open turns", f"{figures['open_turns']:,}"),
            ("damaged", f"{figures['damaged']:,}"),
            ("segments", f"{figures['segments']:,}"),
            *((f"{name} bytes", f"{size:,}") for name, size in space.items()),
        ]
    )
