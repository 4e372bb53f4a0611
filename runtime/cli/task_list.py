"""`turnkeeper task list`: tasks, newest first."""

from __future__ import annotations

from typing import get_args

import click

from turnkeeper.actors.tasks.listing import list_tasks
from turnkeeper.actors.tasks.state import State

from .commands import command
from .completing import complete_session
from .invocation import Invocation
from .store_view import look_at
from .task_names import complete_task, naming_tasks
from .task_rows import print_tasks


@command("list", example="turnkeeper task list --group nightly --state running")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many at most.")
@click.option("--after", metavar="ID", help="Go on behind this task of the list.", shell_complete=complete_task)
@click.option("--session", metavar="ID", help="Only those of this session.", shell_complete=complete_session)
@click.option("--group", metavar="G", help="Only those of this group.")
@click.option("--state", type=click.Choice(get_args(State)), help="Only those in this state.")
def list_all(
    invocation: Invocation,
    limit: int,
    after: str | None,
    session: str | None,
    group: str | None,
    state: State | None,
) -> None:
    """List tasks, those that changed last first.

    What is shown is as it is now, also while nobody serves the store. Looking changes nothing and starts nothing.
    """
    store = invocation.store
    wanted = () if after is None else (after,)
    with look_at(store) as view, naming_tasks(store, *wanted):
        states = view.ask(
            lambda reader: list_tasks(
                reader, store, session=session, group=group, state=state, limit=limit, after=after
            )
        )
        view.warn_of_damage()
    print_tasks(states, is_json=invocation.is_json)
