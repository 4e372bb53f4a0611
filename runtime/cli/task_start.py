"""`turnkeeper task start`: a command in the background."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.tasks.state import TaskState

from .commands import command
from .failures import Failure
from .invocation import Invocation
from .loop import run_in_loop
from .printing import print_json, print_text
from .task_options import starting_options
from .task_rows import ending


@command("start", example="turnkeeper task start --key nightly --timeout 1h30m -- make test", takes_command=True)
@click.option("--keep", is_flag=True, help="Let it go on when this command has ended, which it does in any case.")
@starting_options
def start(invocation: Invocation, keep: bool, argv: tuple[str, ...], **options: Any) -> None:
    """Start a command in the background, and print the task's id, its state and its process.

    It goes on when this command has ended, when you log out, and when whatever serves the store is killed. It has
    nothing to read; what it prints is kept. A missing store is made, too.
    """
    state = run_in_loop(partial(_start, invocation.given_store, argv, options))
    if invocation.is_json:
        print_json({"id": state.id, "state": state.state, "pid": state.pid})
    else:
        print_text("  ".join(filter(None, (state.id, state.state, str(state.pid or ending(state))))))
    match state.how:
        case {"not_started": why}:
            what = f"the command couldn't be run ({why})"
            raise Failure("failed", what, state.id, "mend it and start it anew", told=invocation.is_json)


async def _start(store: str | None, argv: tuple[str, ...], options: dict[str, Any]) -> TaskState:
    async with open_runtime(store) as runtime:
        task = await runtime.start_task(argv, on_owner_exit="keep", **options)
        return await task.state()
