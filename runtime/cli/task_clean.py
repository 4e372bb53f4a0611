"""`turnkeeper task clean`: remove what ended tasks have left on the disk."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from functools import partial

import click

from turnkeeper.actors.kinds import TASK, kind_of
from turnkeeper.actors.protocol import TASKS_DIRECTORY
from turnkeeper.actors.tasks.records import UNFINISHED
from turnkeeper.runtime.tasks.directory import is_lock_held
from turnkeeper.storage.backend import BackendReader
from turnkeeper.storage.errors import NotFound

from .commands import command
from .invocation import Invocation
from .printing import print_json, print_text
from .store_view import look_at
from .values import age, shown_size


@command("clean", example="turnkeeper task clean --older 30d --dry-run")
@click.option(
    "--older", type=age, default="7d", show_default=True, metavar="TIME", help="Those that ended before that."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def clean(invocation: Invocation, older: float, dry_run: bool) -> None:
    """Remove the directories of tasks that have ended, with their outputs; what is known of the tasks stays.

    A task that goes on, or of which a process is left, keeps its directory.
    """
    store = invocation.store
    before = round((time.time() - older) * 1000)
    with look_at(store) as view:
        removable = [id for id in _directories(store) if view.ask(partial(_is_over, id=id, before=before))]
    removed = []
    size = 0
    for id in removable:
        path = f"{store}/{TASKS_DIRECTORY}/{id}"
        if is_lock_held(path):  # whatever the journal says, somebody is there
            continue
        taken = _bytes_below(path)
        if not dry_run:
            _remove(path)
        removed.append(id)
        size += taken
    if invocation.is_json:
        print_json({"removed": removed, "bytes": size, "dry_run": dry_run})
        return
    for id in removed:
        print_text(id)
    verb = "would be removed" if dry_run else "removed"
    print_text(f"{len(removed):,} task{'' if len(removed) == 1 else 's'}, {shown_size(size)} {verb}")


def _directories(store: str) -> list[str]:
    try:
        return sorted(os.listdir(f"{store}/{TASKS_DIRECTORY}"))
    except FileNotFoundError:
        return []


def _is_over(reader: BackendReader, id: str, before: int) -> bool:
    """Say whether the journal knows that this task ended before a time, in ms since 1970, and left nothing behind."""
    try:
        row = reader.row(id)
    except NotFound:
        return False  # one that is about to be started, or none
    summary = row.summary
    ended = summary.get("ended")
    is_finished = row.id == id and kind_of(row) == TASK and not summary.get(UNFINISHED)
    return is_finished and isinstance(ended, int) and ended <= before


def _bytes_below(path: str) -> int:
    """Count what is taken from the disk by a directory and its files."""

    def blocks(found: os.stat_result) -> int:
        return found.st_blocks * 512

    return blocks(os.lstat(path)) + sum(blocks(each.stat(follow_symlinks=False)) for each in _files(path))


def _files(path: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)


def _remove(path: str) -> None:
    """Remove a directory. A link in its place is removed, and not what it leads to."""
    if os.path.islink(path) or not os.path.isdir(path):
        os.unlink(path)
    else:
        shutil.rmtree(path)
