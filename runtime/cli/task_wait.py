"""`turnkeeper task wait`: until tasks have ended."""

from __future__ import annotations

from functools import partial

import click

from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.tasks.state import TaskState
from turnkeeper.actors.tasks.waiting import Until, has_failed
from turnkeeper.storage.store import describe

from .commands import command
from .failures import Failure
from .invocation import Invocation
from .loop import run_in_loop
from .task_names import complete_task, naming_tasks
from .task_rows import ending, print_tasks
from .values import age, shown_duration


@command("wait", example="turnkeeper task wait task-brave-otter-1c9e77f0 --timeout 10m")
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=complete_task)
@click.option("--all", "until", flag_value="all", default=True, help="Until all have ended; what nothing said means.")
@click.option("--any", "until", flag_value="any", help="Until one has ended.")
@click.option("--first-failure", "until", flag_value="first_failure", help="Until one has failed, or all ended well.")
@click.option("--timeout", type=age, metavar="TIME", help="Wait no longer than this, such as 10s; the tasks go on.")
@click.option("--tree", is_flag=True, help="Until nothing that they started is left, either.")
def wait(invocation: Invocation, ids: tuple[str, ...], until: Until, timeout: float | None, tree: bool) -> None:
    """Wait for tasks, and print what is known of them then.

    The exit code is 0 when what was waited for has come, whatever the tasks' own codes are; 1 if the time was over
    before, or with --first-failure if one has failed.
    """
    store = invocation.store
    describe(store)
    with naming_tasks(store, *ids):
        states = run_in_loop(partial(_wait, store, ids, until, timeout, tree))
    print_tasks(states, is_json=invocation.is_json)
    over = [state for state in states if state.is_over and not (tree and state.survivors)]
    failed = [state for state in over if has_failed(state)]
    if until == "first_failure" and failed:
        raise Failure("failed", f"{failed[0].id} has failed ({ending(failed[0])})", store, "", told=invocation.is_json)
    if len(over) < (1 if until == "any" else len(states)):
        left = ", ".join(state.id for state in states if state not in over)
        what = f"not over within {shown_duration(timeout or 0)}"
        raise Failure("failed", what, left, "they go on; wait again", told=invocation.is_json)


async def _wait(
    store: str,
    ids: tuple[str, ...],
    until: Until,
    timeout: float | None,  # noqa: ASYNC109
    tree: bool,
) -> list[TaskState]:
    async with open_runtime(store) as runtime:
        return await runtime.wait_tasks(*ids, until=until, tree=tree, timeout=timeout)
