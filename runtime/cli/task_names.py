"""The tasks that people name on the command line: found, offered by the shell, or said not to be there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
from click.shell_completion import CompletionItem

from turnkeeper.actors.errors import Ambiguous, Deleted, NotFound
from turnkeeper.actors.protocol import TASKS_DIRECTORY
from turnkeeper.actors.tasks.listing import state_of
from turnkeeper.actors.tasks.state import TaskState
from turnkeeper.runtime.tasks.directory import OUTPUT

from .completing import ROWS_MAX
from .failures import Failure
from .invocation import Invocation
from .store_view import look_at


@contextmanager
def naming_tasks(store: str, *wanted: str) -> Iterator[None]:
    """Say of the tasks that are `wanted` that they aren't there where the body finds none of that name."""
    try:
        yield
    except (Ambiguous, Deleted):
        raise
    except NotFound as error:
        if error.wanted not in wanted:
            raise
        raise Failure(
            "not_found",
            f"no task {error.wanted!r}",
            store,
            "turnkeeper task list shows those that are there",
            wanted=error.wanted,
        ) from None


def find_state(store: str, wanted: str) -> TaskState:
    """Look up a task by its id, a unique beginning of it, or its key. Raises NotFound, Ambiguous, WrongKind."""
    with look_at(store) as view, naming_tasks(store, wanted):
        return view.ask(lambda reader: state_of(reader, store, wanted))


def output_path(store: str, id: str) -> str:
    """Name the file that holds a task's output."""
    return f"{store}/{TASKS_DIRECTORY}/{id}/{OUTPUT}"


def complete_task(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the tasks whose ids begin like what was typed so far, the last changed first, with their commands."""
    try:
        with look_at(context.ensure_object(Invocation).store) as view:
            rows = view.ask(lambda reader: reader.rows(ROWS_MAX, kind="task"))
    except Exception:
        return []
    found = [row for row in rows if row.id.startswith(incomplete)]
    return [CompletionItem(row.id, help=" ".join(row.summary.get("command") or ()) or None) for row in found]
