"""`turnkeeper task show`: what is known of one task."""

from __future__ import annotations

import click

from .commands import command
from .invocation import Invocation
from .task_names import complete_task, find_state, output_path
from .task_rows import print_task


@command("show", example="turnkeeper task show task-brave-otter-1c9e77f0")
@click.argument("id", shell_complete=complete_task)
def show(invocation: Invocation, id: str) -> None:
    """Print what is known of a task, named by its id, a unique beginning of it, or its key.

    What is shown is as it is now, also while nobody serves the store. Looking changes nothing and starts nothing.
    """
    state = find_state(invocation.store, id)
    print_task(state, output=output_path(invocation.store, state.id), is_json=invocation.is_json)
